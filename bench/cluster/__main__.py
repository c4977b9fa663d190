"""`python -m bench.cluster [--only NAME…] [--quick] [--list]`: measure, print the table, write the results."""

from __future__ import annotations

import sys
from pathlib import Path

from bench import command
from bench.cluster import (
    admitting,
    bandwidth,
    creating,
    detection,
    following,
    gangs,
    large,
    listing,
    paging,
    scale,
    starting,
    submitting,
    telling,
    twelve,
)

MEASUREMENTS: command.Measurements = {
    "create": creating.measure,
    "list": listing.measure,
    "start": starting.measure,
    "bandwidth": bandwidth.measure,
    "detection": detection.measure,
    "admission": admitting.measure,
    "controller": telling.measure,
    "why": twelve.measure,
    "logs": following.measure,
    "page": paging.measure,
    "submit": submitting.measure,
    "gang": gangs.measure,
    "large": large.measure,
    "scale": scale.measure,
}

if __name__ == "__main__":
    sys.exit(command.main("bench.cluster", MEASUREMENTS, Path(__file__).parent / "results.json"))
