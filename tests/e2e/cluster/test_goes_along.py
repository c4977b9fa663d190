"""What goes along with a job on a real cluster: files, variables, secrets and volumes, also into its next attempt."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.cluster.furniture import a_claim
from tests.e2e.cluster.support import PATIENCE, Place, a_job, eventually, own_place, said
from tests.e2e.cluster.test_workloads import EVERY, of_family

from mpijob import Phase
from mpijob.backends.kubernetes.client import resources
from mpijob.errors import NotFound
from mpijob.model import Code, Retry, Role, Secret, Volume, VolumeKind

ODD = {
    "DOLLARS": "$HOME $(MPIJOB_NAME) $$ ${X}",
    "QUOTES": 'it\'s "so" `pwd` \\n \\',
    "LINES": "one\ntwo\n three\n",
    "SPACES": "  a  b  ",
    "EMPTY": "",
    "LETTERS": "größer ✓ 日本",
    "SIGNS": "; | & > < * ? ! # ~ = % : ,",
}
WORDS = (
    "$HOME",
    "$(MPIJOB_NAME)",
    "a  b",
    "*",
    "it's",
    'say "so"',
    "",
    "one\ntwo",
    "größer",
    "-x",
    "--",
    ";",
)
LOOK = """
import json, os, sys
from parts.helper import answer
shm = os.statvfs("/dev/shm")
open("/scratch/mine", "w").write("x")
print(json.dumps({
    "args": sys.argv[1:],
    "env": {name: os.environ.get(name) for name in json.loads(os.environ["WANTED"])},
    "files": sorted(os.listdir(".")),
    "here": os.getcwd(),
    "answer": answer,
    "config": open("/config/greeting").read(),
    "keys": sorted(one for one in os.listdir("/keys") if not one.startswith(".")),
    "shm": shm.f_blocks * shm.f_frsize,
    "user": os.getuid(),
    "host": os.uname().nodename,
    "token": os.path.exists("/var/run/secrets/kubernetes.io"),
}))
"""


@pytest.fixture(scope="module")
def place(kubeconfig: Path) -> Iterator[Place]:
    with own_place(kubeconfig, "along") as place:
        yield place


@pytest.fixture(scope="module", params=EVERY)
def seen(
    request: pytest.FixtureRequest, place: Place, tmp_path_factory: pytest.TempPathFactory
) -> dict[int, Any]:
    """Return what every rank saw in one job that brings as much as it can along."""
    folder = tmp_path_factory.mktemp("code")
    (folder / "parts").mkdir()
    (folder / "parts" / "helper.py").write_text("answer = 42\n")
    (folder / "look.py").write_text(LOOK)
    (folder / "notes.tmp").write_text("not needed")
    name = f"rich-{request.param}"
    place.put(resources.SECRET, f"kept-{request.param}", stringData={"token": "of the cluster", "other": "x"})
    place.put(resources.CONFIG_MAP, f"said-{request.param}", data={"greeting": "hello\n"})
    job = a_job(
        name,
        command=("python3", "look.py"),
        args=WORDS,
        code=Code(path=str(folder), exclude=("*.tmp",), files={"more/inline.txt": "$HOME\n"}),
        env=ODD | {"WANTED": json.dumps([*ODD, "MINE", "KEPT", "MPIJOB_NAME", "OMP_NUM_THREADS"])},
        secrets=(
            Secret(env="MINE", source="env:MPIJOB_TEST_TOKEN"),
            Secret(env="KEPT", source=f"kept-{request.param}/token"),
        ),
        volumes=(
            Volume(mount="/config", kind=VolumeKind.CONFIG, source=f"said-{request.param}"),
            Volume(mount="/keys", kind=VolumeKind.SECRET, source=f"kept-{request.param}"),
            Volume(mount="/scratch", kind=VolumeKind.SCRATCH, size="16Mi"),
            Volume(mount="/dev/shm", kind=VolumeKind.SHM, size="32Mi"),
        ),
        cores_per_rank=2,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MPIJOB_TEST_TOKEN", "of\nthis $machine")
        handle = place.succeeded(of_family(request.param, job))
    return {rank: json.loads("".join(lines)) for rank, lines in said(handle).items()}


@pytest.mark.req("FR-008")
def test_files_of_a_directory_go_along_to_every_rank(seen: dict[int, Any]) -> None:
    for rank in (0, 1):
        assert seen[rank]["answer"] == 42
        assert seen[rank]["files"] == ["look.py", "more", "parts"]


@pytest.mark.security
@pytest.mark.req("FR-003")
def test_variables_and_arguments_arrive_byte_by_byte(seen: dict[int, Any]) -> None:
    for rank in (0, 1):
        assert {name: seen[rank]["env"][name] for name in ODD} == ODD
        assert tuple(seen[rank]["args"]) == WORDS
        assert seen[rank]["env"]["OMP_NUM_THREADS"] == "2"


@pytest.mark.req("AC7", "Q19")
def test_secrets_come_from_this_machine_and_from_the_cluster(seen: dict[int, Any]) -> None:
    for rank in (0, 1):
        assert seen[rank]["env"]["MINE"] == "of\nthis $machine"
        assert seen[rank]["env"]["KEPT"] == "of the cluster"


@pytest.mark.req("D-storage", "AC7")
def test_config_maps_secrets_scratch_and_shared_memory_are_mounted(seen: dict[int, Any]) -> None:
    for rank in (0, 1):
        assert seen[rank]["config"] == "hello\n"
        assert seen[rank]["keys"] == ["other", "token"]
        assert seen[rank]["shm"] == 32 * 1024**2


@pytest.mark.security
@pytest.mark.req("FR-024", "D-scc", "Q18")
def test_ranks_run_as_an_ordinary_user_without_a_token_of_the_cluster(seen: dict[int, Any]) -> None:
    for rank in (0, 1):
        assert seen[rank]["user"] > 0
        assert seen[rank]["token"] is False
    assert seen[0]["host"] != seen[1]["host"]


@pytest.mark.req("FR-RES-004", "B-8", "FR-005", "Q-SEC-003", "SC-010")
def test_a_job_that_is_deleted_leaves_nothing_behind(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPIJOB_TEST_TOKEN", "secret")
    secrets = (Secret(env="MINE", source="env:MPIJOB_TEST_TOKEN"),)
    job = place.running(a_job("gone", "sleep 300", code=Code(files={"x": "y"}), secrets=secrets))
    assert {"gone-mpi-ssh-auth", "gone-mpijob-secrets"} <= {*names(place, resources.SECRET, "gone")}
    job.delete()
    left = [
        names(place, kind, "gone")
        for kind in (resources.TRAINJOB, resources.TRAINING_RUNTIME, resources.JOBSET, resources.POD)
    ]
    assert left == [[], [], [], []]
    rest = (resources.SECRET, resources.CONFIG_MAP, resources.JOB)
    eventually(lambda: not any(names(place, kind, "gone") for kind in rest), "nothing of the job is left")
    with pytest.raises(NotFound):
        job.state()


def names(place: Place, kind: resources.Kind, beginning: str) -> list[str]:
    found = place.api.list(kind.path(place.namespace)).items
    return [one["metadata"]["name"] for one in found if one["metadata"]["name"].startswith(beginning)]


# -- volumes that stay -------------------------------------------------------------------------------
@pytest.mark.req("SC-015", "Q8", "PMV-005", "US5")
def test_a_checkpoint_on_a_claim_survives_a_failed_attempt_and_serves_the_next(place: Place) -> None:
    both_wrote = "until [ -s /data/0 ] && [ -s /data/1 ]; do sleep 0.1; done"
    script = f"f=/data/$MPIJOB_RANK; [ ! -e $f ] || exec cat $f; echo epoch-7 >$f; echo begun; {both_wrote}; exit 3"
    with a_claim(place, "checkpoints") as claim:
        volumes = (Volume(mount="/data", kind=VolumeKind.CLAIM, source=claim),)
        retry = Retry(limit=1, backoff_seconds=1.0)
        job = place.client.submit(a_job("resumes", script, volumes=volumes, retry=retry))
        with place.client.reconciling(job.ref):
            state = job.wait(PATIENCE)
        lines = {(line.attempt, line.text) for line in job.logs(roles=[Role.RANK])}
        reasons = [event.reason for event in job.events()]
        job.delete(0)
    assert (state.phase, state.attempt) == (Phase.SUCCEEDED, 2)
    assert {text for attempt, text in lines if attempt == 2} == {b"epoch-7"}
    assert (1, b"begun") in lines
    assert "Retrying" in reasons


@pytest.mark.req("FR-008")
def test_the_files_and_secrets_of_a_job_serve_its_next_attempt(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MPIJOB_TEST_TOKEN", "of this machine")
    script = '[ "$MINE" = "of this machine" ] || exit 9; [ "$MPIJOB_ATTEMPT" = 2 ] || exit 3; echo carried'
    job = place.client.submit(
        a_job(
            "carries",
            command=("sh", "turn.sh"),
            code=Code(files={"turn.sh": script}),
            secrets=(Secret(env="MINE", source="env:MPIJOB_TEST_TOKEN"),),
            retry=Retry(limit=1, backoff_seconds=1.0),
        )
    )
    with place.client.reconciling(job.ref):
        state = job.wait(PATIENCE)
    lines = {(line.attempt, line.text) for line in job.logs(roles=[Role.RANK])}
    job.delete(0)
    assert (state.phase, state.attempt) == (Phase.SUCCEEDED, 2)
    assert (2, b"carried") in lines
