"""The report on each field of an MPIJob and on the MPI Operator's defaults."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

from mpijob.formats.convert.kubernetes import amount_fields, flat_fields, known_fields
from mpijob.formats.convert.kubernetes.flat_fields import Leaf
from mpijob.formats.convert.report import Notes
from mpijob.formats.kubernetes.metadata.well_known import (
    CONTAINER,
    COST_PREFIX,
    LAUNCHER_CORES,
    OWNER_LABEL,
    QUEUE_LABEL,
    container_of,
    is_ours,
    unescape_variables,
)
from mpijob.formats.kubernetes.pod_reader import is_our_variable
from mpijob.model import Family, MPIJob, Secret

_REPLICA = re.compile(r"spec\.mpiReplicaSpecs\.(Launcher|Worker)\.(.+)")
_AMOUNT = re.compile(r"template\.spec\.container\.resources\.(limits|requests)\.(.+)")
_PASSED = ("apiVersion", "kind")
_ALWAYS = "every pod is created this way"
_ROLE_ONLY = ("nodeSelector", "tolerations", "affinity", "imagePullSecrets", "priorityClassName",
              "terminationGracePeriodSeconds")  # fmt: skip
_GONE = {
    "workingDir": (
        "each rank starts in the job's own directory",
        "start the command with: sh -c 'cd DIR && exec …'",
    ),
    "lifecycle": ("the cluster engine sets its own hooks", "move it to the command"),
    "topologySpreadConstraints": ("use the fields of placement", "set placement.topology"),
}
_OTHERS = {
    "securityContext": "pods run as an unprivileged user; if the program needs more, use --to mpijob",
    "containers": "a worker has one container; --to mpijob keeps the others",
    "initContainers": "move it to the image or the command, or use --to mpijob, which keeps it",
    "volumes": "use a claim, NFS, a ConfigMap or a Secret, or use --to mpijob, which keeps it",
    "volumeMounts": "mount the whole volume, or use --to mpijob, which keeps it",
    "annotations": "--to mpijob keeps it",
    "claims": "request the devices with resources.gpu or resources.others, or use --to mpijob, which keeps it",
    "resourceClaims": "request the devices with resources.gpu or resources.others, or use --to mpijob, which keeps it",
}


def pod_of(spec: Mapping[str, Any], role: str) -> Mapping[str, Any]:
    """Return the pod spec of a role, an empty one if there is none."""
    replica = (spec.get("mpiReplicaSpecs") or {}).get(role) or {}
    found: Mapping[str, Any] = (replica.get("template") or {}).get("spec") or {}
    return found


def _secret(variable: Any) -> Secret | None:
    match variable:
        case {"name": str(name), "valueFrom": {"secretKeyRef": {"name": str(holder), "key": str(key)}}}:
            return Secret(env=name, source=f"{holder}/{key}")
    return None


class FieldReporter:
    """Reports the outcome of each field."""

    def __init__(
        self,
        document: Mapping[str, Any],
        job: MPIJob,
        notes: Notes,
        beyond: frozenset[str],
        *,
        keep: bool,
        relabelled: bool = False,
    ) -> None:
        self.spec = document["spec"]
        launcher = (self.spec.get("mpiReplicaSpecs") or {}).get("Launcher") or {}
        launcher_pod = (launcher.get("template") or {}).get("spec") or {}
        self._ours = bool(launcher_pod.get("containers")) and is_ours(container_of(launcher_pod))
        self.job = job
        self.notes = notes
        self.beyond = beyond
        self.keep = keep
        self.relabelled = relabelled

    def tell(self, leaf: Leaf) -> None:
        path = leaf.path
        if path in _PASSED or path.startswith("status") or leaf.value in (None, {}, []):
            return
        if todo := known_fields.unknown("MPIJob", path):
            self._misspelt(leaf, todo)
        elif self.keep and path in self.beyond:
            self._foreign(leaf)
        elif path.startswith("metadata."):
            self._metadata(leaf)
        elif path.startswith("spec.runPolicy."):
            self._policy(leaf, path.removeprefix("spec.runPolicy."))
        elif match := _REPLICA.fullmatch(path):
            self._replica(leaf, match[1], match[2])
        else:
            self._spec(leaf)

    def _misspelt(self, leaf: Leaf, todo: str) -> None:
        if self.keep and leaf.path in self.beyond:
            self.notes.changed(leaf.path, leaf.shown, "", f"kept unchanged: {known_fields.IGNORED}", todo)
        else:
            self.notes.dropped(leaf.path, leaf.shown, known_fields.IGNORED, todo)

    def _metadata(self, leaf: Leaf) -> None:
        parts = {"metadata.name": "name", "metadata.namespace": "namespace"}
        if leaf.path in parts:
            self.notes.exact(leaf.path, leaf.shown, parts[leaf.path])
        elif leaf.path.startswith("metadata.labels."):
            self._label(leaf, leaf.path.removeprefix("metadata.labels."))
        elif leaf.path in self.beyond:
            self._foreign(leaf)
        else:
            note = "set by the API server and its controllers"
            self.notes.dropped(leaf.path, leaf.shown, note, "nothing; the new object gets its own")

    def _label(self, leaf: Leaf, key: str) -> None:
        if key == QUEUE_LABEL:
            self.notes.exact(leaf.path, leaf.shown, "queue")
        elif self.job.labels.get(key) == str(leaf.value):
            self.notes.exact(leaf.path, leaf.shown, f"labels.{key}")
        elif key in self.job.labels:
            note = f"the affinity of the workers requires another value, {self.job.labels[key]}"
            self.notes.dropped(leaf.path, leaf.shown, note, f"set labels.{key} to the right value")
        elif key.startswith(COST_PREFIX):
            self.notes.exact(leaf.path, leaf.shown, "cost")
        elif key == OWNER_LABEL:
            self.notes.exact(leaf.path, leaf.shown, "owner")
        else:
            todo = "set priority" if "priority" in key else "nothing; the engine sets its own"
            self.notes.dropped(leaf.path, leaf.shown, "labels of this kind are set by the engine", todo)

    def _spec(self, leaf: Leaf) -> None:
        match leaf.path:
            case "spec.slotsPerWorker":
                self.notes.exact(leaf.path, leaf.shown, "slots")
            case "spec.mpiImplementation" if self.keep or self.job.mpi is not Family.AUTO:
                self.notes.exact(leaf.path, leaf.shown, "mpi")
            case "spec.mpiImplementation":
                note = "mpijob uses the MPI library of the program in the image"
                self.notes.changed(leaf.path, leaf.shown, "mpi: auto", note)
            case "spec.runLauncherAsWorker":
                if not leaf.value:
                    self.notes.exact(leaf.path, leaf.shown, "", "the launcher never runs ranks")
            case "spec.sshAuthMountPath":
                note = "mpijob mounts its own SSH directory, and sshd needs no root"
                self.notes.changed(leaf.path, leaf.shown, "", note)
            case "spec.launcherCreationPolicy":
                if leaf.value == "WaitForWorkersReady":
                    self.notes.exact(
                        leaf.path,
                        leaf.shown,
                        "",
                        "the launcher always starts after every worker can be reached",
                    )
                else:
                    note = "the launcher starts after every worker can be reached"
                    self.notes.changed(leaf.path, leaf.shown, "", note)
            case _:
                self._foreign(leaf)

    def _policy(self, leaf: Leaf, name: str) -> None:
        match name:
            case "cleanPodPolicy":
                self._clean(leaf.shown)
            case "activeDeadlineSeconds":
                note = "counted from the creation of the job; the MPI Operator counts from the start of the launcher"
                self.notes.changed(leaf.path, leaf.shown, "deadline_seconds", note)
            case "backoffLimit":
                self._retries(leaf)
            case "suspend":
                todo = "run mpijob suspend NAME after creating the job, or use a queue"
                self.notes.dropped(
                    leaf.path, leaf.shown, "a job starts when it is created", todo
                ) if leaf.value else (self.notes.exact(leaf.path, leaf.shown))
            case "ttlSecondsAfterFinished" if not self.keep:
                self.notes.dropped(
                    leaf.path, leaf.shown, "the time to live is not converted", "set ttl_seconds"
                )
            case "schedulingPolicy.minAvailable" if self.job.elastic is not None:
                note = "the gang has the minimum number of workers, which mpijob reads from the options of the command"
                self.notes.changed(leaf.path, leaf.shown, "elastic.min_workers", note)
            case (
                "schedulingPolicy.minAvailable"
                | "schedulingPolicy.scheduleTimeoutSeconds"
                | "schedulingPolicy.minResources"
            ):
                note = "all workers start together or not at all, independent of this field"
                self.notes.changed(leaf.path, leaf.shown, "gang_timeout_seconds", note)
            case "schedulingPolicy.queue":
                self._either(leaf, "queue", self.job.queue)
            case "schedulingPolicy.priorityClass":
                self._either(leaf, "priority", self.job.priority)
            case _:
                self._foreign(leaf)

    def _either(self, leaf: Leaf, ours: str, taken: object) -> None:
        if leaf.value == taken:
            self.notes.exact(leaf.path, leaf.shown, ours)
        else:
            self.notes.dropped(
                leaf.path, leaf.shown, f"a different value is used: {taken}", f"set {ours} to the right value"
            )

    def _env(self, leaf: Leaf) -> None:
        """Report a variable; launcher and workers share variables here."""
        name = str(leaf.value.get("name")) if isinstance(leaf.value, Mapping) else ""
        if (
            name in self.job.env
            and unescape_variables(str(leaf.value.get("value", ""))) == self.job.env[name]
        ):
            self.notes.exact(leaf.path, leaf.shown, f"env.{name}", "set for every rank")
        elif _secret(leaf.value) in self.job.secrets:
            self.notes.exact(leaf.path, leaf.shown, "secrets", "set for every rank")
        elif self._ours and is_our_variable(leaf.value, ours=True):
            self.notes.exact(leaf.path, leaf.shown, "", "every pod is created this way")
        else:
            note = "launcher and workers share variables in mpijob, and a different value is used"
            self.notes.dropped(leaf.path, leaf.shown, note, f"set env.{name} to the right value")

    def _clean(self, value: str) -> None:
        if value == "Running":
            self.notes.exact(
                "spec.runPolicy.cleanPodPolicy", value, "", "workers stop with the job, and logs are kept"
            )
            return
        there = (
            "keeps workers running when the job ends"
            if value == "None"
            else "deletes all pods when the job ends"
        )
        note = f"the MPI Operator {there}; in mpijob workers stop with the job, and logs are kept"
        self.notes.changed(
            "spec.runPolicy.cleanPodPolicy",
            value,
            "",
            note,
            "nothing, or set keep_on_failure_seconds to keep the pods of a failed job",
        )

    def _retries(self, leaf: Leaf) -> None:
        if leaf.value == 0:
            self.notes.exact(leaf.path, leaf.shown, "", "a failed job is not retried")
            return
        note = (
            "the MPI Operator restarts only the launcher, on the same workers; mpijob retries the whole job"
        )
        self.notes.changed(leaf.path, leaf.shown, f"retry.limit: {self.job.retry.limit}", note)

    def _replica(self, leaf: Leaf, role: str, rest: str) -> None:
        name = leaf.name
        if rest == "replicas":
            self._count(leaf, role)
        elif rest == "restartPolicy":
            self._restart(leaf, role)
        elif match := _AMOUNT.fullmatch(rest):
            self._amount(leaf, role, match[1], match[2])
        elif rest.startswith("template.metadata.labels."):
            self._pod_label(leaf, rest.removeprefix("template.metadata.labels."))
        elif leaf.path in self.beyond:
            self._foreign(leaf)
        elif rest == "template.spec.container.name":
            self._container_name(leaf)
        elif name in _GONE:
            self.notes.dropped(leaf.path, leaf.shown, *_GONE[name])
        elif rest == "template.spec.restartPolicy":
            self.notes.changed(leaf.path, leaf.shown, "", "ignored by the MPI Operator and by mpijob")
        elif name == "env":
            self._env(leaf)
        elif rest in ("template.spec.container.command", "template.spec.container.args"):
            self._command(leaf, role)
        elif role == "Launcher":
            self._launcher(leaf, rest, name)
        elif name == "affinity" and leaf.value != self.job.placement.affinity and self.relabelled:
            note = "labels that the MPI Operator sets are replaced with those that mpijob sets"
            self.notes.changed(leaf.path, leaf.shown, "placement.affinity", note)
        else:
            note = "" if name in _OURS else _ALWAYS
            self.notes.exact(leaf.path, leaf.shown, _OURS.get(name, ""), note)

    def _container_name(self, leaf: Leaf) -> None:
        if leaf.value == CONTAINER:
            self.notes.exact(leaf.path, leaf.shown, "", _ALWAYS)
        else:
            note = f"mpijob names the main container {CONTAINER}"
            self.notes.changed(leaf.path, leaf.shown, "", note)

    def _count(self, leaf: Leaf, role: str) -> None:
        if role == "Worker" and leaf.value != self.job.workers and not self.spec.get("runLauncherAsWorker"):
            self.notes.changed(leaf.path, leaf.shown, "workers", "a job has at least one worker")
        elif role == "Launcher" and leaf.value != 1:
            self.notes.changed(leaf.path, leaf.shown, "", "a job has one launcher")
        else:
            self.notes.exact(leaf.path, leaf.shown, "workers" if role == "Worker" else "")

    def _pod_label(self, leaf: Leaf, key: str) -> None:
        if not self.keep and self.job.labels.get(key) == str(leaf.value):
            self.notes.changed(leaf.path, leaf.shown, f"labels.{key}", "set for every pod of the job")
        else:
            self._foreign(leaf)

    def _restart(self, leaf: Leaf, role: str) -> None:
        if leaf.value == "Never":
            self.notes.exact(leaf.path, leaf.shown)
        elif role == "Launcher":
            self._retried(leaf.path, leaf.shown)
        else:
            note = "the MPI Operator restarts a worker alone; in mpijob a lost worker ends the attempt"
            self.notes.changed(
                leaf.path, leaf.shown, "", note, "nothing, or set retry.limit or requeue_on_lost_worker"
            )

    def _retried(self, path: str, value: str) -> None:
        if self.job.retry.limit:
            limit = "once" if self.job.retry.limit == 1 else f"{self.job.retry.limit} times"
            note = f"the MPI Operator restarts the launcher in place; mpijob retries the whole job, at most {limit}"
        else:
            note = "the MPI Operator restarts a failed launcher without a report; in mpijob the job fails"
        self.notes.changed(
            path,
            value,
            "retry",
            note,
            "" if self.job.retry.limit else "nothing, or set retry.limit to retry the job",
        )

    def _command(self, leaf: Leaf, role: str) -> None:
        if role == "Worker":
            note = "workers run sshd as an ordinary user; the command of the image is not used"
            self.notes.changed(leaf.path, leaf.shown, "", note)
        else:
            self.notes.exact(leaf.path, shlex.join(str(word) for word in leaf.value), "command")

    def _launcher(self, leaf: Leaf, rest: str, name: str) -> None:
        if name == "image":
            self._launcher_image(leaf)
        elif name == "imagePullPolicy" and leaf.value == self.job.pull_policy:
            self.notes.exact(leaf.path, leaf.shown, "", "the same for launcher and workers")
        elif name == "imagePullPolicy":
            note = "launcher and workers have the same pull policy, that of the workers"
            self.notes.dropped(leaf.path, leaf.shown, note, "set pull_policy to the right value")
        elif name in ("volumes", "volumeMounts") or name in _ROLE_ONLY:
            self._only_of_launcher(leaf, rest)
        else:
            note = "" if name in _OURS else _ALWAYS
            self.notes.exact(leaf.path, leaf.shown, _OURS.get(name, ""), note)

    def _launcher_image(self, leaf: Leaf) -> None:
        if leaf.value == self.job.image:
            self.notes.exact(leaf.path, leaf.shown, "image")
        elif not self.keep:
            note = "launcher and workers use the same image, that of the workers"
            self.notes.dropped(leaf.path, leaf.shown, note, "--to mpijob keeps it")

    def _only_of_launcher(self, leaf: Leaf, rest: str) -> None:
        worker = {leaf.path: leaf.value for leaf in flat_fields.leaves(pod_of(self.spec, "Worker"))}
        path = rest.removeprefix("template.spec.")
        if not worker or (path in worker and worker[path] == leaf.value):
            self.notes.exact(leaf.path, leaf.shown, _OURS.get(leaf.name, ""), "the same as for the workers")
        elif leaf.name in ("volumes", "volumeMounts") and not any(
            ".volumeMounts" in path or "volumes" in path for path in worker
        ):
            self.notes.changed(leaf.path, leaf.shown, "volumes", "mounted in every worker too")
        else:
            note = "the launcher gets the settings of the workers"
            self.notes.dropped(leaf.path, leaf.shown, note, "set it for the workers, if it is needed")

    def _amount(self, leaf: Leaf, role: str, form: str, key: str) -> None:
        """Report a request or a limit of a role's main container."""
        part = self.job.resources if role == "Worker" else self.job.launcher
        resources = container_of(pod_of(self.spec, role)).get("resources") or {}
        if self.keep:
            self.notes.exact(leaf.path, leaf.shown, "", "kept unchanged")
        elif form == "limits" and role == "Launcher" and key == "cpu" and part.cores < LAUNCHER_CORES:
            note = f"on a cluster, the launcher's CPU limit is {LAUNCHER_CORES:g} cores, to start many ranks quickly"
            self.notes.changed(leaf.path, leaf.shown, "launcher.cpu", note)
        else:
            ours = "resources" if role == "Worker" else "launcher"
            amount_fields.report_amount(
                self.notes, leaf, part, ours, form, key, limited=key in (resources.get("limits") or {})
            )

    def _foreign(self, leaf: Leaf) -> None:
        if self.keep:
            self.notes.exact(leaf.path, leaf.shown, "", "kept unchanged")
            return
        todo = next((text for word, text in _OTHERS.items() if word in leaf.path), "--to mpijob keeps it")
        self.notes.dropped(leaf.path, leaf.shown, "a job has no equivalent", todo)

    def defaults(self) -> None:
        """Report defaults of the operator that differ from ours."""
        policy = self.spec.get("runPolicy") or {}
        if "cleanPodPolicy" not in policy:
            self._clean("None")
        launcher = (self.spec.get("mpiReplicaSpecs") or {}).get("Launcher") or {}
        if "restartPolicy" not in launcher and policy.get("backoffLimit") != 0:
            self._retried("spec.mpiReplicaSpecs.Launcher.restartPolicy", "(not set: OnFailure)")
        if "launcherCreationPolicy" not in self.spec:
            self._spec(Leaf("spec.launcherCreationPolicy", "(not set: AtStartup)"))


_OURS = {
    "image": "image", "env": "env", "volumes": "volumes", "volumeMounts": "volumes", "nodeSelector": "placement",
    "tolerations": "placement.tolerations", "affinity": "placement.affinity", "imagePullSecrets": "pull_secrets",
    "priorityClassName": "priority", "terminationGracePeriodSeconds": "grace_seconds",
    "imagePullPolicy": "pull_policy",
}  # fmt: skip
