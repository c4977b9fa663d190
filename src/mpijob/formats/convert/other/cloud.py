"""Jobs of managed services: SageMaker estimators and training jobs, Azure ML command jobs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any

from mpijob.formats.convert import unrequested_resources
from mpijob.formats.convert.header.request import name_of, noted_name
from mpijob.formats.convert.kubernetes import launch_command
from mpijob.formats.convert.report import Converted, Notes
from mpijob.model import Code, MPIJob

_SAGEMAKER = frozenset(
    {"instance_count", "InstanceCount", "ResourceConfig", "AlgorithmSpecification", "entry_point"}
)
_MACHINE = "machine types cannot be selected: set what one worker needs"


def kind(document: Mapping[str, Any]) -> str:
    """Return the service whose settings a document has, "" for none."""
    if _SAGEMAKER & set(document) and "command" not in document:
        return "SageMaker settings"
    schema = str(document.get("$schema", ""))
    if "commandJob" in schema or (document.get("type") == "command" and "command" in document):
        return "Azure ML job"
    return ""


def read(document: Mapping[str, Any], file: str = "") -> Converted:
    source = kind(document)
    taker = _SettingsReader()
    table = _SAGEMAKER_FIELDS if source.startswith("SageMaker") else _AZURE_FIELDS
    taker.walk(document, "", table)
    fields = taker.fields
    fields.setdefault("name", name_of(re.sub(r"\.\w+$", "", file.rpartition("/")[2])))
    entry = fields.pop("entry", "")
    if entry:
        words = (
            ("python", entry)
            if entry.endswith(".py")
            else ("bash", entry)
            if entry.endswith(".sh")
            else (entry,)
        )
        fields["command"] = (*words, *fields.pop("parameters", ()))
    fields.pop("parameters", None)
    if "command" not in fields:
        taker.notes.dropped("command", "", "no program is set", "write command", blocks=True)
    job = MPIJob(**{"resources": unrequested_resources.NOTHING} | fields)
    if source.startswith("Azure") and job.command:
        job = _azure(job, taker)
    entries = (
        *unrequested_resources.first_line(job),
        *taker.notes.entries,
        *unrequested_resources.added_launcher(job),
    )
    return Converted(source=source, jobs=(job,), entries=entries, file=file)


def _azure(job: MPIJob, taker: _SettingsReader) -> MPIJob:
    text = job.command[0]
    if "${{" in text:
        note = "the command refers to inputs and outputs of the service"
        taker.notes.dropped("command", text, note, "replace them with paths of volumes", blocks=True)
    try:
        words = tuple(shlex.split(text))
    except ValueError:
        words = ("sh", "-c", text)
    if any(letter in text for letter in "|;&<>$`\n"):
        words = ("sh", "-c", text)
    job = job.replace(command=words)
    if taker.ranked:
        # The service itself starts the ranks, so the command is a rank's.
        return job
    return launch_command.unwrapped(job, taker.notes, "command")


class _SettingsReader:
    """Reads settings by a table of their meanings."""

    def __init__(self) -> None:
        self.fields: dict[str, Any] = {}
        self.notes = Notes()
        self.ranked = False

    def walk(self, value: Mapping[str, Any], path: str, table: Mapping[str, Any]) -> None:
        """Convert every field of a mapping."""
        for key, item in value.items():
            here = f"{path}{key}"
            action = table.get(here)
            if callable(action):
                action(self, here, item)
            elif isinstance(action, tuple):
                self.notes.dropped(here, item, *action)
            elif isinstance(item, Mapping) and any(known.startswith(f"{here}.") for known in table):
                self.walk(item, f"{here}.", table)
            else:
                self.notes.dropped(here, item, "unknown field", "check whether the job needs it")


Action = Callable[[_SettingsReader, str, Any], None]


def _to(field: str, read: Callable[[Any], Any] = str) -> Action:
    def action(taker: _SettingsReader, here: str, item: Any) -> None:
        if _taken(taker, field, read, here, item):
            taker.ranked = taker.ranked or field == "slots"
            taker.notes.exact(here, item, {"entry": "command", "parameters": "command"}.get(field, field))

    return action


def _taken(taker: _SettingsReader, field: str, read: Callable[[Any], Any], here: str, item: Any) -> bool:
    """Convert a value, and return whether it was one; an invalid one is reported."""
    try:
        taker.fields[field] = read(item)
    except (TypeError, ValueError):
        taker.notes.dropped(here, item, "not a valid value of the field", f"set {field}")
        return False
    return True


def _name(taker: _SettingsReader, here: str, item: Any) -> None:
    taker.fields["name"] = noted_name(taker.notes, here, str(item))


def _changed(field: str, read: Callable[[Any], Any], note: str) -> Action:
    def action(taker: _SettingsReader, here: str, item: Any) -> None:
        if _taken(taker, field, read, here, item):
            taker.notes.changed(here, item, field, note)

    return action


def _same(note: str, *, ranked: bool = False) -> Action:
    def action(taker: _SettingsReader, here: str, item: Any) -> None:
        taker.ranked = taker.ranked or ranked
        taker.notes.exact(here, item, "", note)

    return action


def _variables(value: Any) -> dict[str, str]:
    return {str(key): str(item) for key, item in dict(value).items()}


def _parameters(value: Any) -> tuple[str, ...]:
    words = [
        (f"--{key}", str(item)) for key, item in dict(value).items() if not str(key).startswith("sagemaker_")
    ]
    return tuple(word for pair in words for word in pair)


def _flags(taker: _SettingsReader, here: str, item: Any) -> None:
    try:
        words = shlex.split(str(item))
    except ValueError:
        taker.notes.dropped(
            here, str(item), "unterminated quote", "close the quote, and convert again", blocks=True
        )
        return
    job = launch_command.unwrapped(MPIJob(name="x", command=("mpirun", *words, "x")), taker.notes, here)
    taker.fields |= {"launch": job.launch, "mpi": job.mpi}
    if job.env:
        taker.fields["env"] = taker.fields.get("env", {}) | dict(job.env)


def _code(value: Any) -> Code:
    return Code(path=str(value))


_LIMIT = "counted from the creation of the job"
_DATA = ("data is a volume in mpijob", "add volumes, or read it in the program")
_ROLE = ("permissions of the service", "nothing; the job runs with the permissions of its namespace")
_SAGEMAKER_FIELDS: dict[str, Any] = {
    "instance_count": _to("workers", int),
    "ResourceConfig.InstanceCount": _to("workers", int),
    "instance_type": (_MACHINE, "set resources.cpu, resources.memory and resources.gpu"),
    "ResourceConfig.InstanceType": (_MACHINE, "set resources.cpu, resources.memory and resources.gpu"),
    "ResourceConfig.VolumeSizeInGB": ("disks are volumes in mpijob", "add volumes: kind: scratch"),
    "volume_size": ("disks are volumes in mpijob", "add volumes: kind: scratch"),
    "distribution.mpi.enabled": _same("mpijob starts every job with MPI", ranked=True),
    "distribution.mpi.processes_per_host": _to("slots", int),
    "distribution.mpi.custom_mpi_options": _flags,
    "HyperParameters": _to("parameters", _parameters),
    "hyperparameters": _to("parameters", _parameters),
    "entry_point": _to("entry"),
    "source_dir": _to("code", _code),
    "image_uri": _to("image"),
    "AlgorithmSpecification.TrainingImage": _to("image"),
    "AlgorithmSpecification.ContainerEntrypoint": _to(
        "command", lambda value: tuple(str(word) for word in value)
    ),
    "AlgorithmSpecification.ContainerArguments": _to(
        "args", lambda value: tuple(str(word) for word in value)
    ),
    "AlgorithmSpecification.TrainingInputMode": _DATA,
    "environment": _to("env", _variables),
    "Environment": _to("env", _variables),
    "max_run": _changed("deadline_seconds", float, _LIMIT),
    "StoppingCondition.MaxRuntimeInSeconds": _changed("deadline_seconds", float, _LIMIT),
    "base_job_name": _name,
    "TrainingJobName": _name,
    "InputDataConfig": _DATA,
    "OutputDataConfig": _DATA,
    "inputs": _DATA,
    "output_path": _DATA,
    "role": _ROLE,
    "RoleArn": _ROLE,
}
_AZURE_FIELDS: dict[str, Any] = {
    "$schema": _same("it only names the format"),
    "type": _same("it only names the format"),
    "name": _name,
    "display_name": _name,
    "description": _to("description"),
    "command": _to("command", lambda value: (str(value),)),
    "code": _to("code", _code),
    "environment": ("environments exist only in the service", "set image to an image in a registry"),
    "environment.image": _to("image"),
    "environment_variables": _to("env", _variables),
    "resources.instance_count": _to("workers", int),
    "resources.instance_type": (_MACHINE, "set resources.cpu, resources.memory and resources.gpu"),
    "resources.shm_size": ("shared memory is a volume in mpijob", "add volumes: kind: shm, mount: /dev/shm"),
    "distribution.type": _same("mpijob starts every job with MPI", ranked=True),
    "distribution.process_count_per_instance": _to("slots", int),
    "limits.timeout": _changed("deadline_seconds", float, _LIMIT),
    "compute": ("the target is chosen when submitting", "mpijob create --context NAME, or set queue"),
    "experiment_name": ("experiments exist only in the service", "set labels"),
    "inputs": _DATA,
    "outputs": _DATA,
}
