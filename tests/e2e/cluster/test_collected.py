"""Logs of real pods that are gone, read from a real Loki, into which their lines were put as collectors put them."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
import yaml
from testbed import build
from tests.e2e.cluster.accounts import an_account, kubeconfig_with
from tests.e2e.cluster.faults import BINDING, ROLE
from tests.e2e.cluster.support import Place, a_job, eventually, image, own_place
from tests.servers import process

from mpijob import Client
from mpijob.backends.kubernetes.backend import KubernetesBackend
from mpijob.errors import NotAllowed, NotFound
from mpijob.model import LogLine
from mpijob.observation.logs import cri
from mpijob.settings import Settings

pytestmark = [pytest.mark.testbed, pytest.mark.long]
PORT = 13100
SPOKEN = 'for i in 1 2 3; do echo "rank $MPIJOB_RANK says $i"; done; echo "and an error" >&2'


@contextmanager
def loki(folder: Path) -> Iterator[str]:
    """A Loki of its own, as it comes for one machine."""
    settings = {
        "auth_enabled": False,
        "server": {"http_listen_address": "127.0.0.1", "http_listen_port": PORT,
                   "grpc_listen_address": "127.0.0.1", "grpc_listen_port": PORT + 1},
        "common": {"path_prefix": str(folder), "replication_factor": 1, "instance_addr": "127.0.0.1",
                   "ring": {"kvstore": {"store": "inmemory"}},
                   "storage": {"filesystem": {"chunks_directory": str(folder / "chunks"),
                                              "rules_directory": str(folder / "rules")}}},
        "schema_config": {"configs": [{"from": "2024-01-01", "store": "tsdb", "object_store": "filesystem",
                                       "schema": "v13", "index": {"prefix": "index_", "period": "24h"}}]},
        "analytics": {"reporting_enabled": False},
    }  # fmt: skip
    (folder / "loki.yaml").write_text(yaml.safe_dump(settings))
    address = f"http://127.0.0.1:{PORT}"
    argv = (build.requested("loki"), f"-config.file={folder / 'loki.yaml'}")
    with process(*argv, log=folder / "log", ends_in=20, cwd=folder):
        eventually(lambda: _answers(f"{address}/ready"), "Loki is ready", 120)
        yield address


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def collect(place: Place, job: str, address: str) -> None:
    """Put the lines of a job's pods into Loki, with the time stamps of the node, as collectors do."""
    streams = []
    for pod in place.pods(job):
        name = pod["metadata"]["name"]
        rows = [line.partition(" ") for line in place.kubectl("logs", name, "--timestamps").splitlines()]
        values = [[str(cri.nanoseconds(stamp.encode())), text] for stamp, _, text in rows]
        labels = {"namespace": place.namespace, "pod": name, "container": "node"}
        streams += [{"stream": labels, "values": values}] if values else []
    body = json.dumps({"streams": streams}).encode()
    asked = urllib.request.Request(f"{address}/loki/api/v1/push", body, {"content-type": "application/json"})
    with urllib.request.urlopen(asked, timeout=20) as answer:
        assert answer.status == 204


@pytest.fixture(scope="module")
def place(kubeconfig: Path) -> Iterator[Place]:
    with own_place(kubeconfig, "collected") as made:
        yield made


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with loki(tmp_path_factory.mktemp("loki")) as found:
        yield found


def lines(client: Client, name: str, **query: object) -> list[tuple[object, ...]]:
    return [said(line) for line in client.logs(name, **query)]  # type: ignore[arg-type]


def with_loki(settings: Settings, address: str) -> Client:
    told = msgspec.structs.replace(settings, loki=address)
    return Client(KubernetesBackend(told), settings=told)


def said(line: LogLine) -> tuple[object, ...]:
    return line.time, line.role, line.worker, line.rank, line.stream, line.attempt, line.text


@pytest.mark.req("C-loki")
@pytest.mark.parametrize(("family", "name"), [("openmpi", "openmpi4"), ("mpich", "mpich")])
def test_logs_of_pods_that_are_gone_come_from_loki(
    place: Place, address: str, family: str, name: str
) -> None:
    job = place.succeeded(a_job(f"said-{name}", SPOKEN, mpi=family, image=image(name)))
    whole = lines(place.client, job.name)
    assert {(line[3], line[6]) for line in whole} >= {(rank, b"rank %d says 3" % rank) for rank in (0, 1)}
    collect(place, job.name, address)
    place.kubectl("delete", "pods", f"--selector=mpijob.dev/job={job.name}", "--wait=true")
    assert lines(place.client, job.name) == []

    reader = with_loki(place.settings, address)
    assert lines(reader, job.name) == whole
    assert lines(reader, job.name, follow=True) == whole
    assert lines(reader, job.name, ranks=[1], tail=1) == [line for line in whole if line[3] == 1][-1:]

    job.delete()
    with pytest.raises(NotFound):
        lines(place.client, job.name)
    assert lines(reader, job.name) == whole
    told = place.mpijob("logs", job.name, MPIJOB_LOKI=address)
    assert told.stdout.count(" says ") == 6, told
    assert "Loki is asked" in told.stderr
    with pytest.raises(NotFound):
        lines(reader, "another")


@pytest.mark.security
@pytest.mark.req("C-loki", "FR-SEC-004")
def test_who_may_not_read_logs_gets_none_from_loki_either(place: Place, address: str) -> None:
    job = place.succeeded(a_job("private", SPOKEN))
    collect(place, job.name, address)
    stranger = kubeconfig_with(place, "stranger", an_account(place, "stranger"))
    rule = {"apiGroups": ["*"], "resources": ["trainjobs", "mpijobs", "pods"], "verbs": ["get", "list"]}
    place.put(ROLE, "sees-jobs", rules=[rule])
    subject = {"kind": "ServiceAccount", "name": "stranger", "namespace": place.namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "sees-jobs"}
    place.put(BINDING, "sees-jobs", roleRef=role, subjects=[subject])
    reader = with_loki(msgspec.structs.replace(place.settings, kubeconfig=str(stranger)), address)
    with pytest.raises(NotAllowed):
        lines(reader, job.name)
    job.delete()
    for name in (job.name, "another"):
        with pytest.raises(NotAllowed):
            lines(reader, name)
