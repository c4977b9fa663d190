"""The place of `convert` in 0.1, for programs that import it from here."""

from mpijob.client.convert import convert

__all__ = ["convert"]
