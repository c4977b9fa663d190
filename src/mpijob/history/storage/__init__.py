"""Databases, log chunks and object stores behind the job history."""
