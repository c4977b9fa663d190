"""All rules, by theme; within one level of trust and one moment, the earlier entry wins."""

from mpijob.diagnosis.rule import Rule
from mpijob.diagnosis.rules import connectivity, fabric, frameworks, gpus, limits, memory, mpi
from mpijob.diagnosis.rules.platform import cluster, images, pods, supervisor, waiting
from mpijob.diagnosis.rules.program import exit as program_exit
from mpijob.diagnosis.rules.program import start as program_start

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
