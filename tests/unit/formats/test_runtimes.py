"""The runtimes that ship, the traps that lint finds, and what a trial proves."""

from __future__ import annotations

import copy
import os
import subprocess
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.unit.preflight_support import NAMESPACE, FakeApi

from mpijob.backends.kubernetes.admin import runtimes as cluster
from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api_errors import ApiError
from mpijob.client.admin.runtimes import Runtimes
from mpijob.errors import InvalidJob, NotFound, Severity, Unsupported
from mpijob.formats.kubernetes import manifests
from mpijob.formats.kubernetes.metadata import well_known
from mpijob.formats.kubernetes.metadata.well_known import Document
from mpijob.formats.launch import runtime_scripts
from mpijob.formats.runtimes import builtin, lint, smoke_test
from mpijob.model import Family
from mpijob.settings import Settings

OPENMPI = [one for one in builtin.SHIPPED if one.family is Family.OPENMPI]


def a_runtime() -> Document:
    """Return a runtime without traps."""
    return builtin.document(builtin.shipped("openmpi"), image="example/mpi:1")


def part(runtime: Document, name: str) -> Document:
    return next(one for one in runtime["spec"]["template"]["spec"]["replicatedJobs"] if one["name"] == name)


def pod(runtime: Document, name: str) -> Document:
    found: Document = part(runtime, name)["template"]["spec"]["template"]["spec"]
    return found


def main(runtime: Document, name: str) -> Document:
    found: Document = pod(runtime, name)["containers"][0]
    return found


def broken(change: Callable[[Document], Any]) -> Document:
    runtime = copy.deepcopy(a_runtime())
    change(runtime)
    return runtime


# -- what ships


@pytest.mark.req("D-runtime", "R9")
@pytest.mark.parametrize("one", builtin.SHIPPED, ids=lambda one: one.name)
def test_what_ships_has_none_of_the_traps(one: builtin.Shipped) -> None:
    found = lint.lint(builtin.document(one)) or ()
    assert [trap for trap in found if trap.severity is not Severity.NOTICE] == []


@pytest.mark.parametrize("one", OPENMPI, ids=lambda one: one.name)
def test_a_shipped_runtime_holds_no_word_of_a_job(one: builtin.Shipped) -> None:
    document = builtin.document(one)
    assert document["kind"] == "ClusterTrainingRuntime"
    assert "namespace" not in document["metadata"]
    for job in document["spec"]["template"]["spec"]["replicatedJobs"]:
        template = job["template"]["spec"]["template"]
        assert well_known.JOB_LABEL not in template["metadata"]["labels"]
        names = [item["name"] for item in template["spec"]["containers"][0]["env"]]
        assert len(names) == len(set(names)), "a server-side apply refuses a name twice"
        assert not {"MPIJOB_WORLD", "MPIJOB_SLOTS", "MPIJOB_GPUS"} & set(names)


def test_the_image_and_the_user_are_the_clusters_choice() -> None:
    plain = builtin.document(builtin.shipped("mpijob-horovod"), image="example/own:2", user=1000660000)
    assert {main(plain, name)["image"] for name in ("node", "launcher")} == {"example/own:2"}
    assert pod(plain, "node")["securityContext"]["runAsUser"] == 1000660000
    assert "runAsUser" not in pod(builtin.document(builtin.shipped("horovod")), "node")["securityContext"]
    amd = builtin.document(builtin.shipped("openmpi-gpu"), gpu_kind="amd.com/gpu")
    assert main(amd, "node")["resources"]["limits"]["amd.com/gpu"] == "1"


@pytest.mark.parametrize(("name", "library"), [("mpich", "MPICH"), ("intel", "Intel")])
def test_what_trainer_refuses_ships_as_an_mpijob(name: str, library: str) -> None:
    document = builtin.document(builtin.shipped(name))
    assert document["kind"] == "MPIJob"
    assert document["spec"]["mpiImplementation"] == library


