"""`python -m bench [--only NAME…] [--quick] [--list]`: measure, print the table, write results.json."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from bench import (
    accounts,
    allreduce,
    command,
    detection,
    efficiency,
    explaining,
    importing,
    listing,
    logs,
    memory,
    packages,
    proof,
    queueing,
    recording,
    scaling,
    shim,
    start,
    steps,
)

MEASUREMENTS: command.Measurements = {
    "start": start.measure,
    "steps": steps.measure,
    "import": importing.measure,
    "list": listing.measure,
    "memory": memory.measure,
    "allreduce": allreduce.measure,
    "packages": packages.measure,
    "scaling": scaling.measure,
    **{f"efficiency-{count}": partial(efficiency.measure, count) for count in efficiency.COUNTS},
    "shim": shim.measure,
    "queue": queueing.measure,
    "detection": detection.measure,
    "proof": proof.measure,
    "why": explaining.measure,
    "recording": recording.measure,
    "record": accounts.measure,
    "logs": logs.measure,
}

if __name__ == "__main__":
    sys.exit(command.main("bench", MEASUREMENTS, Path(__file__).parent / "results.json"))
