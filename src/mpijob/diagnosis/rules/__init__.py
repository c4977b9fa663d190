"""All rules, by theme; within one level of trust and one moment, the earlier entry wins."""

from mpijob.diagnosis.rule import Rule
from mpijob.diagnosis.rules import (
    cluster,
    engine,
    fabric,
    frameworks,
    gpus,
    images,
    limits,
    memory,
    mpi,
    pods,
    program,
    reach,
    starting,
    waiting,
)

RULES: tuple[Rule, ...] = (
    *engine.RULES,
    *waiting.RULES,
    *images.RULES,
    *cluster.RULES,
    *pods.RULES,
    *memory.RULES,
    *gpus.RULES,
    *frameworks.RULES,
    *starting.RULES,
    *program.RULES,
    *limits.RULES,
    *mpi.RULES,
    *fabric.RULES,
    *reach.RULES,
)
UNKNOWN = engine.UNKNOWN
IDS = frozenset(rule.id for rule in (*RULES, UNKNOWN))

__all__ = ["IDS", "RULES", "UNKNOWN"]
