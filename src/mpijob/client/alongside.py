"""The place of `load_job` in 0.1, for programs that import it from here."""

from mpijob.client.submit.templates import load_job

__all__ = ["load_job"]
