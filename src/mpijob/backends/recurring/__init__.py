"""Recurring jobs kept in files, and processes that outlive whoever starts them."""
