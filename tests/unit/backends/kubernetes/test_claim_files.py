"""The files of volume claims through a reader pod: what the pod is, what comes out of it, and that it goes.

Its programs are run on this machine, below a folder that stands for the pod's volumes; what a hostile image could send
instead is sent as bytes.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from tests.unit.cluster_support import a_job
from tests.unit.kube_store import Store
from tests.unit.visitor_support import REF, seen_by

from mpijob import Client
from mpijob.backends.kubernetes.actions import claim_files, claim_reader
from mpijob.backends.kubernetes.backend import KubernetesBackend
from mpijob.backends.kubernetes.client import exec_stream, resources
from mpijob.backends.kubernetes.client.api_errors import ApiError
from mpijob.errors import BackendError, MpiJobError, NotAllowed, NotFound, Unsupported
from mpijob.formats.kubernetes import mpijob, reader_pod
from mpijob.formats.kubernetes.metadata import well_known
from mpijob.formats.kubernetes.metadata.well_known import Document, Shape
from mpijob.model import Volume, VolumeKind
from mpijob.model.spec.job import Placement
from mpijob.model.status.audit import AuditQuery
from mpijob.outbound.policy import UNRESTRICTED, Policy, TooLarge
from mpijob.settings import Settings

pytestmark = pytest.mark.req("B-artifacts")

OUT = Volume(mount="/out", kind=VolumeKind.CLAIM, source="results")
PODS = resources.POD.path("team-cv")


class Ran:
    """A command of the reader, run here."""

    def __init__(self, argv: tuple[str, ...], root: Path) -> None:
        words = [word.replace(reader_pod.ROOT, str(root)) for word in argv]
        self._process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=_ENV)
        assert self._process.stdout
        self.stdout: BinaryIO = self._process.stdout  # type: ignore[assignment]  # it is buffered

    def finish(self) -> tuple[int, str]:
        _, told = self._process.communicate()
        return self._process.returncode, told.decode()

    def abandon(self) -> None:
        self._process.kill()
        self._process.communicate()


_ENV = os.environ | {"LC_ALL": "C"}


class Sent:
    """What a hostile pod sends instead."""

    def __init__(self, data: bytes | BinaryIO, status: int = 0, told: str = "") -> None:
        self.stdout = io.BytesIO(data) if isinstance(data, bytes) else data
        self._ended = (status, told)

    def finish(self) -> tuple[int, str]:
        return self._ended

    def abandon(self) -> None: ...


class Cluster(Store):
    """A cluster with one job that wrote to a claim, whose pods run as soon as they are created."""

    def __init__(self, *volumes: Volume, **fields: Any) -> None:
        super().__init__()
        shape = Shape(service_image="services:1", user=1000660000)
        (document,) = mpijob.write(a_job(volumes=volumes or (OUT,), **fields), shape)
        super().create(resources.MPIJOB.path("team-cv"), document)
        self.readers: list[Document] = []
        self.phase = "Running"

    def create(self, path: str, body: Any, **more: Any) -> Document:
        if path.endswith("selfsubjectreviews"):
            return {"status": {"userInfo": {"username": "ann"}}}
        made = super().create(path, body, **more)
        if path == PODS:
            self.readers.append(made)
            self.objects[f"{path}/{made['metadata']['name']}"]["status"] = {"phase": self.phase}
        return made

    @property
    def pods(self) -> list[str]:
        return self.names("pods")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "volumes" / "out").mkdir(parents=True)
    return tmp_path / "volumes"


@pytest.fixture(autouse=True)
def programs(monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    monkeypatch.setattr(exec_stream, "Output", lambda api, path, argv, container: Ran(argv, root))


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def client(cluster: Cluster, tmp_path: Path) -> Client:
    return Client(seen_by(cluster, Policy()), settings=Settings(home=str(tmp_path / "home")))


def wrote(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / "out" / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


# -- listing and fetching ---------------------------------------------------------------------------
def test_files_of_a_claim_are_listed_and_fetched_by_their_paths_in_the_job(
    cluster: Cluster, client: Client, root: Path, tmp_path: Path
) -> None:
    wrote(root, model_bin="12345", logs__a_txt="a", logs__deep__b_txt="b")
    listed = [(one.path, one.size) for one in client.artifacts(REF)]
    assert listed == [("out/logs/a.txt", 1), ("out/logs/deep/b.txt", 1), ("out/model.bin", 5)]
    there = tmp_path / "there"
    assert client.fetch(REF, there, ["out/logs"]) == (there / "out/logs/a.txt", there / "out/logs/deep/b.txt")
    assert sorted(client.fetch(REF, there)) == sorted(there / one for one, _ in listed)
    assert (there / "out/model.bin").read_text() == "12345"
    assert (len(cluster.readers), cluster.pods) == (3, [])


def test_of_a_claim_that_others_fill_too_only_what_changed_since_the_job_was_submitted_is_the_jobs(
    client: Client, root: Path, tmp_path: Path
) -> None:
    wrote(root, data_bin="of others", model_bin="mine")
    os.utime(root / "out/data.bin", (1e9, 1e9))
    assert [one.path for one in client.artifacts(REF)] == ["out/model.bin"]
    assert client.fetch(REF, tmp_path / "there") == (tmp_path / "there/out/model.bin",)
    (named,) = client.fetch(REF, tmp_path / "there", ["out/data.bin"])
    assert named.read_text() == "of others"


def test_links_are_neither_listed_nor_made_and_a_second_name_of_a_file_is_a_copy(
    client: Client, root: Path, tmp_path: Path
) -> None:
    wrote(root, a="text")
    (root / "out" / "latest").symlink_to("/etc/passwd")
    (root / "out" / "b").hardlink_to(root / "out" / "a")
    assert [one.path for one in client.artifacts(REF)] == ["out/a", "out/b"]
    client.fetch(REF, tmp_path / "there", ["out"])
    fetched = sorted((tmp_path / "there/out").iterdir())
    assert [(one.name, one.read_text()) for one in fetched] == [("a", "text"), ("b", "text")]
    assert not fetched[0].samefile(fetched[1])
    with pytest.raises(NotFound):
        client.fetch(REF, tmp_path / "there", ["out/latest"])


def test_names_that_lists_cannot_show_are_left_out_and_odd_ones_are_not(client: Client, root: Path) -> None:
    for name in ("-x", "a b", "größe", "new\nline", "-rf *"):
        (root / "out" / name).write_text("1")
    Path(os.fsdecode(os.fsencode(root / "out") + b"/\xff")).write_text("1")
    assert [one.path for one in client.artifacts(REF)] == ["out/-rf *", "out/-x", "out/a b", "out/größe"]


def test_a_file_with_an_odd_name_is_fetched(client: Client, root: Path, tmp_path: Path) -> None:
    (root / "out" / "-rf *").write_text("1")
    (fetched,) = client.fetch(REF, tmp_path, ["out/-rf *"])
    assert fetched.read_text() == "1"


def test_a_tar_that_can_leave_nothing_out_serves_too(
    client: Client, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, tar = tmp_path / "bin", shutil.which("tar")
    folder.mkdir()
    (folder / "tar").write_text(f'#!/bin/sh\ncase $1 in --exclude*) exit 1 ;; esac\nexec {tar} "$@"\n')
    (folder / "tar").chmod(0o755)
    monkeypatch.setitem(_ENV, "PATH", f"{folder}:{os.environ['PATH']}")
    wrote(root, model_bin="12345")
    (fetched,) = client.fetch(REF, tmp_path / "there", ["out"])
    assert fetched.read_text() == "12345"


def test_many_files_are_fetched_by_several_commands_in_one_pod(
    cluster: Cluster, client: Client, root: Path, tmp_path: Path
) -> None:
    for at in range(600):
        (root / "out" / f"{at:03}-{'x' * 40}").write_text(str(at))
    assert len(client.fetch(REF, tmp_path / "there")) == 600
    assert len(cluster.readers) == 1


@pytest.mark.parametrize("path", ["out/nothing", "other/x", "out", "out/../../etc/passwd"])
def test_a_path_that_the_job_did_not_leave_is_told(client: Client, tmp_path: Path, path: str) -> None:
    with pytest.raises(NotFound, match="the job has no output file"):
        client.fetch(REF, tmp_path / "there", [path])
    assert list((tmp_path / "there").rglob("*")) == []


def test_one_file_is_handed_over_as_it_is(
    cluster: Cluster, client: Client, root: Path, tmp_path: Path
) -> None:
    wrote(root, model_bin="12345")
    client.fetch_file(REF, "out/model.bin", tmp_path / "model")
    assert (tmp_path / "model").read_text() == "12345"
    for path in ("out", "out/nothing"):
        with pytest.raises(NotFound):
            client.fetch_file(REF, path, tmp_path / "other")
    assert not (tmp_path / "other").exists()
    assert cluster.pods == []


def test_looks_at_files_are_in_the_audit(client: Client, root: Path, tmp_path: Path) -> None:
    wrote(root, a="1")
    client.artifacts(REF)
    client.fetch(REF, tmp_path / "there", ["out/a"])
    told = [(one.verb, one.note("path")) for one in client.audit(AuditQuery())]
    assert told == [("artifacts", ""), ("fetch", "out/a")]


def test_after_a_run_nothing_is_started_to_say_what_the_job_left(cluster: Cluster, client: Client) -> None:
    assert client.artifacts(REF, at_hand=True) == ()
    assert cluster.readers == []


def test_claims_that_are_read_only_are_not_what_a_job_left() -> None:
    read_only = OUT.replace(read_only=True)
    with pytest.raises(Unsupported, match="use a volume to keep files"):
        seen_by(Cluster(read_only), Policy()).list_artifacts(REF)


# -- the pod ----------------------------------------------------------------------------------------
@pytest.mark.security
def test_the_reader_is_restricted_mounts_read_only_and_ends_by_itself(
    cluster: Cluster, client: Client, root: Path
) -> None:
    client.artifacts(REF)
    (pod,) = cluster.readers
    spec, (container,) = pod["spec"], pod["spec"]["containers"]
    assert spec["activeDeadlineSeconds"] == claim_reader.READ_SECONDS
    assert spec["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in spec
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] == 1000660000
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["volumeMounts"] == [
        {"name": "claim-0", "mountPath": "/mpijob/volumes/out", "readOnly": True}
    ]
    assert container["image"] == a_job().image
    labels = pod["metadata"]["labels"]
    assert labels[well_known.READER_LABEL] == "bert"
    assert well_known.UID_LABEL not in labels  # the label of the job's network
    (owner,) = pod["metadata"]["ownerReferences"]
    job = cluster.objects[resources.MPIJOB.path("team-cv", "bert")]
    assert (owner["kind"], owner["uid"]) == ("MPIJob", job["metadata"]["uid"])


def test_a_job_of_the_superuser_is_read_by_an_ordinary_user() -> None:
    security = reader_pod._security({"runAsUser": 0, "fsGroup": 5}, 1000660000)
    assert (security["runAsUser"], security["fsGroup"], security["runAsNonRoot"]) == (1000660000, 5, True)
    assert "runAsUser" not in reader_pod._security({}, None)  # OpenShift gives one


def test_the_reader_runs_where_the_job_may_and_where_a_claim_of_one_machine_is_held() -> None:
    placement = Placement(node_selector={"disk": "fast"}, tolerations=({"operator": "Exists"},))
    cluster = Cluster(placement=placement)
    claim = {"metadata": {"name": "results"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
    cluster.create(resources.CLAIM.path("team-cv"), claim)
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "results"}}]
    for name, phase in (("ended", "Succeeded"), ("holds", "Running")):
        spec = {"nodeName": f"node-{name}", "volumes": volumes}
        Store.create(cluster, PODS, {"metadata": {"name": name}, "spec": spec, "status": {"phase": phase}})
    seen_by(cluster, Policy()).list_artifacts(REF)
    spec = cluster.readers[0]["spec"]
    assert (spec["nodeSelector"], spec["tolerations"]) == ({"disk": "fast"}, [{"operator": "Exists"}])
    (term,) = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert term["matchFields"][0]["values"] == ["node-holds"]


def test_a_claim_that_many_machines_mount_leaves_the_place_to_the_scheduler() -> None:
    cluster = Cluster()
    claim = {"metadata": {"name": "results"}, "spec": {"accessModes": ["ReadWriteMany"]}}
    cluster.create(resources.CLAIM.path("team-cv"), claim)
    seen_by(cluster, Policy()).list_artifacts(REF)
    assert "affinity" not in cluster.readers[0]["spec"]


def test_a_reader_that_does_not_start_is_told_with_its_reason_and_removed(
    cluster: Cluster, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim_reader, "START_SECONDS", 0.0)
    cluster.phase = "Pending"
    with pytest.raises(BackendError, match="is not running after 0 s"):
        client.artifacts(REF)
    assert cluster.pods == []


def test_a_reader_whose_image_lacks_a_shell_is_told(cluster: Cluster, client: Client) -> None:
    cluster.phase = "Failed"
    with pytest.raises(BackendError, match="its image has no /bin/sh") as told:
        client.artifacts(REF)
    assert "sh, sleep, find, stat and tar" in told.value.hint
    assert cluster.pods == []


def test_who_may_not_create_pods_is_told_which_right_is_lacking(cluster: Cluster, client: Client) -> None:
    def refused(method: str, path: str) -> None:
        if (method, path) == ("POST", PODS):
            message = (
                'pods is forbidden: User "ann" cannot create resource "pods" in API group "" '
                'in the namespace "team-cv"'
            )
            raise ApiError(message, status=403, reason="Forbidden")

    cluster.before = refused
    with pytest.raises(NotAllowed, match="create"):
        client.artifacts(REF)
    assert [one.refused for one in client.audit(AuditQuery())][-1] is True


@pytest.mark.security
def test_a_reader_whose_creation_was_not_answered_and_one_that_was_left_behind_are_removed(
    cluster: Cluster, client: Client
) -> None:
    label = {well_known.READER_LABEL: "bert"}
    for name, phase in (("old", "Succeeded"), ("other-reads", "Running")):
        pod = {
            "metadata": {"name": name, "namespace": "team-cv", "labels": label},
            "status": {"phase": phase},
        }
        Store.create(cluster, PODS, pod)

    def lost(method: str, path: str) -> None:
        if (method, path) == ("POST", PODS):
            raise ApiError("the connection was closed", ambiguous=True)

    cluster.after = lost
    with pytest.raises(MpiJobError):
        client.artifacts(REF)
    assert cluster.pods == ["other-reads"]


# -- what a hostile image sends ----------------------------------------------------------------------
def archive(*members: tuple[str, bytes, bytes]) -> bytes:
    """Return a tar archive of members: name, kind, contents or the name that it links to."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, kind, data in members:
            entry = tarfile.TarInfo(name)
            entry.type = kind
            if kind == tarfile.REGTYPE:
                entry.size = len(data)
            else:
                entry.linkname = data.decode()
            tar.addfile(entry, io.BytesIO(data) if kind == tarfile.REGTYPE else None)
    return buffer.getvalue()


