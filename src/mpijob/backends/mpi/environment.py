"""The environment of jobs that run as the user's own processes: inherited variables, and those of the MPI library.

It is the same on every such engine. Variables of the allocations of batch systems are in
`formats/launch/batch_environment`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from mpijob.backends.mpi import fail_fast
from mpijob.backends.mpi.mpi_installations import SYSTEM_PREFIXES, Installation
from mpijob.formats.launch import batch_environment
from mpijob.model import MPIJob

# Not the whole environment: a job must not depend on the shell that submits it.
_INHERITED = ("HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "VIRTUAL_ENV", "CONDA_PREFIX",
              "SSL_CERT_FILE", "SSL_CERT_DIR", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy",
              "no_proxy", "XDG_CACHE_HOME", "PYTHONPATH", "SHELL", "TERM", batch_environment.MODULES)  # fmt: skip
_TUNING = ("OMPI_MCA_", "PRTE_MCA_", "MPIR_CVAR_", "MPICH_", "I_MPI_", "UCX_", "FI_", "ROMIO_", "OMP_", "GOMP_", "KMP_",
           "MKL_", "OPENBLAS_", "WM_", "FOAM_", "LOADEDMODULES", "_LMFILES_", "MODULEPATH", "MODULESHOME",
           "BASH_FUNC_module", "BASH_FUNC_ml", "LMOD_", "MODULES_")  # fmt: skip
# Variables with a prefix of tuning that decide how ranks are started, which is decided by the engine.
_LAUNCH = ("OMPI_MCA_plm", "OMPI_MCA_orte", "PRTE_MCA_plm", "PRTE_MCA_prte", "I_MPI_HYDRA", "I_MPI_PERHOST")


def inherited(user_environ: Mapping[str, str]) -> dict[str, str]:
    """Return the few variables of the user's shell that every job gets."""
    return {name: user_environ[name] for name in _INHERITED if name in user_environ}


def tuning_variables(user_environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the user's shell that tune MPI, threads and environment modules."""
    return {
        name: value
        for name, value in user_environ.items()
        if name.startswith(_TUNING) and not name.startswith(_LAUNCH)
    }


def library_variables(installation: Installation, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which a program finds the library, before those in the user's own directories."""
    variables = installation.variables()
    directories = [variables.get("LD_LIBRARY_PATH", ""), environ.get("LD_LIBRARY_PATH", "")]
    library_path = os.pathsep.join(filter(None, directories))
    return variables | ({"LD_LIBRARY_PATH": library_path} if library_path else {})


def search_path(
    installation: Installation,
    user_environ: Mapping[str, str],
    first: Iterable[str] = (),
    python_bin: Iterable[str] = (),
) -> str:
    """Return the PATH of a job: `first`, the library's programs, this Python's, then the user's."""
    prefix = installation.prefix
    # /usr/bin keeps its place in the user's PATH: moved to the front, it would hide all other programs.
    launcher = [os.path.dirname(installation.launcher)] if prefix and prefix not in SYSTEM_PREFIXES else []
    user_path = user_environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(dict.fromkeys((*first, *launcher, *python_bin, *user_path)))


def python_path(job: MPIJob, user_environ: Mapping[str, str]) -> str:
    """Return the job's PYTHONPATH after our `sitecustomize` (see `fail_fast`)."""
    path = job.env.get("PYTHONPATH", user_environ.get("PYTHONPATH", ""))
    return os.pathsep.join(dict.fromkeys([fail_fast.DIRECTORY, *filter(None, path.split(os.pathsep))]))
