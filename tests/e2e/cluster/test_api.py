"""The client against a real API server: the twin of the loopback server of tests/unit/test_kube_*.py."""

from __future__ import annotations

import io
import os
import pty
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from testbed import places
from tests.e2e.cluster.api_support import (
    MAPS,
    NAMESPACE,
    PODS,
    AccessOf,
    a_map,
    accesses,
    connected,
    ended_after,
    labelled,
)

from mpijob.backends.kubernetes.auth.access import Plugin
from mpijob.backends.kubernetes.auth.kubeconfig import load
from mpijob.backends.kubernetes.client import api_errors, exec_stream, resources
from mpijob.backends.kubernetes.client.api import METADATA, TABLE, Api, ApiError, Document
from mpijob.backends.kubernetes.client.watch import watch
from mpijob.errors import Conflict, InvalidJob, NotAllowed, NotFound, Unsupported

access_of = pytest.fixture(scope="module")(accesses)
alice = pytest.fixture(scope="module")(connected)
label = pytest.fixture(labelled)
RESTRICTED = {"runAsNonRoot": True, "runAsUser": 1000660000, "seccompProfile": {"type": "RuntimeDefault"}}


def a_pod(name: str, label: str, command: str) -> Document:
    container = {
        "name": "main",
        "image": f"{places.IMAGES}/openmpi4:1",
        "command": ["sh", "-c", command],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "resources": {"requests": {"cpu": "10m"}},
    }
    spec = {"restartPolicy": "Never", "securityContext": RESTRICTED, "containers": [container]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"test": label}},
        "spec": spec,
    }


@pytest.fixture
def running(alice: Api, label: str) -> Callable[[str], str]:
    """Return what starts a pod and waits until it runs; it returns the pod's address."""

    def start(command: str) -> str:
        path = f"{PODS}/client-{label}"
        alice.create(PODS, a_pod(f"client-{label}", label, command))
        with watch(alice, PODS, labels=f"test={label}") as changes, ended_after(90, changes):
            for change in changes:
                if change.object.get("status", {}).get("phase") in ("Running", "Succeeded"):
                    return path
        raise AssertionError("the pod does not run")

    return start


def told(api: Api, doing: str, call: Callable[[], object]) -> Exception:
    """Return what a user would be told of the error that the call meets."""
    with pytest.raises(ApiError) as caught:
        call()
    return api_errors.translate(caught.value, doing=doing)


@pytest.mark.parametrize("user", ["alice", "carol"], ids=["certificate", "token"])
def test_a_user_is_known_by_certificate_or_token(access_of: AccessOf, user: str) -> None:
    with Api(access_of(user)) as api:
        review = api.create(
            resources.SELF_REVIEW.path(),
            {"apiVersion": resources.SELF_REVIEW.api, "kind": "SelfSubjectReview"},
        )
        assert review["status"]["userInfo"]["username"] == user
        assert api.list(PODS).version


@pytest.mark.req("A-edge-403")
def test_bob_reads_which_right_he_lacks_and_nothing_is_created(
    access_of: AccessOf, alice: Api, label: str
) -> None:
    with Api(access_of("bob")) as bob:
        error = told(bob, "create the job", lambda: bob.create(MAPS, a_map(f"m-{label}", label)))
    assert isinstance(error, NotAllowed)
    assert error.message == (
        "cannot create the job: User 'bob' lacks 'create' permission for ConfigMaps in namespace 'team-a'"
    )
    assert "--clusterrole=edit --user=bob --namespace=team-a" in error.hint
    assert alice.find(f"{MAPS}/m-{label}") is None


def test_a_wrong_token_is_told_as_an_expired_login(access_of: AccessOf) -> None:
    access = msgspec.structs.replace(access_of("carol"), token="wrong", source="")
    with Api(access) as api:
        error = told(api, "list jobs", lambda: api.list(PODS))
    assert isinstance(error, NotAllowed)
    assert "has expired or is not accepted" in error.message


