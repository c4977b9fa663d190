"""Job files on disk: their code is beside them, wherever the command is called from."""

from __future__ import annotations

from pathlib import Path

from mpijob.backends import code_upload
from mpijob.errors import BackendError
from mpijob.model import MPIJob
from mpijob.settings import load, own_places


def beside(job: MPIJob, file: str) -> MPIJob:
    """Return the job with its code looked for beside its file."""
    return code_upload.resolve(job, Path(file).parent, own_places(load()))


def load_job(path: str | Path) -> MPIJob:
    """Return the job that a file describes, with its code found beside it."""
    from mpijob.client.submit.validate import read_job

    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise BackendError(f"cannot read {path}: {error.strerror}") from error
    return beside(read_job(text, str(path)), str(path))
