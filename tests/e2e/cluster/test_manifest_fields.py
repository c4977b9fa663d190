"""Every field that the CRDs of MPIJob, TrainJob and runtimes have, converted one by one: none vanishes in silence.

A manifest gets one field more than it needs, with a value that occurs nowhere else. The report must have an entry for
it, and the entry must be true: what is called exact is found in what is written, what is called dropped is not.
"""

from __future__ import annotations

import functools
import itertools
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from mpijob.errors import InvalidJob
from mpijob.formats.convert import detect
from mpijob.formats.convert.export import write
from mpijob.formats.convert.kubernetes import flat_fields, known_fields
from mpijob.formats.convert.report import Converted, FieldEntry, FieldOutcome
from mpijob.formats.kubernetes.metadata.well_known import PLAIN_USER

pytestmark = pytest.mark.req("D-migrate")
Steps = tuple[str, ...]
_NUMBERS = itertools.count(71001)
_SAME = (  # what these say happens here in any case, as their entries' notes tell
    r"spec\.launcherCreationPolicy",
    r"spec\.(runPolicy\.)?suspend",
    r"spec\.runLauncherAsWorker",
    r"spec\.runPolicy\.cleanPodPolicy",
    r"spec\.mpiReplicaSpecs\.(Launcher|Worker)\.restartPolicy",
    r"spec\.mpiReplicaSpecs\.Launcher\.replicas",
)
_AS_WRITTEN = ("every pod is created this way", "the generated runtime has the same value")
_TIES = ("volumes.[].name", "volumeMounts.[].name")  # names that only tie a mount to its volume
_MOUNT = {"name": "vol", "mountPath": "/vol"}


class Case(NamedTuple):
    """One field: where it stands, the value that it has, and the documents with it."""

    path: str
    value: Any
    documents: tuple[dict[str, Any], ...]


def leaves(schema: Mapping[str, Any], path: Steps = ()) -> Iterator[tuple[Steps, Mapping[str, Any]]]:
    """Yield every field of a schema that holds a value, with the steps to it: names, [] and {}."""
    if schema.get("properties"):
        for name, part in schema["properties"].items():
            yield from leaves(part, (*path, name))
    elif schema.get("type") == "array":
        yield from leaves(schema["items"], (*path, "[]"))
    elif isinstance(schema.get("additionalProperties"), Mapping):
        yield from leaves(schema["additionalProperties"], (*path, "{}"))
    elif schema.get("type") != "object":  # one without fields says something by being there alone
        yield path, schema


def value_of(schema: Mapping[str, Any]) -> Any:
    """Return a value that the schema takes, and that occurs nowhere else as far as the type allows it."""
    number = next(_NUMBERS)
    if schema.get("enum"):
        return schema["enum"][-1]
    if schema.get("type") == "boolean":
        return True
    if schema.get("type") in ("integer", "number") or schema.get("x-kubernetes-int-or-string"):
        return number
    return f"zq-{number}"


def filled(schema: Mapping[str, Any]) -> Any:
    """Return the least that a schema takes: its required fields."""
    if schema.get("type") == "array":
        return []
    if schema.get("type") != "object" and "properties" not in schema:
        return "needed" if schema.get("type") == "string" else value_of(schema)
    return {name: filled(schema["properties"][name]) for name in schema.get("required") or ()}


def put(holder: Any, steps: Steps, schema: Mapping[str, Any], value: Any) -> None:
    """Put a value into a document, with the required fields of what must be made on the way."""
    step, rest = steps[0], steps[1:]
    if step == "[]":
        part = schema["items"]
        if not rest:
            holder.append(value)
            return
        if not holder:
            holder.append(filled(part))
        put(holder[0], rest, part, value)
        return
    key, part = (
        (step, schema["properties"][step]) if step != "{}" else ("zq-key", schema["additionalProperties"])
    )
    if not rest:
        holder[key] = value
        return
    if key not in holder:
        holder[key] = filled(part)
    put(holder[key], rest, part, value)


@functools.cache
def schemas(files: tuple[Path, ...]) -> dict[str, Mapping[str, Any]]:
    """Return the schemas of `spec` by kind, at the versions that are in use."""
    found = {}
    for crd in (one for file in files for one in yaml.safe_load_all(file.read_text()) if one):
        names = (crd.get("spec") or {}).get("names") or {}
        for version in (crd.get("spec") or {}).get("versions") or ():
            if version["name"] in ("v2beta1", "v1alpha1"):
                found[names["kind"]] = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return found


