"""Secrets that come from the user's own machine: read when a job is submitted, never part of a plan."""

from __future__ import annotations

import os
from collections.abc import Iterable

from mpijob.errors import InvalidJob
from mpijob.model import Secret

_LONGEST = 128 << 10  # what Linux takes for one variable, its name included


def read_value(secret: Secret) -> str:
    """Return the value of a secret: of the variable or file that its source names, else of its own variable."""
    kind, _, where = secret.source.partition(":")
    try:
        found = _text(where) if kind == "file" else os.environ[where if kind == "env" else secret.env]
    except UnicodeDecodeError as error:
        raise _unfit(secret, "is not valid Unicode") from error
    except (OSError, KeyError) as error:
        raise InvalidJob(
            f"secret '{secret.env}': source {secret.source} does not exist",
            hint=f"set the variable, or write source: env:{secret.env} or file:/path",
        ) from error
    _check(secret, found)
    return found


def read_available(secrets: Iterable[Secret]) -> tuple[str, ...]:
    """Return the values of those secrets whose sources are there, and still hold what can be one."""
    values = []
    for secret in secrets:
        try:
            if _lasts(secret.source):
                values.append(read_value(secret))
        except InvalidJob:
            continue
    return tuple(values)


def _lasts(source: str) -> bool:
    """Return whether a source can be read again: a pipe has said its value once, and stdin is somebody else's now."""
    kind, _, where = source.partition(":")
    return kind != "file" or os.path.isfile(where)


def _text(path: str) -> str:
    """Return what a file holds, without the newline at its end; of one that is too large, or endless, a part."""
    with open(path, encoding="utf-8") as file:
        text = file.read(_LONGEST)
    return text if len(text) == _LONGEST else text.rstrip("\n")


def _check(secret: Secret, value: str) -> None:
    """Refuse what no process can be given as a variable."""
    from mpijob.checks.rule import unfit

    most = _LONGEST - len(f"{secret.env}=\0")
    if len(os.fsencode(value)) > most:
        raise InvalidJob(
            f"secret '{secret.env}': the value from {secret.source} is too large for an environment "
            f"variable ({most} bytes)",
            hint="check the source; use a file on a volume for larger values",
        )
    if reason := unfit(value):
        raise _unfit(secret, reason)


def _unfit(secret: Secret, reason: str) -> InvalidJob:
    return InvalidJob(
        f"secret '{secret.env}': the value from {secret.source} {reason}",
        hint="store it as base64 text (`base64 -w0`), and decode it in the program",
    )
