"""What is known of an object at a glance: which container does the work, whether its text is ours, what labels say.

Apart from `pod_template` and `pod_reader`, which know everything about pods and take longer to load: a list of
jobs needs no more than this.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mpijob.formats.kubernetes import well_known
from mpijob.formats.kubernetes.well_known import COST_PREFIX

CONTAINER = "node"  # Trainer's MPI plugin passes over containers of any other name
OUR_LABELS = (f"{well_known.DOMAIN}/", "kueue.x-k8s.io/", "trainer.kubeflow.org/", well_known.MANAGED_LABEL)


def container_of(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the container that does the work: the one called `node`, else the first."""
    containers = pod.get("containers") or [{}]
    return next((one for one in containers if one.get("name") == CONTAINER), containers[0])


def is_ours(container: Mapping[str, Any]) -> bool:
    """Return whether a container runs one of our own texts."""
    words = list(container.get("command") or [])
    return len(words) == 4 and str(words[3]).startswith("mpijob-")


def from_labels(labels: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of a job that an object's labels tell."""
    mine = {key: value for key, value in labels.items() if not key.startswith((*OUR_LABELS, COST_PREFIX))}
    cost = {
        key.removeprefix(COST_PREFIX): value for key, value in labels.items() if key.startswith(COST_PREFIX)
    }
    owner = labels.get(well_known.OWNER_LABEL, "")
    return {"labels": mine, "cost": cost, "owner": owner, "queue": labels.get(well_known.QUEUE_LABEL, "")}
