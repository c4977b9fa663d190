"""A line that a training says about itself: the one call of `mpijob.report`, and what such a line looks like.

The line goes the way of all output, so nothing has to be there to receive it: not a server, not a network, not
mpijob itself. `observation/metrics/training` finds it again. A program without mpijob may print the same line.
"""

from __future__ import annotations

import contextlib
import json
import sys
from typing import SupportsFloat

import msgspec

WORD = "mpijob-report"


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a training is, as its engine knows it: `progress` from 0 to 1, `eta` in seconds, last values by name."""

    progress: float | None = None
    eta: float | None = None
    metrics: dict[str, float] = {}
    updated: float | None = None


def report(*, step: SupportsFloat | None = None, **values: SupportsFloat) -> None:
    """Tell how a training stands: `mpijob.report(step=10, steps=1000, loss=0.31, accuracy=0.9)`, from any rank.

    Names are free; `step` and `epoch` say how far it is, `steps` and `epochs` how far it will go.

    >>> import mpijob
    >>> mpijob.report(step=1, loss=0.5)
    mpijob-report {"step": 1, "loss": 0.5}
    """
    fields = {} if step is None else {"step": step}
    numbers = {name: _number(name, value) for name, value in {**fields, **values}.items()}
    # Nobody reads the output any more: no reason to end a training.
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.write(f"{WORD} {json.dumps(numbers)}\n")
        sys.stdout.flush()


def _number(name: str, value: SupportsFloat) -> float | int:
    if isinstance(value, int):
        return int(value)
    try:
        # Also values of numpy and torch.
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"mpijob.report takes numbers, and {name} is a {type(value).__name__}") from None
