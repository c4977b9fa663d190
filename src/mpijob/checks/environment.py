"""Rules about the environment of ranks: variables, and references to secrets.

`volumes` has the rules about uploaded files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mpijob.checks.rule import Findings, Limits, at, dns_name, error, unfit, unfit_line, warning
from mpijob.errors import Finding
from mpijob.model import MPIJob
from mpijob.model.spec.enums import shown

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRET_KEY = re.compile(r"[-._A-Za-z0-9]+")
_REFUSED = ("PMI_", "PMIX_", "OMPI_COMM_", "OMPI_MCA_orte_", "HYDRA_", "MPIJOB_")
_REFUSED_NAMES = ("PRTE_MCA_prte_default_hostfile", "PRTE_MCA_plm_ssh_agent", "OMPI_MCA_plm_rsh_agent", "PMI")
_RISKY = ("LD_PRELOAD", "PATH", "LD_LIBRARY_PATH", "HOME", "HOSTNAME")
_SOURCES = "env:NAME, file:/path or name/key"
# Linux's limit for one string of an environment (MAX_ARG_STRLEN).
_LONGEST_VALUE = 128 * 1024


def variables(job: MPIJob, limits: Limits) -> Findings:
    """Variables must have names and values that the kernel accepts."""
    yield from _variables("env", job.env)
    for index, program in enumerate(job.programs):
        yield from _variables(f"programs[{index}].env", program.env)


def _variables(field: str, env: Mapping[str, str]) -> Findings:
    for key, value in env.items():
        if not _VARIABLE.fullmatch(key):
            yield _bad_name(field, key)
        elif reason := unfit(value):
            yield error(at(field, key), f"the value {reason}", "remove it; it cannot be passed to a process")
        elif len(value.encode()) + len(key) >= _LONGEST_VALUE:
            size = len(value.encode())
            message = f"the value has {size} bytes; the limit is {_LONGEST_VALUE} bytes"
            yield error(at(field, key), message, "put it into code.files")
        else:
            yield from _reserved(at(field, key), key)


def _bad_name(field: str, key: str) -> Finding:
    message = f"{shown(key)} cannot be the name of a variable: use letters, digits and '_', not starting with a digit"
    better = re.sub(r"[^A-Za-z0-9_]", "_", key[:60]).lstrip("0123456789")
    return error(field, message, f"use {better}" if better else "")


def _reserved(field: str, key: str) -> Findings:
    if key.startswith(_REFUSED) or key in _REFUSED_NAMES:
        message = f"{key} is set for every rank by the launcher: a custom value would break the start"
        yield error(field, message, "remove it; options of the MPI library go into launch.settings")
    elif key in _RISKY:
        yield warning(field, f"{key} overrides the value that differs per worker", _RISKY_HINT)


_RISKY_HINT = "remove it unless it is right on every worker"


def secrets(job: MPIJob, limits: Limits) -> Findings:
    """Each secret has a source and a variable of its own."""
    seen: set[str] = set()
    for index, secret in enumerate(job.secrets):
        field = f"secrets[{index}]"
        if not _VARIABLE.fullmatch(secret.env):
            yield _bad_name(f"{field}.env", secret.env)
        elif secret.env in seen or secret.env in job.env:
            other = "env" if secret.env in job.env else "secrets"
            yield error(
                f"{field}.env",
                f"{secret.env} is set twice: it is in {other} as well",
                "remove one of the two",
            )
        else:
            yield from _reserved(f"{field}.env", secret.env)
        seen.add(secret.env)
        if not _secret_source(secret.source):
            yield error(
                f"{field}.source",
                f"{_masked(secret.source)} is not a valid source of a secret",
                f"write {_SOURCES}",
            )


def _secret_source(source: str) -> bool:
    if unfit_line(source):
        return False
    kind, colon, rest = source.partition(":")
    if colon and kind == "env":
        return _VARIABLE.fullmatch(rest) is not None
    if colon and kind == "file":
        return rest.startswith("/") and ".." not in rest.split("/")
    name, slash, key = source.partition("/")
    return bool(slash) and dns_name(name) and _SECRET_KEY.fullmatch(key) is not None


def _masked(source: str) -> str:
    """Return only the beginning of a source: users paste the secret itself by mistake."""
    return repr(source[:4] + "…") if len(source) > 4 else repr(source)
