"""All rules, by theme; within one level of trust and one moment, the earlier entry wins."""

from mpijob.diagnosis.rule import Rule
from mpijob.diagnosis.rules import (
    cluster,
    connectivity,
    fabric,
    frameworks,
    gpus,
    images,
    limits,
    memory,
    mpi,
    pods,
    program_exit,
    program_start,
    supervisor,
    waiting,
)

RULES: tuple[Rule, ...] = (
    *supervisor.RULES,
    *waiting.RULES,
    *images.RULES,
    *cluster.RULES,
    *pods.RULES,
    *memory.RULES,
    *gpus.RULES,
    *frameworks.RULES,
    *program_start.RULES,
    *program_exit.RULES,
    *limits.RULES,
    *mpi.RULES,
    *fabric.RULES,
    *connectivity.RULES,
)
UNKNOWN = supervisor.UNKNOWN
IDS = frozenset(rule.id for rule in (*RULES, UNKNOWN))

__all__ = ["IDS", "RULES", "UNKNOWN"]
