"""All rules, by theme; within one level of trust and one moment, the earlier entry wins."""

from mpijob.diagnosis.rule import Rule
from mpijob.diagnosis.rules import (
    connectivity,
    fabric,
    frameworks,
    gpus,
    launch,
    limits,
    memory,
    mpi,
    storage,
)
from mpijob.diagnosis.rules.platform import (
    api_server,
    batch,
    cluster,
    images,
    pods,
    slurm,
    supervisor,
    waiting,
)
from mpijob.diagnosis.rules.program import crashes, own_words
from mpijob.diagnosis.rules.program import exit as program_exit
from mpijob.diagnosis.rules.program import start as program_start

RULES: tuple[Rule, ...] = (
    *supervisor.RULES,
    *waiting.RULES,
    *images.RULES,
    *cluster.RULES,
    *pods.RULES,
    *api_server.RULES,
    *slurm.RULES,
    *batch.RULES,
    *memory.RULES,
    *gpus.RULES,
    *frameworks.RULES,
    *program_start.RULES,
    *program_exit.RULES,
    *own_words.RULES,
    *crashes.RULES,
    *limits.RULES,
    *storage.RULES,
    *launch.RULES,
    *mpi.RULES,
    *fabric.RULES,
    *connectivity.RULES,
)
UNKNOWN, PROGRAM_ERROR = supervisor.UNKNOWN, own_words.PROGRAM_ERROR
LAUNCHER_ERROR = own_words.LAUNCHER_ERROR
IDS = frozenset(rule.id for rule in (*RULES, UNKNOWN))

__all__ = ["IDS", "LAUNCHER_ERROR", "PROGRAM_ERROR", "RULES", "UNKNOWN"]
