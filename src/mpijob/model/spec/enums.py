"""The words that a spec may use, and how a wrong one is answered.

`checks` and `formats` both refuse words; they are strangers, so what they share stands here: the
lists, the guess at what was meant, and how any value, however large or odd, is shown in a sentence.
"""

from __future__ import annotations

from collections.abc import Iterable

# Intel's own device plugin calls its GPUs by their driver
GPU_KINDS = ("nvidia.com/gpu", "amd.com/gpu", "intel.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe")
MIG_PREFIX = "nvidia.com/mig-"
PRIORITIES = {"low": -100, "normal": 0, "high": 100, "urgent": 1000}
PLACES = ("hwthread", "core", "l1cache", "l2cache", "l3cache", "numa", "socket", "package")
# tried word by word on Open MPI 5.0.11, MPICH 5.0.2 and Intel MPI 2021.18; slot and node are ours on hydra
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
# And its usual device.
FABRICS = {
    "infiniband": "rdma/hca",
    "roce": "rdma/roce",
    "efa": "vpc.amazonaws.com/efa",
}
# How the names of such devices begin.
FABRIC_DEVICES = ("rdma/", "vpc.amazonaws.com/efa")
HUGE_PAGES = "hugepages-2Mi"
PRESETS = (*FABRICS, "tcp", "nccl", "cpu-pinning", "huge-pages")
# for which a failed job is tried again, beside codes of findings; `observation/state/retry_cause` knows them
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
    """Return the known word that is nearest to a wrong one, or "" when none is near; `cutoff` is how near, up to 1."""
    # Only for a word that is wrong: start-up is a feature.
    import difflib

    choices = {choice.lower(): choice for choice in known}
    close = difflib.get_close_matches(word[:_SHOWN].lower(), choices, n=1, cutoff=cutoff)
    return choices[close[0]] if close else ""


def choice_hint(word: str, known: Iterable[str]) -> str:
    """Return the remedy for a word that is not one of the known ones."""
    choices = tuple(known)
    listed = ", ".join(choices)
    meant = did_you_mean(word, choices)
    return f"did you mean '{meant}'? allowed: {listed}" if meant else f"allowed: {listed}"


def shown(value: object) -> str:
    """Return a value as a sentence can hold it: short, and never failing on odd or huge ones."""
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
