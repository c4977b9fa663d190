"""May the job run here, and is there room: judgement over facts, with the numbers.

All sentences about rights, quota and room live in this room. Gathering the facts is the business of
the backends; whether a job is well formed was judged by `checks`.
"""

from mpijob.admission.capacity import largest_shape, needs, worker_needs
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
    "largest_shape",
    "needs",
    "wait_notice",
    "waiting_sentence",
    "worker_needs",
]
