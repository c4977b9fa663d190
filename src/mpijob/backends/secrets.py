"""Secrets that come from the user's own machine: read when a job is submitted, never part of a plan."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from mpijob.errors import InvalidJob
from mpijob.model import Secret


def value(secret: Secret) -> str:
    """Return the value of a secret: of the variable or file that its source names, else of its own variable."""
    kind, _, where = secret.source.partition(":")
    try:
        if kind == "file":
            return Path(where).read_text().rstrip("\n")
        return os.environ[where if kind == "env" else secret.env]
    except (OSError, KeyError) as error:
        raise InvalidJob(
            f"secret '{secret.env}': its source {secret.source} is not there",
            hint=f"set the variable, or write source: env:{secret.env} or file:/path",
        ) from error


def found(secrets: Iterable[Secret]) -> tuple[str, ...]:
    """Return the values of those secrets whose sources are there."""
    values = []
    for secret in secrets:
        try:
            values.append(value(secret))
        except InvalidJob:
            continue
    return tuple(values)