def test_a_runtime_that_does_not_ship_is_named_with_those_that_do() -> None:
    with pytest.raises(NotFound, match="there is no built-in runtime 'opnmpi'") as caught:
        builtin.shipped("opnmpi")
    assert "mpijob-openmpi" in caught.value.hint


# -- the launcher's own text, really run


def launched(folder: Path, *command: str, **env: str) -> list[str]:
    """Run the runtime's launch text in front of a launcher that only says what it was given."""
    hosts = folder / "hostfile"
    hosts.write_text("a-node-0-0.a slots=2\n# said by nobody\na-launcher-0-0.a slots=2\n")
    say = (
        'printf "%s\\n" "$@"; echo "words=${MPIJOB_CENSUS_WORDS:-0} world=$MPIJOB_WORLD slots=$MPIJOB_SLOTS"'
    )
    words = ["/bin/sh", "-c", runtime_scripts.LAUNCH, "mpijob-runtime", say, *command]
    given = {"PATH": os.environ["PATH"], "MPIJOB_HOSTFILE": str(hosts)} | env
    done = subprocess.run(words, env=given, capture_output=True, text=True, timeout=30, check=True)
    return done.stdout.splitlines()


@pytest.mark.req("FR-004")
def test_the_launch_line_is_made_of_the_hostfile_and_the_pods_variables(tmp_path: Path) -> None:
    said = launched(
        tmp_path, "python", "a b.py", LR="0.1 x\nFAKE=1", OMPI_MCA_btl="tcp", KUBERNETES_PORT="tcp://x"
    )
    line = said[:-1]
    assert line[:3] == ["mpirun", "--hostfile", str(tmp_path / "hostfile")]
    exported = {name for flag, name in pairwise(line) if flag == "-x"}
    assert {"LR", "PATH", "MPIJOB_CENSUS", "MPIJOB_WORLD", "MPIJOB_SLOTS"} <= exported
    assert not exported & {"FAKE", "OMPI_MCA_btl", "KUBERNETES_PORT", "PWD", "HOME"}
    assert line[-6:] == ["-n", "4", "/bin/sh", well_known.SHIM, "python", "a b.py"]
    assert said[-1] == "words=0 world=4 slots=2"


@pytest.mark.parametrize("own", ["mpirun", "/usr/bin/mpiexec", "horovodrun", "deepspeed"])
def test_a_command_with_its_own_launcher_is_run_as_it_is_behind_the_census(tmp_path: Path, own: str) -> None:
    said = launched(tmp_path, own, "-n", "4", "./solver")
    line, told = said[:-1], said[-1]
    words = int(told.split()[0].removeprefix("words="))
    assert line[words:] == [own, "-n", "4", "./solver"]
    assert line[:words][-3:] == ["/bin/sh", well_known.SHIM, "true"]


def test_the_agent_takes_the_key_once_also_when_many_start_at_a_time(tmp_path: Path) -> None:
    keys, home, tools = (tmp_path / name for name in ("keys", "home", "bin"))
    for folder in (keys, home / ".ssh", tools):
        folder.mkdir(parents=True)
    (keys / "id_rsa").write_text("secret\n")
    (keys / "id_rsa.pub").write_text("ecdsa AAAA\n")
    ssh = tools / "ssh"
    ssh.write_text('#!/bin/sh\ncat "$HOME_DIR/.ssh/id" "$HOME_DIR/.ssh/known_hosts"\n')
    ssh.chmod(0o755)
    agent = tmp_path / "agent"
    agent.write_text(runtime_scripts.agent(str(home), str(keys)))
    env = {"PATH": f"{tools}:{os.environ['PATH']}", "HOME_DIR": str(home)}
    started = [
        subprocess.Popen(["/bin/sh", str(agent), "worker"], env=env, stdout=subprocess.PIPE, text=True)
        for _ in range(8)
    ]
    assert {one.communicate(timeout=30)[0] for one in started} == {"secret\nmpijob ecdsa AAAA\n"}
    assert (home / ".ssh/id").stat().st_mode & 0o777 == 0o600