FILE, LINK, HARD = tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE
Send = Callable[..., KubernetesBackend]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch, cluster: Cluster) -> Send:
    def send(data: bytes | BinaryIO, status: int = 0, told: str = "", policy: Policy = UNRESTRICTED) -> Any:
        monkeypatch.setattr(exec_stream, "Output", lambda *_, **__: Sent(data, status, told))
        return seen_by(cluster, policy)

    return send


@pytest.mark.security
@pytest.mark.parametrize(
    "member",
    [
        ("../../evil", FILE, b"x"),
        ("/etc/evil", FILE, b"x"),
        ("out/../../evil", FILE, b"x"),
        ("other", FILE, b"x"),
        ("outside", FILE, b"x"),
        ("out/x", HARD, b"/etc/passwd"),
        ("out/x", HARD, b"out/../../../etc/passwd"),
    ],
)
def test_what_leads_out_of_what_was_asked_for_ends_the_transfer(
    sent: Send, cluster: Cluster, tmp_path: Path, member: tuple[str, bytes, bytes]
) -> None:
    backend = sent(archive(("out/good", FILE, b"1"), member))
    with pytest.raises(BackendError, match="was not requested"):
        backend.fetch_many(REF, ["out"], tmp_path / "a" / "b")
    assert [one for one in tmp_path.rglob("*") if one.is_file()] == [tmp_path / "a/b/out/good"]
    assert cluster.pods == []