def test_an_object_lives_through_create_patch_and_delete(alice: Api, label: str) -> None:
    path = f"{MAPS}/m-{label}"
    assert alice.create(MAPS, a_map(f"m-{label}", label, a="0"), dry_run=True)["data"] == {"a": "0"}
    assert alice.find(path) is None
    made = alice.create(MAPS, a_map(f"m-{label}", label, a="1"))
    assert made["metadata"]["managedFields"][0]["manager"] == "mpijob"
    assert alice.patch(path, {"data": {"b": "2"}})["data"] == {"a": "1", "b": "2"}
    assert alice.patch(path, [{"op": "remove", "path": "/data/a"}], form="json")["data"] == {"b": "2"}
    assert alice.patch(path, {"data": {"c": "3"}}, form="strategic", dry_run=True)["data"]["c"] == "3"
    assert alice.patch(path, a_map(f"m-{label}", label, b="4"), form="apply")["data"] == {"b": "4"}
    assert alice.get(path)["data"] == {"b": "4"}
    assert alice.delete(path, uid=str(uuid.uuid4())) is None
    assert alice.find(path) is not None
    assert alice.delete(path, uid=made["metadata"]["uid"]) is not None
    assert alice.delete(path) is None


def test_refusals_of_a_real_server_are_understood(alice: Api, label: str) -> None:
    alice.create(MAPS, a_map(f"m-{label}", label))
    again = told(alice, "create it", lambda: alice.create(MAPS, a_map(f"m-{label}", label)))
    assert isinstance(again, Conflict)
    assert f"the name 'm-{label}' is already used by one of the ConfigMaps" in str(again)
    invalid = told(alice, "create it", lambda: alice.create(MAPS, a_map("No_Name", label)))
    assert isinstance(invalid, InvalidJob)
    assert [finding.field for finding in invalid.findings] == ["metadata.name"]
    missing = told(alice, "read it", lambda: alice.get(resources.TRAINJOB.path(NAMESPACE, f"m-{label}")))
    assert isinstance(missing, NotFound)
    assert f"no TrainJob 'm-{label}' in namespace 'team-a'" in str(missing)


def test_a_kind_that_is_not_installed_is_told(kubeconfig: Path) -> None:
    path = resources.TRAINJOB.path(NAMESPACE).replace("v1alpha1", "v1alpha0")
    with Api(load(path=str(kubeconfig))) as admin:
        assert isinstance(told(admin, "list jobs", lambda: admin.list(path)), Unsupported)


@pytest.mark.parametrize(
    "size", [1_600_000, 4_000_000], ids=["over etcd's limit", "over the request's limit"]
)
def test_an_object_that_is_too_large_is_told(alice: Api, label: str, size: int) -> None:
    error = told(alice, "create it", lambda: alice.create(MAPS, a_map(f"m-{label}", label, big="x" * size)))
    assert isinstance(error, InvalidJob)


def test_lists_come_in_pages_as_tables_and_as_metadata(alice: Api, label: str) -> None:
    names = [f"m-{label}-{number}" for number in range(5)]
    for name in names:
        alice.create(MAPS, a_map(name, label, key="value"))
    paged = alice.list(MAPS, labels=f"test={label}", chunk=2)
    assert [item["metadata"]["name"] for item in paged.items] == names
    table = alice.list(MAPS, labels=f"test={label}", chunk=2, accept=TABLE)
    assert [row["cells"][0] for row in table.items] == names
    assert table.columns[0]["name"] == "Name"
    bare = alice.list(MAPS, labels=f"test={label}", accept=METADATA)
    assert [sorted({"data", "metadata"} & set(item)) for item in bare.items] == [["metadata"]] * 5
    only = alice.list(MAPS, fields=f"metadata.name={names[3]}")
    assert [item["metadata"]["name"] for item in only.items] == [names[3]]