# -- manifests


def test_manifests_are_read_as_the_server_reads_them() -> None:
    text = 'kind: List\nitems:\n- {kind: A, n: 2, s: "2", f: 1.5, t: true, z: null, q: 500m}\n---\nkind: B\n'
    assert manifests.read(text) == (
        {"kind": "A", "n": 2, "s": "2", "f": 1.5, "t": True, "z": None, "q": "500m"},
        {"kind": "B"},
    )


@pytest.mark.security
@pytest.mark.parametrize(
    "text", ["a: &x 1\nkind: *x\n", "!!python/object:os.system {}\n", "- 1\n", "kind: 1\n"]
)
def test_hostile_and_shapeless_manifests_are_refused(text: str) -> None:
    with pytest.raises(InvalidJob):
        manifests.read(text, "r.yaml")


# -- trial


@pytest.mark.req("D-validator")
def test_a_trial_uses_the_runtime_as_it_is() -> None:
    runtime = a_runtime()
    ours = smoke_test.document(runtime, "try", NAMESPACE)
    assert ours["spec"]["runtimeRef"]["name"] == "mpijob-openmpi"
    assert "command" not in ours["spec"]["trainer"]
    main(runtime, "launcher")["command"] = ["sleep"]
    foreign = smoke_test.document(runtime, "try", NAMESPACE)
    assert foreign["spec"]["trainer"]["command"] == ["mpirun"]
    assert "--hostfile" in foreign["spec"]["trainer"]["args"]


@pytest.mark.parametrize(
    ("said", "holds"),
    [
        ("mpijob-trial rank=0 size=2 host=a\nmpijob-trial rank=1 size=2 host=b\n", True),
        ("mpijob-trial rank=0 size=2 host=a\nmpijob-trial rank=1 size=2 host=a\n", False),
        ("mpijob-trial rank=0 size=1 host=a\nmpijob-trial rank=0 size=1 host=b\n", False),
        ("", False),
    ],
)
def test_a_trial_proves_a_world_on_several_nodes(said: str, holds: bool) -> None:
    assert smoke_test.proof(said).holds is holds


class Trial(FakeApi):
    """A cluster that ends a trial job as it is told, and keeps what is left behind."""

    def __init__(self, ends: str, log: str, unseen: int = 0) -> None:
        super().__init__()
        self.ends, self.log, self.unseen = ends, log, unseen
        self.deleted: list[str] = []

    def create(self, path: str, body: Any, **more: Any) -> Document:
        if self.unseen:
            self.unseen -= 1
            raise ApiError(
                "webhook denied the request: runtime 'x' not found", status=403, reason="Forbidden"
            )
        made = super().create(path, body, **more)
        name = body["metadata"]["name"]
        condition = {"type": self.ends, "status": "True", "message": "jobset failed"}
        self.objects[f"{path}/{name}"]["status"] = {"conditions": [condition]} if self.ends else {}
        labels = {"jobset.sigs.k8s.io/jobset-name": name, "jobset.sigs.k8s.io/replicatedjob-name": "launcher"}
        waiting = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}}
        status = {} if self.log else {"containerStatuses": [waiting]}
        self.put(resources.POD, f"{name}-launcher-0-0-x", labels=labels, status=status)
        return made

    def raw(self, path: str, *, accept: str = "", **query: str) -> bytes:
        if not self.log:
            raise ApiError("container is waiting to start", status=400)
        return self.log.encode()

    def delete(self, path: str, **more: Any) -> None:
        self.deleted.append(path)


GOOD = "mpijob-trial rank=0 size=2 host=a\nmpijob-trial rank=1 size=2 host=b\n"