@pytest.mark.security
def test_no_file_is_written_through_a_link_of_the_archive(sent: Send, tmp_path: Path) -> None:
    target = tmp_path / "target"
    backend = sent(archive(("out/dir", LINK, str(target).encode()), ("out/dir/x", FILE, b"1")))
    assert backend.fetch_many(REF, ["out"], tmp_path / "there") == ("out/dir/x",)
    assert not target.exists()
    assert (tmp_path / "there/out/dir/x").read_bytes() == b"1"


@pytest.mark.security
@pytest.mark.parametrize("kind", [LINK, HARD, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE])
def test_links_devices_and_pipes_are_not_made(sent: Send, tmp_path: Path, kind: bytes) -> None:
    backend = sent(archive(("out/odd", kind, b"out/missing"), ("out/good", FILE, b"1")))
    assert backend.fetch_many(REF, ["out"], tmp_path) == ("out/good",)


@pytest.mark.security
def test_a_file_that_comes_twice_ends_the_transfer(sent: Send, tmp_path: Path) -> None:
    backend = sent(archive(("out/x", FILE, b"1"), ("out/x", FILE, b"2")))
    with pytest.raises(BackendError, match="was not requested"):
        backend.fetch_many(REF, ["out/x"], tmp_path)


class Endless(io.RawIOBase):
    """A header that never ends; counts what was read of it."""

    def __init__(self) -> None:
        entry = tarfile.TarInfo("x")
        entry.type, entry.size = tarfile.XHDTYPE, 1 << 32
        self._begin, self.read_bytes = entry.tobuf(tarfile.USTAR_FORMAT), 0

    def read(self, size: int = -1) -> bytes:
        data, self._begin = (self._begin[:size] or b"1").ljust(size, b"1"), self._begin[size:]
        self.read_bytes += len(data)
        return data


