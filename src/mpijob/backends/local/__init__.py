"""The local engine: launcher and workers as supervised processes of this machine."""

from mpijob.backends.local.backend import LocalBackend

__all__ = ["LocalBackend"]
