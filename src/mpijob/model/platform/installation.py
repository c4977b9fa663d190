"""The products on a cluster, their versions, and whether their APIs respond."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from mpijob.model.platform.cluster import Known, Unread


class Product(StrEnum):
    """A product that jobs may need, by its name in messages."""

    KUBERNETES = "Kubernetes"
    TRAINER = "Kubeflow Trainer"
    JOBSET = "JobSet"
    MPI_OPERATOR = "MPI Operator"
    KUEUE = "Kueue"
    VOLCANO = "Volcano"
    COSCHEDULING = "scheduler plugins"
    OLD_OPERATOR = "Training Operator v1"


class Answering(StrEnum):
    """Whether an API responds; `down` is registered in the cluster, but its service does not respond."""

    YES = "yes"
    ABSENT = "absent"
    DOWN = "down"


class Component(Known, frozen=True):
    """One product; `version` is "" if it is unknown, `source` says where it was found."""

    product: Product
    version: str = ""
    source: str = ""
    place: str = ""
    ready: bool | None = None
    options: Mapping[str, str] = {}


class Installation(Known, frozen=True):
    """Everything that the doctor examines.

    `patches` is the field with which TrainJobs of this cluster patch their runtime, as queues do. `silent_webhooks`
    are webhooks for jobs that do not respond.
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
        """Return a product, None if it is not installed."""
        return next((component for component in self.components if component.product is product), None)
