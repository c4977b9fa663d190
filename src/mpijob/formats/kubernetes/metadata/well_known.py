"""Names that all our documents share (labels, annotations, paths in pods), and the `Shape` of a cluster."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec

from mpijob.errors import Finding, InvalidJob
from mpijob.model import Family

if TYPE_CHECKING:
    from mpijob.model import MPIJob

DOMAIN = "mpijob.dev"
JOB_LABEL = f"{DOMAIN}/job"
ROLE_LABEL = f"{DOMAIN}/role"
UID_LABEL = f"{DOMAIN}/uid"
ATTEMPT_LABEL = f"{DOMAIN}/attempt"
# The pod's group of workers.
GROUP_LABEL = f"{DOMAIN}/group"
# The number of the first worker of the pod's group.
FIRST_LABEL = f"{DOMAIN}/first-worker"
# Ranks of each worker in the group.
SLOTS_LABEL = f"{DOMAIN}/slots"
# The groups of a job's workers, for readers that have no access to its runtime.
GROUPS_ANNOTATION = f"{DOMAIN}/groups"
# The job's number among those of its name, from the second on.
RUN_LABEL = f"{DOMAIN}/run"
# A hash of the command without its numbers: equal for runs of the same program.
PROGRAM_LABEL = f"{DOMAIN}/program"
OWNER_LABEL = f"{DOMAIN}/owner"
COST_PREFIX = f"cost.{DOMAIN}/"
# The job whose volume claims a reader pod mounts.
READER_LABEL = f"{DOMAIN}/reader"
MANAGED_LABEL = "app.kubernetes.io/managed-by"
MANAGED_BY = "mpijob"
# The time at which a user cancelled the job.
CANCELLED_ANNOTATION = f"{DOMAIN}/cancelled"
# The time at which a user suspended it.
SUSPENDED_ANNOTATION = f"{DOMAIN}/suspended"
# When and why it was ended because it could not start, as JSON.
GIVEN_UP_ANNOTATION = f"{DOMAIN}/given-up"
# By the controller: its nodes that do not respond.
SILENT_NODES_ANNOTATION = f"{DOMAIN}/silent-nodes"
# By the controller: the progress of a preempted job.
REACHED_ANNOTATION = f"{DOMAIN}/reached"
# By the controller: its model and version in the model registry.
MODEL_ANNOTATION = f"{DOMAIN}/model"
# The start that was estimated at submission, as JSON.
ESTIMATE_ANNOTATION = f"{DOMAIN}/estimated"
# The jobs that it waits for, and the queue that it enters then, as JSON.
AFTER_ANNOTATION = f"{DOMAIN}/after"
# Users' actions on the job, in order, as JSON.
ACTS_ANNOTATION = f"{DOMAIN}/acts"
# The fields of the job that the document's own fields cannot express, as JSON (`passthrough`).
REST_ANNOTATION = f"{DOMAIN}/rest"
# The label with which an engine marks the pods of one job object; admission refuses it on pods of users.
ENGINE_NAMES = {"TrainJob": "jobset.sigs.k8s.io/jobset-name", "MPIJob": "training.kubeflow.org/job-name"}
# By admission: the owner's groups when the job was created, one for each line.
OWNER_GROUPS = f"{DOMAIN}/owner-groups"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"
TOPOLOGY_ANNOTATION = "kueue.x-k8s.io/podset-preferred-topology"
ZONE_LABEL = "topology.kubernetes.io/zone"
# The second one is used in Kueue's guide.
RACK_LABELS = ("topology.kubernetes.io/rack", "cloud.provider.com/topology-rack")
VOLCANO_QUEUE_ANNOTATION = "scheduling.volcano.sh/queue-name"

HOME = "/mpijob/home"
SSH = "/mpijob/ssh"
CODE = "/mpijob/code"
PROFILER = "/mpijob/profiler"
WORK = "/mpijob/home/work"
HOSTFILE = "/etc/mpi/hostfile"
# The hostfile of a job with groups, written by its launcher: the engine's has the same slots for all workers.
GROUPS_HOSTFILE = f"{HOME}/hostfile"
# Kept up to date by the MPI Operator.
DISCOVERY = "/etc/mpi/discover_hosts.sh"
AGENT = f"{HOME}/ssh"
SHIM = f"{HOME}/rank.sh"
STEP = f"{HOME}/step.sh"
SECRETS_SUFFIX = "-mpijob-secrets"
CODE_SUFFIX = "-mpijob-code"
CODE_VOLUME = "mpijob-code"
MOST_CODE_PARTS = 12
PROFILER_SUFFIX = "-mpijob-profiler"
NETWORK_SUFFIX = "-mpijob-network"
SSH_PORT = 2222
LONGEST_NAME = 63
# The start of a large world needs CPU. A limit is set at all because the Kubeflow SDK lists no jobs without one.
LAUNCHER_CORES = 4.0
# Bytes; Kubernetes' limit for all annotations of an object is 256 KiB.
LARGEST_REST = 200_000

# One user ID for all jobs, so that a job can read what another has written on a shared claim.
PLAIN_USER = 1000660000

_CODE_NAME = re.compile(rf"(?P<owner>.+){CODE_SUFFIX}(-([2-9]|1[0-2]))?")
_UNFIT_IN_LABELS = r"[^-A-Za-z0-9_.]+"
Document = dict[str, Any]


class Gang(StrEnum):
    """Who starts all workers of a job together. With a Kueue queue nobody else has to."""

    NONE = "none"
    COSCHEDULING = "coscheduling"
    VOLCANO = "volcano"


SCHEDULERS = {Gang.COSCHEDULING: "scheduler-plugins-scheduler", Gang.VOLCANO: "volcano"}


class Order(StrEnum):
    """What the launcher can rely on when it starts."""

    # The sshd of every worker accepts connections.
    READY = "ready"
    # Nothing: the launcher waits for the workers itself.
    OPEN = "open"


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """What a cluster, and one attempt on it, add to a job. The engine fills it in; writers of documents read it.

    - `user`: user ID of the pods; None if the cluster assigns IDs to namespaces (OpenShift). Elsewhere it is set,
    because most images would run as root.
    - `object`: name of the first attempt's objects, if an earlier job of this name still exists.
    - `run`, `program`: number among the jobs of its name, and hash of the command (see the labels).
    - `scheduler`: name of the gang's scheduler, if it is not the usual one.
    - `priority_classes`: priority classes by our own words (`high`).
    - `launcher_cores`: CPU limit of a launcher that requests less.
    - `modules`: variables by the module that a script loads.
    - `code`: config map with the uploaded archive, or the first one of `code_parts`.
    - `profiler`: config map with the shim that counts MPI calls.
    - `python`: content of a `sitecustomize` for the ranks.
    """

    object: str = ""
    uid: str = ""
    run: int = 1
    program: str = ""
    attempt: int = 1
    family: Family = Family.OPENMPI
    gang: Gang = Gang.NONE
    scheduler: str = ""
    suspend: bool = False
    user: int | None = None
    service_account: str = ""
    code: str = ""
    code_parts: int = 1
    profiler: str = ""
    python: str = ""
    launcher_image: str = ""
    service_image: str = ""
    launcher_cores: float = LAUNCHER_CORES
    priority_classes: Mapping[str, str] = {}
    modules: Mapping[str, Mapping[str, str]] = {}
    workload_priority: str = ""
    rack_key: str = RACK_LABELS[0]
    topology_aware: bool = False
    nfs_driver: str = ""
    ipc_lock: bool = False
    prove_gpus: bool = True
    ttl_seconds: int | None = None


def name(job: MPIJob, shape: Shape) -> str:
    """Return the name of the engine's objects: the job's own; `name-a2` for the second attempt."""
    first = shape.object or job.name
    return first if shape.attempt == 1 else f"{first}-a{shape.attempt}"


def refuse_long_names(job: MPIJob, shape: Shape, *endings: str) -> None:
    """Raise InvalidJob if a pod's name would be too long, in the last possible attempt at the latest."""
    last = max(shape.attempt, 1 + job.retry.limit)
    longest = name(job, msgspec.structs.replace(shape, attempt=last)) + max(endings, key=len)
    if (excess := len(longest) - LONGEST_NAME) > 0:
        message = (
            f"a pod would be called {longest}, {len(longest)} characters; at most {LONGEST_NAME} are allowed"
        )
        earlier = ", or delete the earlier job of this name" if shape.object else ""
        raise refuse("name", message, f"use a name of at most {len(job.name) - excess} characters{earlier}")