@pytest.mark.parametrize(
    ("ends", "log", "code", "said"),
    [
        ("Complete", GOOD, "RUNTIME_OK", "2 of 2 ranks on 2 of 2 nodes"),
        (
            "Complete",
            GOOD.replace("=b", "=a"),
            "RUNTIME_TRIAL",
            "completed, but with 2 of 2 ranks on 1 of 2 nodes",
        ),
        ("Failed", "ssh: connect refused\n", "RUNTIME_TRIAL", "the test job failed: jobset failed"),
        ("", "", "RUNTIME_TRIAL", "the test job timed out"),
    ],
)
def test_a_trial_is_judged_by_its_world_and_leaves_nothing(ends: str, log: str, code: str, said: str) -> None:
    api = Trial(ends, log)
    runtime = a_runtime()
    (verdict,) = cluster.run_test(api, runtime, NAMESPACE, seconds=0.05, pause=lambda _: None)
    assert verdict.code == code
    assert said in verdict.message
    assert len(api.deleted) == 1
    quoted = {"": "ImagePullBackOff not found", "Failed": "ssh: connect refused"}.get(ends, "")
    assert quoted in " ".join(verdict.evidence)


def test_a_runtime_that_the_webhook_does_not_see_yet_is_waited_for() -> None:
    api = Trial("Complete", GOOD, unseen=2)
    (verdict,) = cluster.run_test(api, a_runtime(), NAMESPACE, seconds=1, pause=lambda _: None)
    assert verdict.code == "RUNTIME_OK"


# -- on a cluster


def test_runtimes_of_one_job_and_of_other_kinds_are_not_listed() -> None:
    api = FakeApi()
    api.put(resources.CLUSTER_RUNTIME, "mpi", spec={"mlPolicy": {"mpi": {}}})
    api.put(resources.CLUSTER_RUNTIME, "torch", spec={"mlPolicy": {"torch": {}}})
    api.put(
        resources.TRAINING_RUNTIME,
        "bert",
        labels={well_known.JOB_LABEL: "bert"},
        spec={"mlPolicy": {"mpi": {}}},
    )
    api.put(resources.TRAINING_RUNTIME, "own", spec={"mlPolicy": {"mpi": {}}})
    assert [one["metadata"]["name"] for one in cluster.list_runtimes(api, NAMESPACE)] == ["mpi", "own"]
    api.refuse(resources.CLUSTER_RUNTIME)
    assert [one["metadata"]["name"] for one in cluster.list_runtimes(api, NAMESPACE)] == ["own"]
    with pytest.raises(NotFound, match="no MPI runtime 'x'"):
        cluster.find(api, "x", NAMESPACE)


def test_an_mpijob_cannot_be_installed_as_a_runtime() -> None:
    with pytest.raises(InvalidJob, match="is not a runtime object"):
        cluster.install(FakeApi(), builtin.document(builtin.shipped("intel")))


# -- for those who type


def test_without_a_cluster_what_ships_is_listed_shown_and_linted(tmp_path: Path) -> None:
    here = Runtimes(Settings(engine="local"))
    assert [one.name for one in here.list()] == [one.name for one in builtin.SHIPPED]
    assert here.show("openmpi", image="example/mpi:1")["kind"] == "ClusterTrainingRuntime"
    assert set(here.lint()) == {one.name for one in builtin.SHIPPED}
    with pytest.raises(Unsupported, match="requires a cluster"):
        here.test("openmpi")


@pytest.mark.thorough
def test_a_file_with_traps_is_linted_and_not_installed(tmp_path: Path) -> None:
    import yaml

    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(broken(lambda one: one["spec"]["mlPolicy"].update(numNodes=4))))
    here = Runtimes(Settings(engine="local"))
    ((label, found),) = here.lint((str(path),)).items()
    assert label == f"{path}: mpijob-openmpi"
    assert found[0].code == "RUNTIME_NODES"
    with pytest.raises(InvalidJob, match="gets 4 launchers"):
        here.install(str(path))
