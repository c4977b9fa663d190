"""Names of MPI error classes by their numbers in Open MPI's mpi.h.

If an MPI call fails and the program does not handle it, a rank of Open MPI exits with the number of the
class.
"""

from __future__ import annotations

# A rank that lost its connection to another one exits with UNKNOWN, too.
RANK, UNKNOWN, TRUNCATE = 6, 14, 15
_NAMES = (
    *("BUFFER", "COUNT", "TYPE", "TAG", "COMM", "RANK", "REQUEST", "ROOT", "GROUP", "OP", "TOPOLOGY", "DIMS"),
    *("ARG", "UNKNOWN", "TRUNCATE", "OTHER", "INTERN", "IN_STATUS", "PENDING", "ACCESS", "AMODE", "ASSERT"),
    *("BAD_FILE", "BASE", "CONVERSION", "DISP", "DUP_DATAREP", "FILE_EXISTS", "FILE_IN_USE", "FILE"),
    *(
        "INFO_KEY",
        "INFO_NOKEY",
        "INFO_VALUE",
        "INFO",
        "IO",
        "KEYVAL",
        "LOCKTYPE",
        "NAME",
        "NO_MEM",
        "NOT_SAME",
    ),
    *(
        "NO_SPACE",
        "NO_SUCH_FILE",
        "PORT",
        "QUOTA",
        "READ_ONLY",
        "RMA_CONFLICT",
        "RMA_SYNC",
        "SERVICE",
        "SIZE",
    ),
    *("SPAWN", "UNSUPPORTED_DATAREP", "UNSUPPORTED_OPERATION", "WIN"),
)


def name(number: int) -> str | None:
    """Return the name of a class: `MPI_ERR_TRUNCATE`."""
    return f"MPI_ERR_{_NAMES[number - 1]}" if 0 < number <= len(_NAMES) else None