def secret_name(job: MPIJob, shape: Shape) -> str:
    """Return the name of the Secret with values from the submitter's machine."""
    return (shape.object or job.name) + SECRETS_SUFFIX


def code_name(job: MPIJob, shape: Shape) -> str:
    """Return the name of the config map with the uploaded files, or of its first part; all attempts share it."""
    return (shape.object or job.name) + CODE_SUFFIX


def code_parts(name: str, count: int) -> tuple[str, ...]:
    """Return the names of the config maps with the parts of an archive; the first is `name`."""
    return (name, *(f"{name}-{number}" for number in range(2, count + 1)))


def owner_of_code(name: str) -> str:
    """Return the name of the first object of a code config map's job, "" for other config maps."""
    found = _CODE_NAME.fullmatch(name)
    return found["owner"] if found else ""


def profiler_name(job: MPIJob, shape: Shape) -> str:
    """Return the name of the config map with the shim that counts MPI calls; all attempts share it."""
    return (shape.object or job.name) + PROFILER_SUFFIX


def user_labels(job: MPIJob) -> dict[str, str]:
    """Return the user's labels, and the cost labels, which get our prefix unless they have one."""
    cost = {(key if "/" in key else COST_PREFIX + key): value for key, value in job.cost.items()}
    return dict(job.labels) | cost


