"""The place of `verified` in 0.1, for programs that import it from here."""

from mpijob.client.integrations.webhooks import verified

__all__ = ["verified"]