def an_mpijob() -> dict[str, Any]:
    def replica(count: int) -> dict[str, Any]:
        container = {"name": "main", "image": "example/app:1", "command": ["mpirun", "./app"]}
        return {
            "replicas": count,
            "restartPolicy": "Never",
            "template": {"spec": {"containers": [container]}},
        }

    spec = {"slotsPerWorker": 1, "mpiReplicaSpecs": {"Launcher": replica(1), "Worker": replica(2)}}
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": "every"},
        "spec": spec,
    }


def a_trainjob(policy: str) -> tuple[dict[str, Any], dict[str, Any]]:
    api = {"apiVersion": "trainer.kubeflow.org/v1alpha1"}

    def replicated(name: str) -> dict[str, Any]:
        pod = {"containers": [{"name": "node", "image": "example/app:1"}]}
        return {"name": name, "template": {"spec": {"template": {"spec": pod}}}}

    jobs = [replicated("node"), *([replicated("launcher")] if policy == "mpi" else [])]
    spec = {"mlPolicy": {policy: {}}, "template": {"spec": {"replicatedJobs": jobs}}}
    runtime = {**api, "kind": "TrainingRuntime", "metadata": {"name": "mine"}, "spec": spec}
    command = ["mpirun", "./app"] if policy == "mpi" else ["./app"]
    trainer = {"command": command, "numNodes": 2}
    job = {"runtimeRef": {"name": "mine", "kind": "TrainingRuntime"}, "trainer": trainer}
    return {**api, "kind": "TrainJob", "metadata": {"name": "every"}, "spec": job}, runtime


def mpijob_cases(schema: Mapping[str, Any]) -> Iterator[Case]:
    for steps, leaf in leaves(schema):
        roles = ("Launcher", "Worker") if steps[0] == "mpiReplicaSpecs" else ("",)
        for role in roles:
            document = an_mpijob()
            yield a_case(document, schema, steps, leaf, role, document["spec"])


def a_case(
    document: dict[str, Any],
    schema: Mapping[str, Any],
    steps: Steps,
    leaf: Mapping[str, Any],
    role: str,
    spec: Any,
) -> Case:
    value = value_of(leaf)
    if role:  # the map of replicas is one of names that are known
        part = schema["properties"]["mpiReplicaSpecs"]["additionalProperties"]
        put(spec["mpiReplicaSpecs"][role], steps[2:], part, value)
        mounted(spec["mpiReplicaSpecs"][role]["template"]["spec"], steps)
    else:
        put(spec, steps, schema, value)
    return Case(".".join((role, *steps)), value, (document,))


def mounted(pod: dict[str, Any], steps: Steps) -> None:
    """Let a volume of a case be mounted, and a mount have its volume."""
    main = pod["containers"][0]
    if "volumes" in steps:
        main["volumeMounts"] = [dict(_MOUNT) | {"name": pod["volumes"][0].setdefault("name", "vol")}]
    elif "volumeMounts" in steps and steps[-3:-2] != ("initContainers",) and main.get("volumeMounts"):
        pod["volumes"] = [{"name": main["volumeMounts"][0].setdefault("name", "vol"), "emptyDir": {}}]


def trainjob_cases(kinds: Mapping[str, Mapping[str, Any]], policy: str) -> Iterator[Case]:
    for steps, leaf in leaves(kinds["TrainJob"]):
        job, runtime = a_trainjob(policy)
        value = value_of(leaf)
        put(job["spec"], steps, kinds["TrainJob"], value)
        yield Case(".".join(steps), value, (job, runtime))
    for steps, leaf in leaves(kinds["TrainingRuntime"]):
        if steps[:2] == ("mlPolicy", {"mpi": "torch", "torch": "mpi"}[policy]):
            continue  # a runtime has one policy
        job, runtime = a_trainjob(policy)
        value = value_of(leaf)
        put(runtime["spec"], steps, kinds["TrainingRuntime"], value)
        replicated = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]
        mounted(replicated["template"]["spec"]["template"]["spec"], steps)
        yield Case(".".join(("runtime", *steps)), value, (job, runtime))


