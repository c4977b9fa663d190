"""What is installed on a cluster: its engines, their versions, and whether they answer."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from mpijob.model.platform.cluster import Known, Unread


class Product(StrEnum):
    """What jobs on a cluster may stand on, as sentences call it."""

    KUBERNETES = "Kubernetes"
    TRAINER = "Kubeflow Trainer"
    JOBSET = "JobSet"
    MPI_OPERATOR = "MPI Operator"
    KUEUE = "Kueue"
    VOLCANO = "Volcano"
    COSCHEDULING = "scheduler plugins"
    OLD_OPERATOR = "Training Operator v1"


class Answering(StrEnum):
    """Whether an API answers: `down` is announced by the cluster, but nobody is behind it."""

    YES = "yes"
    ABSENT = "absent"
    DOWN = "down"


class Component(Known, frozen=True):
    """One product: `version` is "" where nothing tells it, `source` says what told it."""

    product: Product
    version: str = ""
    source: str = ""
    place: str = ""
    ready: bool | None = None
    options: Mapping[str, str] = {}


class Installation(Known, frozen=True):
    """Everything that the doctor judges over.

    `patches` is the field by which TrainJobs of this cluster change their runtime; queues write it.
    `silent_webhooks` are services that must agree to every job and do not answer.
    """

    components: tuple[Component, ...] = ()
    openshift: bool = False
    served: frozenset[str] = frozenset()
    patches: str = ""
    old_mpijob: bool = False
    silent_webhooks: tuple[str, ...] = ()
    metrics: Answering = Answering.ABSENT
    visibility: Answering = Answering.ABSENT
    unread: tuple[Unread, ...] = ()

    def find(self, product: Product) -> Component | None:
        """Return a product, if it is there."""
        return next((one for one in self.components if one.product is product), None)
