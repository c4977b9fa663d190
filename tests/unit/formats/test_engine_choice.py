"""Which engine a job goes to on a cluster, and the reasons that are told."""

from __future__ import annotations

import pytest
from tests.unit.cluster_support import a_job

from mpijob.errors import Unsupported
from mpijob.formats.kubernetes.mpijob import API as MPIJOB
from mpijob.formats.kubernetes.trainjob import API as TRAINJOB
from mpijob.formats.sizing.engine_selection import JOBSET_API, Engine, choose
from mpijob.model import CustomLaunch, Family, Launch

BOTH = {TRAINJOB, JOBSET_API, MPIJOB}


def test_open_mpi_goes_to_trainer_with_reasons() -> None:
    choice = choose(a_job(), BOTH)
    assert (choice.engine, choice.family) == (Engine.TRAINER, Family.OPENMPI)
    assert len(choice.reasons) == 2


@pytest.mark.parametrize("family", [Family.INTEL, Family.MPICH])
def test_what_trainer_cannot_start_goes_to_the_mpi_operator(family: Family) -> None:
    choice = choose(a_job(mpi=family), BOTH)
    assert (choice.engine, choice.family) == (Engine.MPI_OPERATOR, family)
    assert family.value in choice.reasons[0]


def test_a_launcher_image_of_its_own_needs_the_mpi_operator() -> None:
    assert choose(a_job(), BOTH, launcher_image="front:1").engine is Engine.MPI_OPERATOR


def test_the_command_says_which_library_it_belongs_to() -> None:
    choice = choose(a_job(command=("mpiexec.hydra", "-n", "4", "x")), BOTH)
    assert (choice.engine, choice.family) == (Engine.MPI_OPERATOR, Family.MPICH)


@pytest.mark.parametrize("served", [{MPIJOB}, {MPIJOB, TRAINJOB}])
def test_without_trainer_or_its_jobset_the_mpi_operator_serves(served: set[str]) -> None:
    choice = choose(a_job(), served)
    assert choice.engine is Engine.MPI_OPERATOR
    assert "is not installed" in choice.reasons[0]


@pytest.mark.parametrize(
    ("served", "said"),
    [
        (set(), "neither Kubeflow Trainer"),
        ({"kubeflow.org/v1"}, "the old Training Operator's"),
        ({TRAINJOB}, "JobSet"),
    ],
)
def test_a_cluster_without_engines_is_told_what_is_missing(served: set[str], said: str) -> None:
    with pytest.raises(Unsupported, match=said):
        choose(a_job(), served)


def test_intel_mpi_on_a_cluster_without_the_operator_says_why() -> None:
    with pytest.raises(Unsupported, match="Trainer starts Open MPI only"):
        choose(a_job(mpi=Family.INTEL), {TRAINJOB, JOBSET_API})


def test_an_unknown_library_runs_on_one_machine_only() -> None:
    custom = Launch(custom=CustomLaunch(command=("poe",)))
    with pytest.raises(Unsupported, match="mpi: custom"):
        choose(a_job(mpi=Family.CUSTOM, launch=custom), BOTH)
