"""The reference: the same program under the family's own mpiexec, without this package.

`plain` is what a user types. `joined` uses the launch line and variables of a plan, one daemon per
worker, but reaches the "workers" through a start agent that only runs the command here: so that the
ranks talk over the same transport as in a job.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import NamedTuple

from bench.line import Unmeasured
from bench.places import Place
from mpijob.model import Family, MPIJob, Plan

OWN_VARIABLES = "MPIJOB_"
_AGENT = """#!/bin/sh
while [ $# -gt 0 ]; do
  case $1 in
    -l | -p | -o | -i | -F) shift 2 ;;
    -*) shift ;;
    *) break ;;
  esac
done
worker=$1
shift
for name in $(env | sed -n 's/^\\(PMIX_[A-Za-z0-9_]*\\|PMI_[A-Za-z0-9_]*\\)=.*/\\1/p'); do unset "$name"; done
"""
_HERE = 'exec sh -c "$*"\n'
# Open MPI tells its daemons apart by host name.
_NAMED = 'exec unshare {flags} sh -c \'hostname "$0"; exec sh -c "$1"\' "$worker" "$*"\n'


class Bare(NamedTuple):
    """A command with its environment."""

    argv: list[str]
    environ: dict[str, str]


def plain(place: Place, job: MPIJob) -> Bare:
    """Return `mpiexec -n N program` with the same program, library and settings of the program."""
    plan = place.client.plan(job)
    dropped = ("HYDRA_HOST_FILE", "HYDRA_LAUNCHER", "I_MPI_HYDRA_HOST_FILE", "I_MPI_HYDRA_BOOTSTRAP",
               "I_MPI_PERHOST", "PRTE_MCA_prte_default", "PRTE_MCA_plm", "OMPI_MCA_orte", "OMPI_MCA_plm",
               OWN_VARIABLES)  # fmt: skip
    environ = {name: value for name, value in plan.env.items() if not name.startswith(dropped)}
    spread = ["--map-by", ":OVERSUBSCRIBE"] if plan.family is Family.OPENMPI else []
    return Bare([plan.launch[0], *spread, "-n", str(plan.world), *job.argv], environ)


def joined(place: Place, job: MPIJob) -> Bare:
    """Return the plan's own launch line with a daemon per worker, without anything else of ours."""
    plan = place.client.plan(job)
    directory = place.home / "bare"
    directory.mkdir(exist_ok=True)
    hostfile, agent = directory / f"hosts-{plan.uid}", directory / f"start-{plan.uid}"
    hostfile.write_text(plan.hostfile)
    agent.write_text(_AGENT + _last_line(plan))
    agent.chmod(0o700)
    return Bare(_line(plan, str(hostfile)), _environ(plan, str(hostfile), str(agent)))


def _last_line(plan: Plan) -> str:
    if plan.family is not Family.OPENMPI:
        return _HERE
    if not (shutil.which("unshare") and shutil.which("hostname")):
        raise Unmeasured("bare Open MPI with two daemons needs unshare and hostname")
    return _NAMED.format(flags="--uts" if os.geteuid() == 0 else "--map-root-user --uts")


def _line(plan: Plan, hostfile: str) -> list[str]:
    words = [hostfile if word.endswith("/hostfile") else word for word in plan.launch]
    shim = next(index for index, word in enumerate(words) if Path(word).name == "rank.sh")
    return [*words[: shim - 1], *words[shim + 1 :]]


def _environ(plan: Plan, hostfile: str, agent: str) -> dict[str, str]:
    environ = {name: value for name, value in plan.env.items() if not name.startswith(OWN_VARIABLES)}
    for name, value in environ.items():
        if value.endswith("/hostfile"):
            environ[name] = hostfile
        elif value.endswith("/agent"):
            environ[name] = agent
    return environ
