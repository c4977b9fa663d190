"""A rank is cut off from its launcher only where its variables can be read, and lack the launcher's."""

from __future__ import annotations

import pytest

from mpijob.backends.local.worker.world_proof import has_contact
from mpijob.model import Family


@pytest.mark.parametrize(
    ("environ", "openmpi", "mpich"),
    [
        (b"PATH=/bin\0PMI_RANK=0\0", False, True),
        (b"PMI_FD=7\0", False, True),
        (b"OMPI_COMM_WORLD_RANK=1\0PATH=/bin\0", True, False),
        (b"PATH=/bin\0PMIX_RANK=1\0", True, True),
        (b"PATH=/bin\0NO_PMI_RANK=0\0", False, False),
        (b"", False, False),
        (None, True, True),
        (b"\0\0\0\0", True, True),
        (b"train: epoch 3\0\0\0PATH=/bin\0", True, True),
    ],
)
def test_contact_is_read_from_the_variables(environ: bytes | None, openmpi: bool, mpich: bool) -> None:
    assert has_contact(environ, Family.OPENMPI) is openmpi
    assert has_contact(environ, Family.MPICH) is mpich