def labels(job: MPIJob, shape: Shape) -> dict[str, str]:
    """Return the labels of all objects of a job: the user's, then ours."""
    ours = {
        MANAGED_LABEL: MANAGED_BY,
        JOB_LABEL: job.name,
        UID_LABEL: shape.uid,
        ATTEMPT_LABEL: str(shape.attempt),
        OWNER_LABEL: as_label(job.owner),
        RUN_LABEL: str(shape.run) if shape.run > 1 else "",
    }
    return user_labels(job) | {key: value for key, value in ours.items() if value}


def as_label(text: str) -> str:
    """Return a text as a valid label value: `jane@example.org` becomes `jane-example.org`."""
    return re.sub(_UNFIT_IN_LABELS, "-", text)[:63].strip("-_.")


def escape_variables(words: tuple[str, ...] | list[str]) -> list[str]:
    """Escape words of a container's command: Kubernetes replaces `$(NAME)` and `$$` in them."""
    return [word.replace("$", "$$") for word in words]


def unescape_variables(word: str) -> str:
    """Undo `escape_variables`."""
    return word.replace("$$", "$")


def refuse(field: str, message: str, hint: str) -> InvalidJob:
    """Return the error for a job that no document for a cluster can express."""
    return InvalidJob.of((Finding(code="NOT_ON_A_CLUSTER", field=field, message=message, hint=hint),))


# Trainer's MPI plugin ignores containers with any other name.
CONTAINER = "node"
OUR_LABELS = (f"{DOMAIN}/", "kueue.x-k8s.io/", "trainer.kubeflow.org/", MANAGED_LABEL)


def container_of(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the main container: `node`, else the first."""
    containers = pod.get("containers") or [{}]
    return next((container for container in containers if container.get("name") == CONTAINER), containers[0])


def is_ours(container: Mapping[str, Any]) -> bool:
    """Whether a container runs one of our own scripts."""
    words = list(container.get("command") or [])
    return len(words) == 4 and str(words[3]).startswith("mpijob-")


def from_labels(labels: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of a job that labels express."""
    others = {key: value for key, value in labels.items() if not key.startswith((*OUR_LABELS, COST_PREFIX))}
    cost = {
        key.removeprefix(COST_PREFIX): value for key, value in labels.items() if key.startswith(COST_PREFIX)
    }
    owner = labels.get(OWNER_LABEL, "")
    return {"labels": others, "cost": cost, "owner": owner, "queue": labels.get(QUEUE_LABEL, "")}
