"""The traps that lint finds in runtimes and MPIJobs, each by itself, and none where there is none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.formats.test_runtimes import a_runtime, broken, main, part, pod

from mpijob.formats.kubernetes import mpijob
from mpijob.formats.kubernetes.metadata.well_known import Document, Gang, Shape
from mpijob.formats.runtimes import builtin, lint
from mpijob.model import MPIJob

PAGES = Path(__file__).parents[3] / "docs" / "troubleshooting"
CLEAN = {("RUNTIME_IMAGE", "notice")}


def traps(runtime: Document, **options: bool) -> set[tuple[str, str]]:
    found = lint.lint(runtime, **options)
    assert found is not None
    assert all(one.hint and one.field for one in found)
    return {(one.code, one.severity.value) for one in found}


def _set(place: Callable[[Document], Document], **fields: Any) -> Callable[[Document], Any]:
    return lambda runtime: place(runtime).update(fields)


def _drop(place: Callable[[Document], Document], *fields: str) -> Callable[[Document], Any]:
    return lambda runtime: [place(runtime).pop(field, None) for field in fields]


def _policy(runtime: Document) -> Document:
    found: Document = runtime["spec"]["mlPolicy"]["mpi"]
    return found


def _jobset(runtime: Document) -> Document:
    found: Document = runtime["spec"]["template"]["spec"]
    return found


def _label_node(runtime: Document) -> None:
    part(runtime, "node")["template"]["metadata"] = part(runtime, "launcher")["template"]["metadata"]


def _no_hostfile(runtime: Document) -> None:
    launcher = main(runtime, "launcher")
    launcher["env"] = [one for one in launcher["env"] if not one["name"].startswith("PRTE")]
    launcher["command"] = ["mpirun", "python", "train.py"]


def _capable_sshd(runtime: Document) -> None:
    main(runtime, "node").update(image="mpioperator/base:1", command=["/usr/sbin/sshd", "-De"])
    main(runtime, "launcher").update(image="mpioperator/base:1")


def _as_root(runtime: Document) -> None:
    for name in ("node", "launcher"):
        pod(runtime, name)["securityContext"] = {}


TRAPS: list[tuple[Callable[[Document], Any], str, str]] = [
    (lambda one: one["spec"]["mlPolicy"].update(numNodes=4), "RUNTIME_NODES", "error"),
    (lambda one: main(one, "launcher").update(name="launcher"), "RUNTIME_CONTAINER", "error"),
    (lambda one: part(one, "node").update(name="worker"), "RUNTIME_CONTAINER", "error"),
    (lambda one: pod(one, "launcher").pop("restartPolicy"), "RUNTIME_RETRIES", "warning"),
    (
        lambda one: part(one, "launcher")["template"]["spec"].pop("backoffLimit"),
        "RUNTIME_RETRIES",
        "warning",
    ),
    (lambda one: one["spec"].update(podGroupPolicy={"coscheduling": {}}), "RUNTIME_GANG", "error"),
    (_set(_jobset, network={"publishNotReadyAddresses": False}), "RUNTIME_NAMES", "error"),
    (_drop(_jobset, "successPolicy"), "RUNTIME_SUCCESS", "error"),
    (_no_hostfile, "RUNTIME_HOSTFILE", "warning"),
    (_set(_policy, mpiImplementation=""), "RUNTIME_MPI", "error"),
    (_set(_policy, mpiImplementation="Intel"), "RUNTIME_MPI", "error"),
    (_set(_policy, runLauncherAsNode=False), "RUNTIME_SHARE", "warning"),
    (_drop(_policy, "sshAuthMountPath"), "RUNTIME_KEYS", "error"),
    (_capable_sshd, "RUNTIME_SSHD", "error"),
    (_as_root, "RUNTIME_SSHD", "warning"),
    (lambda one: main(one, "node").update(ports=[{"containerPort": 22}]), "RUNTIME_SSHD", "warning"),
    (_label_node, "RUNTIME_STEP", "error"),
    (lambda one: part(one, "launcher")["template"].pop("metadata"), "RUNTIME_STEP", "error"),
    (lambda one: main(one, "node").pop("startupProbe"), "RUNTIME_ORDER", "warning"),
    (lambda one: _jobset(one)["replicatedJobs"].reverse(), "RUNTIME_ORDER", "error"),
    (lambda one: main(one, "launcher").update(image="example/other:1"), "RUNTIME_IMAGE", "warning"),
    (lambda one: one["metadata"].pop("labels"), "RUNTIME_LABEL", "warning"),
    (
        lambda one: part(one, "node")["template"]["spec"]["template"].pop("metadata"),
        "RUNTIME_MESH",
        "notice",
    ),
]


@pytest.mark.req("D-runtime", "D-validator")
@pytest.mark.parametrize(("change", "code", "severity"), TRAPS)
def test_each_trap_is_found_and_nothing_else(
    change: Callable[[Document], Any], code: str, severity: str
) -> None:
    found = traps(broken(change))
    assert (code, severity) in found
    beside = {
        (one, how) for one, how in found if one not in (code, "RUNTIME_IMAGE") and how != "notice"
    }  # a part that is called otherwise is missed by more than one rule
    assert beside == set() or code == "RUNTIME_CONTAINER"


@pytest.mark.thorough
@pytest.mark.req("FR-033")
@pytest.mark.parametrize("code", sorted({code for _, code, _ in TRAPS}))
def test_the_page_of_a_trap_quotes_what_lint_says(code: str) -> None:
    said = []
    for change in (change for change, about, _ in TRAPS if about == code):
        said += [one.message for one in lint.lint(broken(change)) or () if one.code == code]
    said += [one.message for one in lint.lint(a_runtime()) or () if one.code == code]
    unready = broken(lambda one: part(one, "launcher").pop("dependsOn"))
    main(unready, "launcher")["command"] = ["sleep"]
    said += [one.message for one in lint.lint(unready) or () if one.code == code]
    quoted = (PAGES / f"{code.lower()}.md").read_text().partition("\n> ")[2].partition("\n")[0]
    assert quoted in said


def test_a_launcher_that_neither_waits_nor_is_ours_is_too_early() -> None:
    runtime = broken(lambda one: part(one, "launcher").pop("dependsOn"))
    assert traps(runtime) == CLEAN, "our own launcher waits by itself"
    main(runtime, "launcher")["command"] = ["mpirun", "--hostfile", "/etc/mpi/hostfile", "./a"]
    assert ("RUNTIME_ORDER", "warning") in traps(runtime)


def test_a_fixed_user_is_an_error_on_openshift_only() -> None:
    runtime = builtin.document(builtin.shipped("openmpi"), user=1000)
    assert ("RUNTIME_USER", "notice") in traps(runtime)
    assert ("RUNTIME_USER", "error") in traps(runtime, openshift=True)


def test_a_runtime_that_says_nothing_at_all_is_survived() -> None:
    bare: Document = {"kind": "TrainingRuntime", "metadata": {"name": "x"}, "spec": {"mlPolicy": {"mpi": {}}}}
    assert ("RUNTIME_CONTAINER", "error") in traps(bare)
    torch = {"kind": "TrainingRuntime", "metadata": {"name": "x"}, "spec": {"mlPolicy": {"torch": {}}}}
    assert lint.lint(torch) is None
    assert lint.lint({"kind": "Pod"}) is None


def an_mpijob(**fields: Any) -> Document:
    job = MPIJob(name="old", workers=4, image="example/mpi:1", command=("./a",))
    (document,) = mpijob.write(job, Shape(gang=Gang.VOLCANO))
    document["spec"].update(fields)
    return document


@pytest.mark.parametrize(
    ("change", "code", "severity"),
    [
        (lambda one: one["spec"].update(launcherCreationPolicy="AtStartup"), "RUNTIME_ORDER", "warning"),
        (lambda one: one["spec"]["runPolicy"].update(backoffLimit=3), "RUNTIME_RETRIES", "warning"),
        (lambda one: one["spec"]["runPolicy"].pop("cleanPodPolicy"), "RUNTIME_CLEANUP", "warning"),
        (
            lambda one: one["spec"]["runPolicy"]["schedulingPolicy"].pop("minAvailable"),
            "RUNTIME_GANG",
            "error",
        ),
        (
            lambda one: one["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0].pop(
                "startupProbe"
            ),
            "RUNTIME_ORDER",
            "warning",
        ),
        (
            lambda one: one["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][
                0
            ].update(env=[], command=["mpirun"], args=["./a"]),
            "RUNTIME_HOSTFILE",
            "warning",
        ),
    ],
)
def test_the_traps_of_an_mpijob_are_found(
    change: Callable[[Document], Any], code: str, severity: str
) -> None:
    document = an_mpijob()
    assert lint.lint(document) == ()
    change(document)
    assert traps(document) == {(code, severity)}