@pytest.mark.security
def test_a_header_without_end_is_not_taken_into_memory(sent: Send, tmp_path: Path) -> None:
    stream = Endless()
    with pytest.raises(BackendError, match="tar header of more than 1 MiB"):
        sent(stream).fetch_many(REF, ["out"], tmp_path)
    assert stream.read_bytes <= 1 << 20


@pytest.mark.security
def test_a_server_hands_over_no_more_than_its_administrator_allows(sent: Send, tmp_path: Path) -> None:
    backend = sent(archive(("out/x", FILE, b"12345")), policy=Policy(download_bytes=4))
    with pytest.raises(TooLarge):
        backend.fetch(REF, "out/x", tmp_path / "x")
    assert not (tmp_path / "x").exists()


@pytest.mark.security
def test_a_server_lists_no_more_than_its_administrator_allows(
    client: Client, root: Path, cluster: Cluster
) -> None:
    wrote(root, a="1", b="2", c="3")
    with pytest.raises(TooLarge):
        seen_by(cluster, Policy(listed_objects=2)).list_artifacts(REF)
    assert cluster.pods == []


@pytest.mark.parametrize(
    ("data", "status", "told", "error", "match"),
    [
        (b"no archive at all" * 100, 0, "", BackendError, "invalid tar archive"),
        (b"", 127, "sh: tar: not found", BackendError, "tar: not found"),
        (
            b"",
            1,
            "tar: ./out/x: No such file or directory\ntar: error exit delayed from previous errors",
            NotFound,
            "has no output file 'out/x'",
        ),
        (
            b"",
            2,
            "tar: ./out/x: Cannot stat: No such file or directory",
            NotFound,
            "has no output file 'out/x'",
        ),
        (
            archive(("out/x", FILE, b"1")),
            1,
            "tar: out/x: File shrank by 4 bytes; padding",
            BackendError,
            "shrank",
        ),
        (archive(("out/x", FILE, b"1" * 5000))[:1024], 137, "", BackendError, "137"),
        (archive(("out/x", FILE, b"1" * 5000))[:1024], 0, "", BackendError, "invalid tar archive"),
    ],
)
def test_a_transfer_that_is_not_whole_is_an_error(
    sent: Send, tmp_path: Path, data: bytes, status: int, told: str, error: type[MpiJobError], match: str
) -> None:
    with pytest.raises(error, match=match):
        sent(data, status, told).fetch_many(REF, ["out/x"], tmp_path)


def test_a_file_that_grew_while_it_was_read_is_what_it_was(sent: Send, tmp_path: Path) -> None:
    backend = sent(archive(("out/x", FILE, b"1")), 1, "tar: ./out/x: file changed as we read it\n")
    assert backend.fetch_many(REF, ["out/x"], tmp_path) == ("out/x",)


@pytest.mark.security
@pytest.mark.parametrize(
    "line",
    [b"x 1 ./a\n", b"1 x ./a\n", b"1\n", b"\n", b"1 1 \n", b"1 1 ./" + b"a" * 9000 + b"\n", b"1 1 ./cut"],
)
def test_lines_that_are_no_list_of_files_tell_nothing(line: bytes) -> None:
    assert claim_files._artifact(line) is None


def test_a_list_that_could_not_be_made_is_an_error(sent: Send) -> None:
    with pytest.raises(BackendError, match="find: not found"):
        sent(b"", 127, "sh: find: not found").list_artifacts(REF)
    with pytest.raises(BackendError, match="Permission denied"):
        sent(b"", 1, "find: ./out: Permission denied").list_artifacts(REF)
