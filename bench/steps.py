"""Steps: what a launcher in a script takes longer than the MPI library's own over the same workers.

The script itself takes the time, one after the other in turn, of a program that ends at once.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench.line import Line, Unmeasured, at_most
from bench.places import Options, Place, installed, place
from bench.timing import median
from mpijob import MPIJob, Resources
from mpijob.model import Code, Family

GOAL_MS = 60.0
SCRIPT = """#!/bin/bash
took() { local begin=$(date +%s%N); "$@" > /dev/null 2>&1 || exit 1; echo $((($(date +%s%N) - begin) / 1000)); }
case $MPIJOB_FAMILY in openmpi) hosts="--hostfile $MPIJOB_HOSTFILE" ;; *) hosts="-f $MPIJOB_HOSTFILE" ;; esac
for round in $(seq $1); do
  echo "step $(took mpirun -n 2 sleep 0.1)"
  echo "bare $(took $MPIJOB_LAUNCHER $hosts -n 2 sleep 0.1)"
done
"""


def measure(options: Options) -> Iterator[Line]:
    """Yield a line for each MPI family that is here."""
    with place() as there:
        for family in dict.fromkeys(family for _, family, _ in installed(there)):
            yield _line(there, family, options.rounds(15))


def _line(there: Place, family: str, rounds: int) -> Line:
    job = MPIJob(
        name=f"steps-{family}", workers=2, mpi=Family(family), script="steps.sh", args=(str(rounds),),
        code=Code(files={"steps.sh": SCRIPT}), resources=Resources(cpu="50m", memory="256Mi"),
    )  # fmt: skip
    handle = there.client.submit(job)
    state = handle.wait(300)
    found: dict[str, list[float]] = {"step": [], "bare": []}
    for line in handle.logs():
        name, _, text = line.text.decode().partition(" ")
        if name in found and text.isdigit():
            found[name].append(int(text) / 1e3)
    if min(map(len, found.values())) < rounds:
        raise Unmeasured(f"{state.ref.name} is {state.phase.value}: {state.message}")
    step, bare = median(found["step"]), median(found["bare"])
    title = f"step of a script adds to its launcher: {family}"
    note = f"step {step:.0f} ms, bare {bare:.0f} ms, over the same 2 workers"
    return Line(title, "ms", step - bare, GOAL_MS, (step - bare) / GOAL_MS, at_most(1), note=note)
