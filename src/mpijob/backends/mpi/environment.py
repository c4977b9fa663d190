"""Which of a user's own variables reach a job, and those by which its MPI library is found: the same on every engine
whose jobs run as the user's own processes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from mpijob.backends.mpi import fail_fast
from mpijob.backends.mpi.mpi_installations import SYSTEM_PREFIXES, Installation
from mpijob.formats.launch import batch_environment
from mpijob.model import MPIJob

_KEPT = ("HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "VIRTUAL_ENV", "CONDA_PREFIX",
         "SSL_CERT_FILE", "SSL_CERT_DIR", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy",
         "no_proxy", "XDG_CACHE_HOME", "PYTHONPATH", "SHELL", "TERM", batch_environment.MODULES)  # fmt: skip

_TUNING = ("OMPI_MCA_", "PRTE_MCA_", "MPIR_CVAR_", "MPICH_", "I_MPI_", "UCX_", "FI_", "ROMIO_", "OMP_", "GOMP_", "KMP_",
           "MKL_", "OPENBLAS_", "WM_", "FOAM_", "LOADEDMODULES", "_LMFILES_", "MODULEPATH", "MODULESHOME",
           "BASH_FUNC_module", "BASH_FUNC_ml", "LMOD_", "MODULES_")  # fmt: skip
_STARTING = ("OMPI_MCA_plm", "OMPI_MCA_orte", "PRTE_MCA_plm", "PRTE_MCA_prte", "I_MPI_HYDRA", "I_MPI_PERHOST")


def inherited(users: Mapping[str, str]) -> dict[str, str]:
    """Return the few variables of a user's shell that every job gets."""
    return {name: users[name] for name in _KEPT if name in users}


def tuning_variables(users: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which a user's shell tunes MPI, threads and modules; how ranks are started is ours."""
    return {
        name: value
        for name, value in users.items()
        if name.startswith(_TUNING) and not name.startswith(_STARTING)
    }


def library_variables(found: Installation, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which the library is found: before the directories that the user's own shell searches."""
    variables = found.variables()
    places = [variables.get("LD_LIBRARY_PATH", ""), environ.get("LD_LIBRARY_PATH", "")]
    every = os.pathsep.join(filter(None, places))
    return variables | ({"LD_LIBRARY_PATH": every} if every else {})


def search_path(
    found: Installation, users: Mapping[str, str], first: Iterable[str] = (), own: Iterable[str] = ()
) -> str:
    """Return the PATH of a job: what must come first, the library's own programs, this Python's (`own`), the user's.

    The system's directory of programs keeps its place among the user's.
    """
    launcher = (
        [os.path.dirname(found.launcher)] if found.prefix and found.prefix not in SYSTEM_PREFIXES else []
    )
    theirs = users.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(dict.fromkeys((*first, *launcher, *own, *theirs)))


def python_path(job: MPIJob, users: Mapping[str, str]) -> str:
    """Return the job's own, behind what makes an exception in one rank end them all (see sitecustomize there)."""
    own = job.env.get("PYTHONPATH", users.get("PYTHONPATH", ""))
    return os.pathsep.join(dict.fromkeys([fail_fast.DIRECTORY, *filter(None, own.split(os.pathsep))]))
