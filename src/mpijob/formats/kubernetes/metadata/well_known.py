"""The words that both cluster dialects share: labels, places in a pod, and what a plan adds to a job.

A `Shape` holds everything about one cluster that is no part of the job itself: which user ID pods get,
how a gang is kept together, which class a priority has there. The engine finds it out; the dialects
(`trainjob`, `mpijob`) and `pod_template` only write it down.
"""

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
# Of which group of workers a pod is.
GROUP_LABEL = f"{DOMAIN}/group"
# The number of the first worker of the pod's group.
FIRST_LABEL = f"{DOMAIN}/first-worker"
# How many ranks a worker of the group has.
SLOTS_LABEL = f"{DOMAIN}/slots"
# The groups of a job's workers, for whoever cannot read its runtime.
GROUPS_ANNOTATION = f"{DOMAIN}/groups"
# Which of the jobs of its name it is, from the second on.
RUN_LABEL = f"{DOMAIN}/run"
# The same for jobs that run the same command, whatever its numbers.
PROGRAM_LABEL = f"{DOMAIN}/program"
OWNER_LABEL = f"{DOMAIN}/owner"
COST_PREFIX = f"cost.{DOMAIN}/"
# Of which job a pod reads the volume claims.
READER_LABEL = f"{DOMAIN}/reader"
MANAGED_LABEL = "app.kubernetes.io/managed-by"
MANAGED_BY = "mpijob"
# When the user ended the job.
CANCELLED_ANNOTATION = f"{DOMAIN}/cancelled"
# When the user put it to rest.
SUSPENDED_ANNOTATION = f"{DOMAIN}/suspended"
# When and why it was ended because it could not start.
GIVEN_UP_ANNOTATION = f"{DOMAIN}/given-up"
# On which of its nodes nobody answers, by the controller.
SILENT_NODES_ANNOTATION = f"{DOMAIN}/silent-nodes"
# How far a pre-empted job had come, by the controller.
REACHED_ANNOTATION = f"{DOMAIN}/reached"
# Its model and version in the registry, by the controller.
MODEL_ANNOTATION = f"{DOMAIN}/model"
ESTIMATE_ANNOTATION = (
    # When the job would start, as it was estimated when it was submitted.
    f"{DOMAIN}/estimated"
)
# The jobs that it waits for, and its queue meanwhile, as JSON.
AFTER_ANNOTATION = f"{DOMAIN}/after"
# What was done to the job, in order, as JSON.
ACTS_ANNOTATION = f"{DOMAIN}/acts"
# What the job says and the other fields of the document cannot.
REST_ANNOTATION = f"{DOMAIN}/rest"
# By which label an engine itself says to which of its job objects a pod belongs; users may not write it onto pods.
ENGINE_NAMES = {"TrainJob": "jobset.sigs.k8s.io/jobset-name", "MPIJob": "training.kubeflow.org/job-name"}
OWNER_GROUPS = (
    # The owner's groups when the job was created, a line each, by admission.
    f"{DOMAIN}/owner-groups"
)
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"
TOPOLOGY_ANNOTATION = "kueue.x-k8s.io/podset-preferred-topology"
ZONE_LABEL = "topology.kubernetes.io/zone"
# The other is that of Kueue's guide.
RACK_LABELS = (
    "topology.kubernetes.io/rack",
    "cloud.provider.com/topology-rack",
)
VOLCANO_QUEUE_ANNOTATION = "scheduling.volcano.sh/queue-name"

HOME = "/mpijob/home"
SSH = "/mpijob/ssh"
CODE = "/mpijob/code"
PROFILER = "/mpijob/profiler"
WORK = "/mpijob/home/work"
HOSTFILE = "/etc/mpi/hostfile"
GROUPS_HOSTFILE = (
    # Of a job with groups, written by its launcher: the engine's has one kind of worker.
    f"{HOME}/hostfile"
)
# Written anew by the MPI Operator when workers come and go.
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
# For starting a large world; without any CPU limit the Kubeflow SDK lists no job.
LAUNCHER_CORES = 4.0
# An object's annotations hold 256 KiB in all.
LARGEST_REST = 200_000

# One user ID for all jobs, so that what one writes on a claim the next can read.
PLAIN_USER = 1000660000

_CODE_NAME = re.compile(rf"(?P<owner>.+){CODE_SUFFIX}(-([2-9]|1[0-2]))?")
_UNFIT_IN_LABELS = r"[^-A-Za-z0-9_.]+"
Document = dict[str, Any]


class Gang(StrEnum):
    """Who makes sure that all workers start together, if anybody; Kueue does when the job has a queue."""

    NONE = "none"
    COSCHEDULING = "coscheduling"
    VOLCANO = "volcano"


SCHEDULERS = {Gang.COSCHEDULING: "scheduler-plugins-scheduler", Gang.VOLCANO: "volcano"}


