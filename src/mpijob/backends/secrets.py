"""Secrets from the user's own machine: read when a job is submitted, never part of a plan.

Secrets of a cluster are objects there; their values are read in `kubernetes/logs/secret_values`, for masking.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from mpijob.errors import InvalidJob
from mpijob.model import Secret

# Linux accepts this many bytes for one variable, its name included (MAX_ARG_STRLEN).
_MAX_BYTES = 128 << 10


def read_value(secret: Secret) -> str:
    """Return the value of a secret: of the variable or file that its source names, else of its own variable.

    Raise InvalidJob if there is none, or if it cannot be the value of an environment variable.
    """
    kind, _, name = secret.source.partition(":")
    try:
        value = _read_file(name) if kind == "file" else os.environ[name if kind == "env" else secret.env]
    except UnicodeDecodeError as error:
        raise _invalid_value(secret, "is not valid Unicode") from error
    except (OSError, KeyError) as error:
        raise InvalidJob(
            f"secret '{secret.env}': source {secret.source} does not exist",
            hint=f"set the variable, or write source: env:{secret.env} or file:/path",
        ) from error
    _check(secret, value)
    return value


def read_available(secrets: Iterable[Secret]) -> tuple[str, ...]:
    """Return the values of those secrets whose sources still exist and are valid."""
    values = []
    for secret in secrets:
        try:
            if _is_rereadable(secret.source):
                values.append(read_value(secret))
        except InvalidJob:
            continue
    return tuple(values)


def _is_rereadable(source: str) -> bool:
    # A pipe has returned its value once, and stdin belongs to another program by now.
    kind, _, path = source.partition(":")
    return kind != "file" or os.path.isfile(path)


def _read_file(path: str) -> str:
    # Bounded: the file may be a device that never ends. A larger value is rejected by `_check`.
    with open(path, encoding="utf-8") as file:
        text = file.read(_MAX_BYTES)
    return text if len(text) == _MAX_BYTES else text.rstrip("\n")


def _check(secret: Secret, value: str) -> None:
    from mpijob.checks.rule import unfit

    max_bytes = _MAX_BYTES - len(f"{secret.env}=\0")
    if len(os.fsencode(value)) > max_bytes:
        raise InvalidJob(
            f"secret '{secret.env}': the value from {secret.source} is too large for an environment "
            f"variable ({max_bytes} bytes)",
            hint="check the source; use a file on a volume for larger values",
        )
    if reason := unfit(value):
        raise _invalid_value(secret, reason)


def _invalid_value(secret: Secret, reason: str) -> InvalidJob:
    return InvalidJob(
        f"secret '{secret.env}': the value from {secret.source} {reason}",
        hint="store it as base64 text (`base64 -w0`), and decode it in the program",
    )
