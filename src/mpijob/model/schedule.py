"""Compatibility with 0.1: programs import schedules from here."""

from mpijob.model.spec.schedule import Overlap, Recurrence, Schedule

__all__ = ["Overlap", "Recurrence", "Schedule"]
