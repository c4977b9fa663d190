"""The place of schedules in 0.1, for programs that import them from here."""

from mpijob.model.spec.schedule import Overlap, Recurrence, Schedule

__all__ = ["Overlap", "Recurrence", "Schedule"]
