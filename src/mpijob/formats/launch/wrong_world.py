"""Messages about a rank that would have started an MPI world of its own; the same on every engine."""

from __future__ import annotations

from collections.abc import Sequence


def other_mpi(subject: str, library: str, launcher: str, wanted: str) -> str:
    """The program's MPI is another family than the launcher's."""
    return f"{subject} loaded {library}, but {launcher} started it: it would be an MPI world of one; set mpi: {wanted}"


def cut_off(subject: str, library: str, lost: Sequence[str]) -> str:
    """The program has lost the variables by which it finds the other ranks."""
    return (
        f"{subject} has loaded {library} without the variables of its launcher ({', '.join(lost)}; env -i, "
        "or a clean login shell): it would be an MPI world of one; pass the environment on"
    )


def started_again(subject: str, library: str, changed: Sequence[str]) -> str:
    """A second launcher has started the program."""
    return (
        f"{subject} has loaded {library}, and another launcher has started it ({', '.join(changed)} "
        "changed): each rank would start its own MPI world; remove that launcher from the command"
    )


def nested(subject: str, world: int) -> str:
    """The program starts ranks itself."""
    return (
        f"{subject} starts mpirun itself: each of the {world} ranks would start its own MPI world; "
        "run it as a script (--script FILE), in which each mpirun is a step"
    )
