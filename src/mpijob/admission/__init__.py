"""May the job run here, and is there capacity? Decisions over facts, with the numbers.

All messages about permissions, quota and capacity are in this package. Backends gather the facts; `checks`
has already verified that the job is well formed.
"""

from mpijob.admission.capacity import max_workers, needs
from mpijob.admission.decision import admit
from mpijob.admission.queue_reason import (
    availability_sentence,
    group_sentence,
    insufficient_sentence,
    wait_notice,
    waiting_sentence,
)

__all__ = [
    "admit",
    "availability_sentence",
    "group_sentence",
    "insufficient_sentence",
    "max_workers",
    "needs",
    "wait_notice",
    "waiting_sentence",
]
