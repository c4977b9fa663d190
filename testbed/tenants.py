"""Who uses the cluster: two teams with their namespaces, rights, queues and a few volumes.

The users and their credentials are made in `pki`; what they may do is in testbed/objects/tenants.yaml.
"""

from __future__ import annotations

from functools import partial

from testbed import places
from testbed.kubectl import apply, apply_ours, has_condition, kubectl
from testbed.shell import retry, wait_for

TEAMS = ("team-a", "team-b")
_VOLUMES = 8
_VOLUME = """\
apiVersion: v1
kind: PersistentVolume
metadata: {{name: testbed-{number}}}
spec:
  storageClassName: testbed
  capacity: {{storage: 1Gi}}
  accessModes: [ReadWriteOnce, ReadWriteMany]
  persistentVolumeReclaimPolicy: Retain
  hostPath: {{path: {folder}, type: Directory}}
---
"""


def create() -> None:
    """Create the teams, their queues and the volumes; Kueue's webhook may need some seconds."""
    apply_ours("tenants")
    _make_volumes()
    retry("creating the queues", lambda: apply_ours("queues"), seconds=90)


def wait_until_usable() -> None:
    """Wait until a pod could be created in each team's namespace, and its queue takes jobs."""
    for team in TEAMS:
        account = partial(kubectl, "get", "serviceaccount", "default", f"--namespace={team}")
        retry(f"the service account of {team}", account, seconds=60)
        is_active = partial(has_condition, "localqueue", "main", f"--namespace={team}", condition="Active")
        wait_for(f"the queue of {team}", is_active, seconds=60)


def _make_volumes() -> None:
    documents = []
    for number in range(1, _VOLUMES + 1):
        folder = places.run_state() / "volumes" / str(number)
        folder.mkdir(parents=True)
        folder.chmod(0o777)  # the kubelet does not hand a hostPath over to the pod's group
        documents.append(_VOLUME.format(number=number, folder=folder))
    apply("".join(documents))