class Order(StrEnum):
    """What the launcher may count on when it starts."""

    # Every worker's sshd has answered the kubelet.
    READY = "ready"
    # Nothing: it must wait for the workers itself.
    OPEN = "open"


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """What one cluster, and one attempt there, add to a job.

    `user` is None where the cluster gives each namespace user IDs of its own (OpenShift); elsewhere it
    is set, because most images would run as root. `object` is the name of the first attempt's objects
    where it is not the job's own (an earlier job of that name is still there), `run` counts the jobs of the name,
    `program` is the same for those that run the same command.
    `scheduler` is named where
    the gang's own is called otherwise. `priority_classes` says which class a word such as `high` has.
    `launcher_cores` is the launcher's CPU limit where it asks for less itself.
    `modules` are the variables that `module load NAME` of a script sets.
    `code` names the config map with the archive of what goes along (key `archive`), or the first of `code_parts`
    with a part of it each, `profiler` that with the
    shim that counts MPI calls. `python` is the text of a `sitecustomize` for the ranks.
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
    """Return the name of the engine's objects: the job's own, and from the second attempt on `name-a2`."""
    first = shape.object or job.name
    return first if shape.attempt == 1 else f"{first}-a{shape.attempt}"


def refuse_long_names(job: MPIJob, shape: Shape, *endings: str) -> None:
    """Refuse a job of whose pods one would have too long a name, in its last attempt if not before."""
    last = max(shape.attempt, 1 + job.retry.limit)
    longest = name(job, msgspec.structs.replace(shape, attempt=last)) + max(endings, key=len)
    if (excess := len(longest) - LONGEST_NAME) > 0:
        message = (
            f"a pod would be called {longest}, {len(longest)} characters; at most {LONGEST_NAME} are allowed"
        )
        earlier = ", or delete the earlier job of this name" if shape.object else ""
        raise refuse("name", message, f"use a name of at most {len(job.name) - excess} characters{earlier}")


def secret_name(job: MPIJob, shape: Shape) -> str:
    """Return the Secret in which the engine keeps secrets that come from the user's own machine."""
    return (shape.object or job.name) + SECRETS_SUFFIX


def code_name(job: MPIJob, shape: Shape) -> str:
    """Return the config map in which the engine keeps what goes along, or its first part; all attempts share it."""
    return (shape.object or job.name) + CODE_SUFFIX


def code_parts(name: str, count: int) -> tuple[str, ...]:
    """Return the config maps of an archive that is cut into parts, the first of which has the name."""
    return (name, *(f"{name}-{number}" for number in range(2, count + 1)))


def owner_of_code(name: str) -> str:
    """Return the first object of the job whose code a config map holds, by its name; "" where it holds none."""
    found = _CODE_NAME.fullmatch(name)
    return found["owner"] if found else ""


def profiler_name(job: MPIJob, shape: Shape) -> str:
    """Return the config map with the shim that counts MPI calls; all attempts share it."""
    return (shape.object or job.name) + PROFILER_SUFFIX


def told_labels(job: MPIJob) -> dict[str, str]:
    """Return the labels that a job itself tells; those of its cost have our prefix, unless they have one."""
    cost = {(key if "/" in key else COST_PREFIX + key): value for key, value in job.cost.items()}
    return dict(job.labels) | cost


def labels(job: MPIJob, shape: Shape) -> dict[str, str]:
    """Return the labels of everything that belongs to the job: the user's own, then ours."""
    ours = {
        MANAGED_LABEL: MANAGED_BY,
        JOB_LABEL: job.name,
        UID_LABEL: shape.uid,
        ATTEMPT_LABEL: str(shape.attempt),
        OWNER_LABEL: as_label(job.owner),
        RUN_LABEL: str(shape.run) if shape.run > 1 else "",
    }
    return told_labels(job) | {key: value for key, value in ours.items() if value}


def as_label(text: str) -> str:
    """Return a text as a label may hold it: `jane@example.org` becomes `jane-example.org`."""
    return re.sub(_UNFIT_IN_LABELS, "-", text)[:63].strip("-_.")


def exact(words: tuple[str, ...] | list[str]) -> list[str]:
    """Return words that Kubernetes hands on byte by byte: it would read `$(NAME)` and `$$` otherwise."""
    return [word.replace("$", "$$") for word in words]


def plain(word: str) -> str:
    """Return a word as Kubernetes hands it on when it names no variable; the inverse of `exact`."""
    return word.replace("$$", "$")


def refuse(field: str, message: str, hint: str) -> InvalidJob:
    """Return the error for a job that no cluster document can express."""
    return InvalidJob.of((Finding(code="NOT_ON_A_CLUSTER", field=field, message=message, hint=hint),))


# Trainer's MPI plugin passes over containers of any other name.
CONTAINER = "node"
OUR_LABELS = (f"{DOMAIN}/", "kueue.x-k8s.io/", "trainer.kubeflow.org/", MANAGED_LABEL)


def container_of(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the container that does the work: the one called `node`, else the first."""
    containers = pod.get("containers") or [{}]
    return next((container for container in containers if container.get("name") == CONTAINER), containers[0])


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
    owner = labels.get(OWNER_LABEL, "")
    return {"labels": mine, "cost": cost, "owner": owner, "queue": labels.get(QUEUE_LABEL, "")}