def test_a_plugins_token_is_renewed_when_a_real_server_refuses_it(
    access_of: AccessOf, tmp_path: Path
) -> None:
    """The first token that the plugin hands out is wrong, the second carol's own."""
    carol = access_of("carol")
    (tmp_path / "token").write_text(carol.token)
    script = """
import json, pathlib, sys
place = pathlib.Path(sys.argv[1])
token = (place / "token").read_text() if (place / "ran").exists() else "expired"
(place / "ran").touch()
api = "client.authentication.k8s.io/v1"
print(json.dumps({"apiVersion": api, "kind": "ExecCredential", "status": {"token": token}}))
"""
    (tmp_path / "plugin.py").write_text(script)
    plugin = Plugin(
        api="client.authentication.k8s.io/v1",
        command=sys.executable,
        args=(str(tmp_path / "plugin.py"), str(tmp_path)),
        interactive="Never",
    )
    with Api(msgspec.structs.replace(carol, token="", plugin=plugin)) as api:
        assert api.list(PODS).version
    assert (tmp_path / "ran").exists()


def test_the_log_of_a_pod_streams_and_ends_with_it(alice: Api, running: Callable[[str], str]) -> None:
    pod = running("for i in 1 2 3; do echo line $i; sleep 0.3; done; printf last")
    with alice.lines(f"{pod}/log", follow="true") as stream:
        assert list(stream) == [b"line 1\n", b"line 2\n", b"line 3\n", b"last"]
    assert list(alice.lines(f"{pod}/log", tailLines="1")) == [b"last"]
    stamped = next(alice.lines(f"{pod}/log", timestamps="true"))
    assert stamped.endswith(b"Z line 1\n")


def test_the_log_of_a_silent_pod_can_be_left(alice: Api, running: Callable[[str], str]) -> None:
    pod = running("sleep 60")
    stream = alice.lines(f"{pod}/log", follow="true")
    threading.Timer(0.3, stream.close).start()
    began = time.monotonic()
    assert list(stream) == []
    assert time.monotonic() - began < 5


def test_commands_run_inside_a_pod(alice: Api, access_of: AccessOf, running: Callable[[str], str]) -> None:
    pod = f"{running('sleep 60')}/exec"
    assert exec_stream.capture(alice, pod, ("sh", "-c", "echo out; echo err >&2; exit 7")) == (
        7,
        b"out\n",
        b"err\n",
    )
    given = os.urandom(300_000)
    assert exec_stream.capture(alice.access, pod, ("cat",), given=given, container="main") == (0, given, b"")
    assert exec_stream.capture(alice, pod, ("echo", "a b", "", "c&d")) == (0, b"a b  c&d\n", b"")
    status, _, said = exec_stream.capture(alice, pod, ("no-such-program",))
    assert (status, said) == (127, b"mpijob: 'no-such-program' is not in the container\n")
    bob = access_of("bob")
    error = told(alice, "run the command", lambda: exec_stream.capture(bob, pod, ("true",)))
    assert isinstance(error, NotAllowed)
    assert "User 'bob' lacks 'get' permission for exec of Pods in namespace 'team-a'" in error.message


def test_a_command_in_a_pod_has_a_terminal(alice: Api, running: Callable[[str], str]) -> None:
    pod = f"{running('sleep 60')}/exec"
    near, far = pty.openpty()
    try:
        with os.fdopen(far, "rb", 0, closefd=False) as stdin:
            out = io.BytesIO()
            argv = ("sh", "-c", "tty >/dev/null && echo terminal; read line; echo got $line")
            os.write(near, b"hello\n")
            assert exec_stream.execute(alice, pod, argv, stdin=stdin, stdout=out, stderr=out, tty=True) == 0
    finally:
        os.close(near)
        os.close(far)
    assert b"terminal\r\n" in out.getvalue()
    assert b"got hello\r\n" in out.getvalue()


def test_a_pod_that_ends_under_a_command_is_told(alice: Api, running: Callable[[str], str]) -> None:
    path = running("sleep 60")
    threading.Timer(1.0, lambda: alice.delete(path, grace_seconds=0)).start()
    began = time.monotonic()
    assert exec_stream.capture(alice, f"{path}/exec", ("sleep", "30"))[0] == 137
    assert time.monotonic() - began < 20
