"""What is said of a rank that would have been a world of its own: the same on one machine and in pods."""

from __future__ import annotations

from collections.abc import Sequence


def other_mpi(who: str, library: str, launcher: str, wanted: str) -> str:
    """The program's MPI is another family than the launcher's."""
    return f"{who} loaded {library}, but {launcher} started it: it would be an MPI world of one; set mpi: {wanted}"


def cut_off(who: str, library: str, lost: Sequence[str]) -> str:
    """The program has lost the variables by which it finds the other ranks."""
    return (
        f"{who} has loaded {library} without the variables of its launcher ({', '.join(lost)}; env -i, "
        "or a clean login shell): it would be an MPI world of one; pass the environment on"
    )


def started_again(who: str, library: str, changed: Sequence[str]) -> str:
    """A second launcher has started the program."""
    return (
        f"{who} has loaded {library}, and another launcher has started it ({', '.join(changed)} "
        "changed): each rank would start its own MPI world; remove that launcher from the command"
    )


def nested(who: str, world: int) -> str:
    """The program starts ranks itself."""
    return (
        f"{who} starts mpirun itself: each of the {world} ranks would start its own MPI world; "
        "run it as a script (--script FILE), in which each mpirun is a step"
    )
