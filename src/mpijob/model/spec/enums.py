"""The words that a spec may have, and helpers for messages about wrong ones, for `checks` and `formats`."""

from __future__ import annotations

from collections.abc import Iterable

# Intel's device plugin names GPUs by their kernel driver.
GPU_KINDS = ("nvidia.com/gpu", "amd.com/gpu", "intel.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe")
MIG_PREFIX = "nvidia.com/mig-"
PRIORITIES = {"low": -100, "normal": 0, "high": 100, "urgent": 1000}
PLACES = ("hwthread", "core", "l1cache", "l2cache", "l3cache", "numa", "socket", "package")
# Tested with Open MPI 5.0.11, MPICH 5.0.2 and Intel MPI 2021.18; for Hydra, we implement slot and node.
MAP_BY = {
    "openmpi": ("slot", *PLACES, "node", "seq", "ppr", "pe-list"),
    "mpich": ("slot", *PLACES, "node"),
    "intel": ("slot", *PLACES, "node"),
}
BIND_TO = {
    "openmpi": ("none", *PLACES),
    "mpich": ("none", *PLACES, "rr", "user"),
    "intel": ("none", *PLACES, "rr", "user"),
}
# Each with its usual device.
FABRICS = {
    "infiniband": "rdma/hca",
    "roce": "rdma/roce",
    "efa": "vpc.amazonaws.com/efa",
}
# Prefixes of such devices' names.
FABRIC_DEVICES = ("rdma/", "vpc.amazonaws.com/efa")
HUGE_PAGES = "hugepages-2Mi"
PRESETS = (*FABRICS, "tcp", "nccl", "cpu-pinning", "huge-pages")
# Causes after which a failed job is retried, beside codes of findings (`observation/state/retry_cause`).
RETRY_CAUSES = (
    *("worker_lost", "preempted", "evicted", "out_of_memory", "nccl", "network", "gpu", "hang", "start"),
    *("image", "data", "program"),
)
NOTICES = ("queued", "started", "retried", "succeeded", "failed", "cancelled", "ended")
SIGNALS = (
    "HUP",
    "INT",
    "QUIT",
    "USR1",
    "USR2",
    "ALRM",
    "TERM",
    "CONT",
    "XCPU",
    "WINCH",
)

_SHOWN = 60
_WIDEST_NUMBER_BITS = 256


def did_you_mean(word: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """Return the most similar known word, "" if none is similar; `cutoff` is the least similarity, up to 1."""
    # Needed for wrong words only: its import would delay every command.
    import difflib

    choices = {choice.lower(): choice for choice in known}
    close = difflib.get_close_matches(word[:_SHOWN].lower(), choices, n=1, cutoff=cutoff)
    return choices[close[0]] if close else ""


def choice_hint(word: str, known: Iterable[str]) -> str:
    """Return the hint for an unknown word."""
    choices = tuple(known)
    listed = ", ".join(choices)
    meant = did_you_mean(word, choices)
    return f"did you mean '{meant}'? allowed: {listed}" if meant else f"allowed: {listed}"


def shown(value: object) -> str:
    """Return any value as a short text for a message; it never fails."""
    if isinstance(value, str):
        text = str(value)
        return repr(text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…")
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return _shown_number(value)
    if isinstance(value, float):
        return f"{value:.10g}"
    return _shown_kind(value)


def _shown_number(value: int) -> str:
    if value.bit_length() <= _WIDEST_NUMBER_BITS:
        return str(int(value))
    return f"a number of {value.bit_length()} bits"


def _shown_kind(value: object) -> str:
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, (list, tuple, set, frozenset)):
        return "a list"
    return f"a value of type {type(value).__name__}"