def fresh(case: Case, before: tuple[dict[str, Any], ...]) -> list[str]:
    """Return the fields, as a report names them, that hold the value of a case."""
    found = []
    for document, plain in zip(case.documents, before, strict=True):
        known = {(leaf.path, json.dumps(leaf.value)) for leaf in flat_fields.leaves(plain)}
        prefix = "TrainingRuntime." if document["kind"] == "TrainingRuntime" else ""
        for leaf in flat_fields.leaves(document):
            held = str(case.value) in f"{leaf.path} {json.dumps(leaf.value)}" or isinstance(case.value, bool)
            if held and (leaf.path, json.dumps(leaf.value)) not in known:
                found.append(f"{prefix}{leaf.path}")
    return found


def converted(documents: tuple[dict[str, Any], ...], to: str) -> tuple[Converted, str]:
    """Return what is read of documents, and the text that is written; none where that is refused with a reason."""
    (done,) = detect.documents(documents, to=to)
    try:
        text = write(done.jobs[0], to, foreign=done.foreign, family=done.family, user=PLAIN_USER).text
    except InvalidJob:
        text = ""
    return done, text


def problem(case: Case, before: tuple[dict[str, Any], ...], plain: str, to: str) -> str:
    """Return what is wrong with the report on a case; "" where it is complete and true."""
    done, text = converted(case.documents, to)
    places = fresh(case, before)
    entries = [entry for entry in done.entries if entry.field in places]
    if not entries or {entry.field for entry in entries} != set(places):
        return f"{case.path}: not told: {places}"
    if not text:
        return ""
    wrong = [said for entry in entries if (said := _untrue(case, entry, text, plain))]
    return "; ".join(wrong)


def _untrue(case: Case, entry: FieldEntry, text: str, plain: str) -> str:
    told = isinstance(case.value, bool) or not re.search(
        r"\d{5}", str(case.value)
    )  # true, or a word of a list
    there = text != plain if told else str(case.value) in text
    always = any(re.fullmatch(pattern, entry.field) for pattern in _SAME) or case.path.endswith(_TIES)
    usual = told and entry.note in _AS_WRITTEN
    if entry.fate is FieldOutcome.EXACT and not (there or always or usual):
        return f"{case.path} = {case.value}: called exact, and not in what is written ({entry.ours} {entry.note})"
    if entry.fate is FieldOutcome.DROPPED and there and not told:
        return f"{case.path} = {case.value}: called dropped, and in what is written"
    if entry.fate is FieldOutcome.DROPPED and not entry.todo:
        return f"{case.path}: dropped without what to do"
    if entry.fate is FieldOutcome.CHANGED and not entry.note:
        return f"{case.path}: changed without how"
    return ""


def checked(cases: list[Case], before: tuple[dict[str, Any], ...], to: str) -> list[str]:
    plain = converted(before, to)[1]
    assert plain
    return [wrong for case in cases if (wrong := problem(case, before, plain, to))]


@pytest.mark.long
@pytest.mark.parametrize("to", ["job", "mpijob"])
def test_no_field_of_an_mpijob_is_dropped_in_silence(crd_files: tuple[Path, ...], to: str) -> None:
    cases = [*mpijob_cases(schemas(crd_files)["MPIJob"])]
    assert len(cases) > 1500
    assert checked(cases, (an_mpijob(),), to) == []


@pytest.mark.long
@pytest.mark.parametrize("policy", ["mpi", "torch"])
@pytest.mark.parametrize("to", ["job", "trainjob"])
def test_no_field_of_a_trainjob_or_its_runtime_is_dropped_in_silence(
    crd_files: tuple[Path, ...], policy: str, to: str
) -> None:
    cases = [*trainjob_cases(schemas(crd_files), policy)]
    assert len(cases) > 1300
    assert checked(cases, a_trainjob(policy), to) == []


def test_every_field_of_the_crds_is_known_by_its_name(crd_files: tuple[Path, ...]) -> None:
    """A field that the table does not know would be called misspelt."""
    kinds = schemas(crd_files)
    told = [
        (case.path, leaf.path)
        for kind, cases in (
            ("MPIJob", mpijob_cases(kinds["MPIJob"])),
            ("TrainJob", trainjob_cases(kinds, "mpi")),
        )
        for case in cases
        for document in case.documents
        for leaf in flat_fields.leaves(document)
        if known_fields.unknown(str(document["kind"]), leaf.path)
    ]
    assert told == []
