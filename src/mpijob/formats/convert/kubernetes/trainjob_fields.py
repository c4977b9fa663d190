"""The report on each field of a TrainJob and of its runtime."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

from mpijob.formats.convert.kubernetes import amount_fields, known_fields
from mpijob.formats.convert.kubernetes.flat_fields import Leaf
from mpijob.formats.convert.kubernetes.trainjob_nodes import STEP_LABEL
from mpijob.formats.convert.report import Notes
from mpijob.formats.kubernetes import trainjob
from mpijob.formats.kubernetes.metadata.well_known import (
    CONTAINER,
    QUEUE_LABEL,
    container_of,
    unescape_variables,
)
from mpijob.model import MPIJob

_PASSED = ("apiVersion", "kind")
_PER_NODE = re.compile(r"spec\.trainer\.resourcesPerNode\.(limits|requests)\.(.+)")
_REPLICATED = re.compile(r"spec\.template\.spec\.replicatedJobs\[([^]]*)\]\.(.+)")
_IN_POD = "template.spec.template.spec."
_AMOUNT = re.compile(r"container\.resources\.(limits|requests)\.(.+)")
_NO_WORD = "a job has no equivalent"
_STARTS = {
    "torch": "every worker runs the command as one rank, with the PET_ variables of torchrun, as in Trainer",
    "jax": "every worker runs the command as one rank, with the JAX_ variables, as in Trainer",
    "xgboost": "every worker runs the command as one rank, with the DMLC_ variables, as in Trainer",
    "flux": "MPI starts the command as every rank; Trainer uses Flux",
}


class FieldReporter:
    """Reports the outcome of each field."""

    def __init__(
        self,
        job: MPIJob,
        notes: Notes,
        documents: tuple[Mapping[str, Any], ...],
        beyond: Mapping[str, frozenset[str]],
        *,
        framework: str,
        step: str,
        keep: bool,
    ) -> None:
        self.job = job
        self.notes = notes
        self.beyond = beyond
        self.framework = framework
        self.step = step
        self.keep = keep
        self.trainer = documents[0]["spec"].get("trainer") or {}
        self.pods = {
            name: one.get("spec") or {}
            for name, one in trainjob.pod_templates(documents[1] if len(documents) > 1 else None).items()
        }

    def tell(self, kind: str, leaf: Leaf, prefix: str) -> None:
        """Report one field; `prefix` precedes the fields of a runtime."""
        path = leaf.path
        if path in _PASSED or path.startswith("status") or leaf.value in (None, []):
            return
        shown = Leaf(f"{prefix}{path}", leaf.value)
        beyond = path in self.beyond.get(trainjob.JOB if not prefix else trainjob.RUNTIME, ())
        if todo := known_fields.unknown(kind, path):
            self._misspelt(shown, todo, beyond)
        elif path.startswith("spec.mlPolicy."):
            self._policy(shown, path.removeprefix("spec.mlPolicy."))
        elif prefix and (match := _REPLICATED.fullmatch(path)):
            self._replicated(shown, match[1], match[2], beyond)
        elif prefix and path.startswith("metadata."):
            self._runtime_metadata(shown, path, beyond)
        elif path.startswith("metadata."):
            self._metadata(shown, beyond)
        elif not prefix:
            self._job_field(shown, beyond)
        elif path.startswith("spec.podGroupPolicy") and not self.keep:
            note = "all workers always start together or not at all"
            self.notes.changed(shown.path, shown.shown, "gang_timeout_seconds", note)
        else:
            self._same_or_beyond(shown, beyond)

    def _misspelt(self, leaf: Leaf, todo: str, beyond: bool) -> None:
        if self.keep and beyond:
            self.notes.changed(leaf.path, leaf.shown, "", f"kept unchanged: {known_fields.IGNORED}", todo)
        else:
            self.notes.dropped(leaf.path, leaf.shown, known_fields.IGNORED, todo)

    def _same_or_beyond(self, leaf: Leaf, beyond: bool) -> None:
        if not beyond:
            self.notes.exact(leaf.path, leaf.shown, "", "the generated runtime has the same value")
        elif self.keep:
            self.notes.exact(leaf.path, leaf.shown, "", "kept unchanged")
        else:
            self.notes.dropped(leaf.path, leaf.shown, _NO_WORD, "--to trainjob keeps it")

    def _gone(self, leaf: Leaf, note: str, todo: str) -> None:
        self.notes.dropped(leaf.path, leaf.shown, note, todo)

    def _runtime_metadata(self, leaf: Leaf, path: str, beyond: bool) -> None:
        if beyond and path.startswith("metadata.annotations"):
            self._same_or_beyond(leaf, beyond)
        else:
            self._gone(leaf, "mpijob creates a runtime for the job, with its own name and labels", "nothing")

    def _metadata(self, leaf: Leaf, beyond: bool) -> None:
        key = leaf.path.removeprefix("metadata.labels.")
        if leaf.path in ("metadata.name", "metadata.namespace"):
            self.notes.exact(leaf.path, leaf.shown, leaf.path.removeprefix("metadata."))
        elif key == QUEUE_LABEL:
            self.notes.exact(leaf.path, leaf.shown, "queue")
        elif self.job.labels.get(key) == str(leaf.value):
            self.notes.exact(leaf.path, leaf.shown, f"labels.{key}")
        elif leaf.path != f"metadata.labels.{key}" and beyond:
            self._same_or_beyond(leaf, beyond)
        elif leaf.path.startswith("metadata.labels."):
            self._gone(leaf, "labels of this kind are set by the engine", "nothing; the engine sets its own")
        else:
            note = "set by the API server and its controllers"
            self._gone(leaf, note, "nothing; the new object gets its own")

    def _job_field(self, leaf: Leaf, beyond: bool) -> None:
        path = leaf.path
        if match := _PER_NODE.fullmatch(path):
            limits = (self.trainer.get("resourcesPerNode") or {}).get("limits") or {}
            amount_fields.report_amount(
                self.notes,
                leaf,
                self.job.resources,
                "resources",
                match[1],
                match[2],
                limited=match[2] in limits,
            )
        elif path.startswith("spec.trainer.resourcesPerNode"):
            todo = "request the devices with resources.gpu or resources.others"
            self._gone(leaf, "a job requests devices by number and has no claims", todo)
        elif path.startswith("spec.runtimeRef"):
            note = "mpijob creates a runtime for the job, so that its image is used in every role"
            self.notes.changed(path, leaf.shown, "", note)
        elif path.startswith("spec.trainer."):
            self._trainer(leaf)
        elif path == "spec.activeDeadlineSeconds":
            self.notes.exact(path, leaf.shown, "deadline_seconds")
        elif path == "spec.suspend" and not leaf.value:
            self.notes.exact(path, leaf.shown, "", "a job starts when it is created")
        elif path == "spec.suspend" and not self.keep:
            self._gone(
                leaf,
                "a job starts when it is created",
                "run mpijob suspend NAME after creating the job, or use a queue",
            )
        elif beyond:
            self._same_or_beyond(leaf, beyond)
        else:
            self._gone(leaf, _NO_WORD, "check whether the job needs it")

    def _trainer(self, leaf: Leaf) -> None:
        match leaf.name:
            case "env":
                self._env(leaf)
            case "command" | "args":
                self.notes.exact(leaf.path, shlex.join(str(word) for word in leaf.value), "command")
            case "image":
                self._either(leaf, "image", self.job.image, "the image of the runtime")
            case "numNodes":
                self._either(leaf, "workers", self.job.workers, "the workers")
            case "numProcPerNode":
                self._per_node(leaf)
            case _:
                self._gone(leaf, _NO_WORD, "check whether the job needs it")

    def _per_node(self, leaf: Leaf) -> None:
        if self.framework == "torch":
            self._either(leaf, "env", self.job.env.get("PET_NPROC_PER_NODE"), "torchrun")
        elif self.framework in ("mpi", "flux", ""):
            self._either(leaf, "slots", self.job.slots, "the launch line")
        else:
            self._gone(leaf, "Trainer ignores it with this runtime", "nothing; you can remove it")

    def _either(self, leaf: Leaf, ours: str, taken: object, who: str) -> None:
        if str(leaf.value) == str(taken):
            self.notes.exact(leaf.path, leaf.shown, ours)
        else:
            self.notes.changed(leaf.path, leaf.shown, ours, f"{who} sets a different value: {taken}")

    def _env(self, leaf: Leaf) -> None:
        found = leaf.value if isinstance(leaf.value, Mapping) else {}
        name = str(found.get("name"))
        key = (found.get("valueFrom") or {}).get("secretKeyRef") or {}
        source = f"{key.get('name')}/{key.get('key')}"
        if "valueFrom" not in found and self.job.env.get(name) == unescape_variables(
            str(found.get("value", ""))
        ):
            self.notes.exact(leaf.path, leaf.shown, f"env.{name}", "set for every rank")
        elif set(key) == {"name", "key"} and any(
            (secret.env, secret.source) == (name, source) for secret in self.job.secrets
        ):
            self.notes.exact(leaf.path, leaf.shown, "secrets", "set for every rank")
        elif any(
            variable is not leaf.value and variable.get("name") == name
            for variable in self.trainer.get("env") or ()
        ):
            self._gone(
                leaf, "the value of the TrainJob replaces it", "nothing; Trainer does not use it either"
            )
        elif "valueFrom" in found:
            self._gone(leaf, _NO_WORD, f"set env.{name}, or read it in the program")
        else:
            self._gone(leaf, "a different value is used", f"set env.{name} to the right value")

    def _policy(self, leaf: Leaf, name: str) -> None:
        match name:
            case "numNodes" if "numNodes" in self.trainer:
                self._gone(
                    leaf, "the TrainJob sets the number of nodes", "nothing; Trainer does not use it either"
                )
            case "numNodes":
                self._either(leaf, "workers", self.job.workers, "the workers")
            case "mpi.mpiImplementation":
                note = "mpijob uses the MPI library of the program in the image"
                self.notes.changed(leaf.path, leaf.shown, "mpi: auto", note)
            case "mpi.runLauncherAsNode" if leaf.value:
                note = "the launcher runs no ranks; every rank is on a worker"
                self.notes.changed(leaf.path, leaf.shown, "workers", note)
            case "mpi.runLauncherAsNode":
                self.notes.exact(leaf.path, leaf.shown, "", "the launcher never runs ranks")
            case "mpi.sshAuthMountPath":
                self.notes.changed(leaf.path, leaf.shown, "", "mpijob mounts its own SSH directory")
            case "mpi.numProcPerNode" | "flux.numProcPerNode" | "torch.numProcPerNode":
                self._runtime_per_node(leaf)
            case "torch.elasticPolicy" | "mpi":
                self._gone(leaf, _NO_WORD, "check whether the job needs it")
            case _ if name.partition(".")[0] in _STARTS and "." not in name:
                self.notes.changed(leaf.path, leaf.shown, "command", _STARTS[name])
            case _:
                self._gone(leaf, _NO_WORD, "check whether the job needs it")

    def _runtime_per_node(self, leaf: Leaf) -> None:
        if "numProcPerNode" in self.trainer:
            note = "the TrainJob sets the number of processes per node"
            self._gone(leaf, note, "nothing; Trainer does not use it either")
        else:
            self._per_node(leaf)

    def _replicated(self, leaf: Leaf, role: str, rest: str, beyond: bool) -> None:
        """Report a field of a replicated job: `node` and `launcher` become the job, others are not converted."""
        if rest == f"template.metadata.labels.{STEP_LABEL}":
            self.notes.changed(leaf.path, leaf.shown, "", "launcher and workers have their own labels")
        elif role not in {"node", "launcher", self.step} and self.keep:
            self.notes.exact(leaf.path, leaf.shown, "", "kept unchanged")
        elif role not in {"node", "launcher", self.step}:
            todo = (
                "fetch data in the command or from a volume; run other programs as earlier jobs, with after"
            )
            self._gone(leaf, "a job has only a launcher and workers", todo)
        elif rest == "name":
            self.notes.exact(leaf.path, leaf.shown, "", "every job has a launcher and workers")
        elif rest == "template.spec.backoffLimit" or rest == f"{_IN_POD}restartPolicy":
            note = "a failed job is retried only if retry.limit is set"
            self.notes.changed(leaf.path, leaf.shown, "retry", note)
        elif rest.startswith(_IN_POD):
            self._pod(leaf, role, rest.removeprefix(_IN_POD), beyond)
        elif rest == "replicas" and leaf.value == 1:
            self.notes.exact(leaf.path, leaf.shown, "", "each part exists once, with all its pods")
        else:
            self._same_or_beyond(leaf, beyond)

    def _pod(self, leaf: Leaf, role: str, rest: str, beyond: bool) -> None:
        main = container_of(self.pods.get(role) or {})
        if match := _AMOUNT.fullmatch(rest):
            self._amount(leaf, role, match[1], match[2], main)
        elif rest.startswith("container.resources."):
            todo = "request the devices with resources.gpu or resources.others"
            self._gone(leaf, "a job requests devices by number and has no claims", todo)
        elif rest == "container.name":
            note = f"the main container is named {CONTAINER}"
            report = self.notes.exact if leaf.value == CONTAINER else self.notes.changed
            report(leaf.path, leaf.shown, "", note)
        elif beyond:
            self._same_or_beyond(leaf, beyond)
        elif (
            leaf.name in self.trainer
            and rest.startswith("container.")
            and leaf.name != "env"
            and role == self.step
        ):
            self._gone(
                leaf, "the value of the TrainJob replaces it", "nothing; Trainer does not use it either"
            )
        elif leaf.name == "env":
            self._env(leaf)
        elif ours := self._taken(leaf, role):
            self.notes.exact(leaf.path, leaf.shown, ours)
        elif leaf.name in ("workingDir", "lifecycle", "topologySpreadConstraints"):
            self._gone(leaf, _NO_WORD, "move it to the command, or set placement.topology")
        elif leaf.name in _NAMES:
            self._gone(
                leaf,
                "a different value is used, that of the TrainJob or of the workers",
                f"set {_NAMES[leaf.name]}",
            )
        else:
            self._same_or_beyond(leaf, beyond)

    def _amount(self, leaf: Leaf, role: str, form: str, key: str, main: Mapping[str, Any]) -> None:
        if self.trainer.get("resourcesPerNode") and role in {self.step, "node"}:
            note = "resourcesPerNode of the TrainJob replaces it"
            self._gone(leaf, note, "nothing; Trainer does not use it either")
            return
        part, ours = (
            (self.job.launcher, "launcher") if role == "launcher" else (self.job.resources, "resources")
        )
        limited = key in ((main.get("resources") or {}).get("limits") or {})
        amount_fields.report_amount(self.notes, leaf, part, ours, form, key, limited=limited)

    def _taken(self, leaf: Leaf, role: str) -> str:
        """Return the job's field that has the value, "" if none has."""
        job, value, place = self.job, leaf.value, self.job.placement
        mounts = {volume.mount for volume in job.volumes}
        held = {
            "image": job.image == value,
            "imagePullPolicy": job.pull_policy == value,
            "nodeSelector": dict(place.node_selector) == value,
            "affinity": dict(place.affinity) == value,
            "tolerations": value in [dict(toleration) for toleration in place.tolerations],
            "imagePullSecrets": isinstance(value, Mapping) and value.get("name") in job.pull_secrets,
            "priorityClassName": job.priority == value,
            "terminationGracePeriodSeconds": job.grace_seconds == value,
            "command": role == self.step or (self.framework == "mpi" and role == "launcher"),
            "volumeMounts": isinstance(value, Mapping) and value.get("mountPath") in mounts,
            "volumes": any(path in mounts for path in self._mounted(leaf, role)),
        }
        held["args"] = held["command"]
        return _NAMES[leaf.name] if held.get(leaf.name, False) else ""

    def _mounted(self, leaf: Leaf, role: str) -> list[str]:
        main = container_of(self.pods.get(role) or {})
        name = leaf.value.get("name") if isinstance(leaf.value, Mapping) else None
        return [
            str(mount.get("mountPath"))
            for mount in main.get("volumeMounts") or ()
            if mount.get("name") == name
        ]


_NAMES = {
    "image": "image", "imagePullPolicy": "pull_policy", "nodeSelector": "placement.node_selector",
    "affinity": "placement.affinity", "tolerations": "placement.tolerations", "imagePullSecrets": "pull_secrets",
    "priorityClassName": "priority", "terminationGracePeriodSeconds": "grace_seconds", "command": "command",
    "args": "command", "volumeMounts": "volumes", "volumes": "volumes",
}  # fmt: skip
