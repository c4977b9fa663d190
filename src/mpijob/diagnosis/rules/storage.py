"""Causes in file systems: those of the network, and damaged disks."""

from __future__ import annotations

from mpijob.diagnosis.rule import Remedy, Rule, Sign

_PATH = r"(?:: '(?P<path>[^'\n]{1,200})')?"

RULES = (
    Rule(
        id="FILE_SYSTEM_ERROR",
        title="A file system failed",
        why="A read or write failed in the file system itself. On a network file system (NFS, Lustre, "
        "GPFS, CephFS) the server did not respond, or the file was deleted or replaced on the server "
        "while a rank had it open. A local disk may be damaged. Often only some nodes are affected.",
        signs=(
            Sign("tale ", rf"(?P<error>(?P<stale>Stale (?:NFS )?file handle)){_PATH}"),
            Sign("Input/output error", rf"(?P<error>Input/output error){_PATH}"),
            Sign("Remote I/O error", rf"(?P<error>Remote I/O error){_PATH}"),
            Sign(
                "Transport endpoint",
                r"(?P<error>Transport endpoint is not connected): '(?P<path>/[^'\n]{1,200})'",
            ),
        ),
        causes=(
            "{who} could not read or write {path}: {error}.",
            "{who} could not read or write a file: {error}.",
        ),
        example="Rank 2 could not read or write /scratch/run/mesh.h5: Stale file handle.",
        remedies=(
            Remedy(
                "do not replace or delete files that running ranks have open: write a new file with "
                "a different name{stale:.0}"
            ),
            Remedy("run it again without {node}", {"placement": {"exclude_nodes": ["{node}"]}}),
            Remedy("check the file system on that node: findmnt, and dmesg | tail"),
        ),
        confidence=0.8,
        uncaught=True,
        yields_to=("DISK_FULL", "TOO_MANY_FILES"),
    ),
)
