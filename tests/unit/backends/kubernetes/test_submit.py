"""Creating a job's objects: once, wholly or not at all, whatever becomes of the answers."""

from __future__ import annotations

import base64
import io
import os
import tarfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.unit.kube_store import Store

from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api_errors import ApiError
from mpijob.backends.kubernetes.preflight.context import ClusterContext
from mpijob.backends.kubernetes.status import job_objects
from mpijob.backends.kubernetes.submit import code_archive, create_objects, owner_references, planner, retry
from mpijob.errors import Conflict, InvalidJob, MpiJobError, Unsupported
from mpijob.formats.kubernetes import next_attempt
from mpijob.formats.kubernetes.metadata import user_actions, well_known
from mpijob.model import Amounts, Code, Facts, JobRef, MPIJob, Plan, Secret
from mpijob.model.spec.job import Concurrency
from mpijob.settings import ModuleSetting, Settings

SERVED = frozenset({resources.TRAINER_API, resources.JOBSET_API, resources.MPI_OPERATOR_API})
ROOM = Amounts(cores=64, memory_bytes=1 << 40)
FACTS = Facts(place="cluster", capacity=ROOM, free=ROOM)


def a_plan(names: frozenset[str] = frozenset(), **fields: Any) -> Plan:
    job = MPIJob(**{"name": "bert", "namespace": "cv", "image": "x/y:1", "command": ("true",)} | fields)
    around = ClusterContext(served=SERVED, names=names, user=1000)
    return planner.plan(job, FACTS, around, Settings(), Path("/nonexistent"), "cluster")


def test_a_limit_of_jobs_at_once_is_refused_where_the_queue_decides() -> None:
    with pytest.raises(Unsupported, match="its queue decides how many jobs run") as refused:
        a_plan(concurrency=Concurrency(limit=2))
    assert "a queue with a matching quota" in (refused.value.hint or "")


def kept(api: Store) -> list[str]:
    return sorted(address.removeprefix("/apis/").removeprefix("/api/") for address in api.objects)


def test_a_job_brings_its_runtime_and_owns_it() -> None:
    api = Store()
    made, owned = create_objects.submit(api, a_plan())
    owned()
    assert (api.names("trainjobs"), api.names("trainingruntimes")) == (["bert"], ["bert"])
    runtime = api.objects[resources.TRAINING_RUNTIME.path("cv", "bert")]
    assert runtime["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"]


def test_a_plan_submitted_twice_is_one_job() -> None:
    api, plan = Store(), a_plan()
    first = create_objects.submit(api, plan).job
    assert create_objects.submit(api, plan).job["metadata"]["uid"] == first["metadata"]["uid"]
    assert api.names("trainjobs") == ["bert"]


def test_of_two_plans_for_one_name_the_second_is_told_whose_it_is() -> None:
    api = Store()
    create_objects.submit(api, a_plan())
    with pytest.raises(create_objects.Taken):
        create_objects.submit(api, a_plan())
    assert len(kept(api)) == 2


def test_an_answer_that_was_lost_is_looked_up_before_anything_is_repeated() -> None:
    api, plan = Store(), a_plan()

    def lost(method: str, path: str) -> None:
        if path.endswith("/trainjobs"):
            raise ApiError("the connection was closed", ambiguous=True)

    api.after = lost
    create_objects.submit(api, plan)
    assert [path for method, path in api.asked if method == "POST" and path.endswith("/trainjobs")] == [
        resources.TRAINJOB.path("cv")
    ]


def test_a_webhook_that_has_not_heard_of_the_runtime_yet_is_asked_again() -> None:
    api, refusals = Store(), iter([True, True, False])

    def lagging(method: str, path: str) -> None:
        if method == "POST" and path.endswith("/trainjobs") and next(refusals):
            raise ApiError("admission webhook \"v\" denied the request: runtime 'bert' not found", status=403)

    api.before = lagging
    create_objects.submit(api, a_plan())
    assert api.names("trainjobs") == ["bert"]


@pytest.mark.parametrize("trouble", [ApiError("no", status=403), KeyboardInterrupt()])
def test_what_cannot_be_finished_leaves_nothing(trouble: BaseException) -> None:
    api = Store()

    def refused(method: str, path: str) -> None:
        if method == "POST" and path.endswith("/trainjobs"):
            raise trouble

    api.before = refused
    with pytest.raises((MpiJobError, KeyboardInterrupt)):
        create_objects.submit(api, a_plan())
    assert kept(api) == []


def test_who_gives_up_after_the_job_was_made_leaves_nothing_either() -> None:
    api = Store()

    def interrupted(method: str, path: str) -> None:
        if path.endswith("/trainjobs"):
            raise KeyboardInterrupt

    api.after = interrupted
    with pytest.raises(KeyboardInterrupt):
        create_objects.submit(api, a_plan())
    assert kept(api) == []


@pytest.mark.parametrize(("age", "kept_out"), [(3600, False), (5, True)])
def test_what_somebody_left_behind_gives_way_when_it_is_old(age: int, kept_out: bool) -> None:
    api = Store()
    stamp = (datetime.now(UTC) - timedelta(seconds=age)).isoformat()
    *_, runtime, _ = ("", *a_plan().documents)
    left = {**runtime, "metadata": {**runtime["metadata"], "creationTimestamp": stamp}}
    api.create(resources.TRAINING_RUNTIME.path("cv"), left)
    if kept_out:
        with pytest.raises(create_objects.Taken):
            create_objects.submit(api, a_plan())
    else:
        create_objects.submit(api, a_plan())
        assert api.names("trainjobs") == ["bert"]


def test_beside_earlier_jobs_of_its_name_a_job_gets_the_next_number() -> None:
    plan = a_plan(frozenset({"bert", "bert-r2"}))
    assert plan.documents[-1]["metadata"]["name"] == "bert-r3"
    assert plan.documents[-1]["metadata"]["labels"][well_known.JOB_LABEL] == "bert"
    assert plan.hostfile.startswith("bert-r3-node-0-0.bert-r3 slots=1\n")


def test_files_go_along_as_an_archive_that_is_the_same_each_time(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(1)\n")
    plan = a_plan(code=Code(path=str(tmp_path), files={"sub/inline.txt": "x"}))
    api = Store()
    create_objects.submit(api, plan)
    packed = api.objects[resources.CONFIG_MAP.path("cv", "bert-mpijob-code")]["binaryData"]["archive"]
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(packed))) as tar:
        assert sorted(tar.getnames()) == ["sub/inline.txt", "train.py"]
    assert code_archive.archive(plan.job) == code_archive.archive(plan.job)


def parts_of(api: Store) -> dict[str, bytes]:
    """Return what each config map of the cluster holds of an archive."""
    path = resources.CONFIG_MAP.path("cv")
    kept = {one["metadata"]["name"]: one["binaryData"]["archive"] for one in api.list(path).items}
    return {name: base64.b64decode(data) for name, data in kept.items()}


def random_code(folder: Path, size: int) -> Code:
    """Return code that no packing makes smaller."""
    (folder / "data").write_bytes(os.urandom(size))
    return Code(path=str(folder))


def test_large_code_goes_along_in_parts_that_the_job_owns_and_its_pods_join(tmp_path: Path) -> None:
    api, plan = Store(), a_plan(code=random_code(tmp_path, 2 * code_archive.PART_BYTES))
    create_objects.submit(api, plan).owned()
    parts = parts_of(api)
    assert [*parts] == ["bert-mpijob-code", "bert-mpijob-code-2", "bert-mpijob-code-3"]
    assert max(map(len, parts.values())) == code_archive.PART_BYTES
    runtime = api.objects[resources.TRAINING_RUNTIME.path("cv", "bert")]
    assert mounted(runtime) == {*parts}
    pods = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    sources = pods[0]["template"]["spec"]["template"]["spec"]["volumes"][1]["projected"]["sources"]
    paths = {one["configMap"]["name"]: one["configMap"]["items"][0]["path"] for one in sources}
    assert [paths[name] for name in parts] == ["archive.00", "archive.01", "archive.02"]
    with tarfile.open(fileobj=io.BytesIO(b"".join(parts.values()))) as tar:
        content = tar.extractfile("data")
        assert content is not None
        assert content.read() == (tmp_path / "data").read_bytes()
    for name in parts:
        owners = api.objects[resources.CONFIG_MAP.path("cv", name)]["metadata"]["ownerReferences"]
        assert [owner["name"] for owner in owners] == ["bert"]


def test_a_further_attempt_shares_every_part(tmp_path: Path) -> None:
    api = Store()
    create_objects.submit(api, a_plan(code=random_code(tmp_path, code_archive.PART_BYTES))).owned()
    try_again(api)
    assert len(parts_of(api)) == 2
    for name in parts_of(api):
        owners = api.objects[resources.CONFIG_MAP.path("cv", name)]["metadata"]["ownerReferences"]
        assert [owner["name"] for owner in owners] == ["bert", "bert-a2"]
    runtime = api.objects[resources.TRAINING_RUNTIME.path("cv", "bert-a2")]
    assert mounted(runtime) == {*parts_of(api)}


def test_parts_whose_creator_was_killed_are_swept_with_the_job(tmp_path: Path) -> None:
    api, plan = Store(), a_plan(code=random_code(tmp_path, 3 * code_archive.PART_BYTES))
    made = create_objects.submit(api, plan).job
    for name in parts_of(api):
        api.objects[resources.CONFIG_MAP.path("cv", name)]["metadata"].pop("ownerReferences", None)
    owner_references.sweep(api, resources.TRAINJOB, made)
    assert parts_of(api) == {}


def test_a_part_that_cannot_be_made_leaves_nothing(tmp_path: Path) -> None:
    api, plan = Store(), a_plan(code=random_code(tmp_path, 2 * code_archive.PART_BYTES))

    def refused(method: str, path: str) -> None:
        if (method, path) == ("POST", resources.CONFIG_MAP.path("cv")) and len(parts_of(api)) == 2:
            raise ApiError("exceeded quota: maps, requested: 1, used: 2, limited: 2", status=403)

    api.before = refused
    with pytest.raises(MpiJobError):
        create_objects.submit(api, plan)
    assert kept(api) == []


def test_code_that_grew_since_it_was_planned_is_refused_and_code_that_shrank_goes_along(
    tmp_path: Path,
) -> None:
    plan = a_plan(code=random_code(tmp_path, 2 * code_archive.PART_BYTES))
    random_code(tmp_path, 4 * code_archive.PART_BYTES)
    api = Store()
    with pytest.raises(Conflict, match="have grown since it was planned"):
        create_objects.submit(api, plan)
    assert kept(api) == []
    random_code(tmp_path, 10)
    create_objects.submit(api, plan)
    with tarfile.open(fileobj=io.BytesIO(b"".join(parts_of(api).values()))) as tar:
        assert tar.getnames() == ["data"]


def test_small_code_is_not_packed_to_plan_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_archive, "archive", lambda job: pytest.fail("it was packed"))
    a_plan(code=random_code(tmp_path, 600_000))


def test_code_that_compresses_well_needs_one_config_map(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(bytes(5 << 20))
    api = Store()
    create_objects.submit(api, a_plan(code=Code(path=str(tmp_path))))
    assert [*parts_of(api)] == ["bert-mpijob-code"]


def test_more_files_than_a_cluster_takes_are_refused_when_the_job_is_planned(tmp_path: Path) -> None:
    code = random_code(tmp_path, code_archive.LARGEST_ARCHIVE + 1000)
    with pytest.raises(InvalidJob, match=r"a cluster accepts at most 8 ?Mi?B?"):
        a_plan(code=code)


def test_the_largest_code_fits_into_the_parts_that_admission_knows() -> None:
    most = -(-code_archive.LARGEST_ARCHIVE // code_archive.PART_BYTES)
    assert most == well_known.MOST_CODE_PARTS
    names = well_known.code_parts("bert-mpijob-code", most)
    assert {well_known.owner_of_code(name) for name in names} == {"bert"}
    others = ("bert-mpijob-code-1", "bert-mpijob-code-13", "bert-mpijob-codes", "-mpijob-code", "bert")
    assert {well_known.owner_of_code(name) for name in others} == {""}


def test_secrets_of_this_machine_become_a_secret_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "s3cret")
    plan = a_plan(secrets=(Secret(env="KEY", source="env:TOKEN"), Secret(env="OTHER", source="vault/key")))
    assert "s3cret" not in str(plan)
    api = Store()
    create_objects.submit(api, plan)
    kept_secret = api.objects[resources.SECRET.path("cv", "bert-mpijob-secrets")]
    assert kept_secret["data"] == {"KEY": base64.b64encode(b"s3cret").decode()}


def test_a_secret_that_is_not_there_is_named() -> None:
    plan = a_plan(secrets=(Secret(env="KEY", source="env:NO_SUCH_VARIABLE"),))
    with pytest.raises(InvalidJob, match="secret 'KEY': source env:NO_SUCH_VARIABLE does not exist"):
        create_objects.submit(Store(), plan)


def test_a_further_attempt_is_an_object_of_its_own_and_shares_the_files(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(1)\n")
    plan = a_plan(code=Code(path=str(tmp_path)))
    api = Store()
    create_objects.submit(api, plan).owned()
    found = job_objects.find(api, JobRef("cv", "bert"), lambda: SERVED)
    runtime = job_objects.runtime(api, found.job)
    retry.start(api, found, runtime)
    retry.start(api, found, runtime)  # a second controller, too
    assert api.names("trainjobs") == ["bert", "bert-a2"]
    again = job_objects.find(api, JobRef("cv", "bert"), lambda: SERVED)
    assert (again.name, again.ref, len(again.earlier)) == ("bert-a2", found.ref, 1)
    assert [act.reason for act in user_actions.read(again.job)] == [user_actions.RETRYING]
    owners = api.objects[resources.CONFIG_MAP.path("cv", "bert-mpijob-code")]["metadata"]["ownerReferences"]
    assert [owner["name"] for owner in owners] == ["bert", "bert-a2"]


def try_again(api: Store) -> None:
    """Start the next attempt of the job that is there."""
    found = job_objects.find(api, JobRef("cv", "bert"), lambda: SERVED)
    retry.start(api, found, job_objects.runtime(api, found.job))


def test_an_attempt_is_begun_also_by_who_may_not_change_what_it_shares() -> None:
    plan, api = a_plan(code=Code(files={"a.py": "print(1)"})), Store()
    create_objects.submit(api, plan).owned()

    def read_only(method: str, path: str) -> None:
        if method == "PATCH" and "/configmaps/" in path:
            raise ApiError("no", status=403)

    api.before = read_only
    try_again(api)
    assert api.names("trainjobs") == ["bert", "bert-a2"]


def mounted(document: dict[str, Any]) -> set[str]:
    """Return the config maps and secrets that the pods of a runtime use."""
    jobs = document["spec"]["template"]["spec"]["replicatedJobs"]
    pods = [one["template"]["spec"]["template"]["spec"] for one in jobs]
    volumes = [one for pod in pods for one in pod["volumes"]]
    volumes += [source for one in volumes for source in one.get("projected", {}).get("sources", ())]
    files = {one["configMap"]["name"] for one in volumes if "configMap" in one}
    variables = [one for pod in pods for one in pod["containers"][0]["env"]]
    refs = [one["valueFrom"].get("secretKeyRef") for one in variables if "valueFrom" in one]
    return files | {ref["name"] for ref in refs if ref}


@pytest.mark.parametrize("before", [frozenset[str](), frozenset({"bert"})])
def test_every_attempt_mounts_the_files_and_secrets_that_the_first_one_made(
    monkeypatch: pytest.MonkeyPatch, before: frozenset[str]
) -> None:
    monkeypatch.setenv("TOKEN", "s3cret")
    secrets = (Secret(env="KEY", source="env:TOKEN"),)
    plan = a_plan(before, code=Code(files={"a.py": "print(1)"}), secrets=secrets)
    api = Store()
    first = create_objects.submit(api, plan).job["metadata"]["name"]
    for attempt in (2, 3):
        try_again(api)
        runtime = api.objects[resources.TRAINING_RUNTIME.path("cv", f"{first}-a{attempt}")]
        assert mounted(runtime) == {f"{first}-mpijob-code", f"{first}-mpijob-secrets"}
    assert mounted(runtime) == {*api.names("configmaps"), *api.names("secrets")}


def test_an_attempt_follows_also_where_the_first_ones_object_is_gone() -> None:
    api, plan = Store(), a_plan(code=Code(files={"a.py": "print(1)"}))
    create_objects.submit(api, plan).owned()
    try_again(api)
    api.delete(resources.TRAINJOB.path("cv", "bert"))
    try_again(api)
    assert api.names("trainjobs") == ["bert-a2", "bert-a3"]
    runtime = api.objects[resources.TRAINING_RUNTIME.path("cv", "bert-a3")]
    assert mounted(runtime) == {"bert-mpijob-code"}


# -- a failed attempt after which two want to begin the next -----------------------------------------
def a_second_attempt(api: Store) -> tuple[tuple[dict[str, Any], ...], str]:
    """Return the documents of attempt 2 of a job that is there, and the job's uid."""
    plan = a_plan()
    made = create_objects.submit(api, plan)
    made.owned()
    runtime = job_objects.runtime(api, made.job)
    return next_attempt.documents(made.job, runtime, first="bert", attempt=2), plan.uid


def full(method: str, path: str) -> None:
    if method == "POST" and path.endswith("/trainjobs"):
        raise ApiError(
            "exceeded quota: objects, requested: count/trainjobs=1, used: 2, limited: 2", status=403
        )


def test_who_comes_too_late_for_an_attempt_leaves_the_winners_alone_and_takes_it_for_the_own() -> None:
    api = Store()
    plan = a_second_attempt(api)
    won = create_objects.create_attempt(api, *plan)
    api.before = full
    assert create_objects.create_attempt(api, *plan)["metadata"]["uid"] == won["metadata"]["uid"]
    assert (api.names("trainjobs"), api.names("trainingruntimes")) == (["bert", "bert-a2"],) * 2


def test_a_companion_of_an_attempt_that_another_finished_stays() -> None:
    api = Store()
    plan = a_second_attempt(api)

    def overtaken(method: str, path: str) -> None:
        if method == "POST" and path.endswith("/trainjobs"):
            api.before = lambda method, path: None
            create_objects.create_attempt(api, *plan)
            full(method, path)

    api.before = overtaken
    create_objects.create_attempt(api, *plan)
    assert (api.names("trainjobs"), api.names("trainingruntimes")) == (["bert", "bert-a2"],) * 2


def test_an_attempt_that_nobody_can_begin_leaves_nothing() -> None:
    api = Store()
    plan = a_second_attempt(api)
    api.before = full
    with pytest.raises(MpiJobError):
        create_objects.create_attempt(api, *plan)
    assert (api.names("trainjobs"), api.names("trainingruntimes")) == (["bert"], ["bert"])


def test_a_user_who_has_had_enough_leaves_the_attempt_that_another_began() -> None:
    api = Store()
    plan = a_second_attempt(api)
    create_objects.create_attempt(api, *plan)

    def interrupted(method: str, path: str) -> None:
        if method == "POST":
            raise KeyboardInterrupt

    api.before = interrupted
    with pytest.raises(KeyboardInterrupt):
        create_objects.create_attempt(api, *plan)
    assert (api.names("trainjobs"), api.names("trainingruntimes")) == (["bert", "bert-a2"],) * 2


def test_a_plan_that_is_refused_the_second_time_leaves_what_the_first_time_made() -> None:
    api, plan = Store(), a_plan()
    create_objects.submit(api, plan).owned()
    api.before = full
    with pytest.raises(MpiJobError):
        create_objects.submit(api, plan)
    assert (api.names("trainjobs"), api.names("trainingruntimes")) == (["bert"], ["bert"])


@pytest.mark.parametrize("plural", ["trainjobs", "trainingruntimes"])
def test_a_submission_whose_answer_was_lost_for_good_leaves_nothing(plural: str) -> None:
    api, lost = Store(), []

    def unheard(method: str, path: str) -> None:
        if path.endswith(f"/{plural}"):
            lost.append(path)
            raise ApiError("the connection was closed", ambiguous=True)

    def away(method: str, path: str) -> None:
        if method == "GET" and len(lost) == 1:
            lost.append(path)
            raise ApiError("away", status=503)

    api.after, api.before = unheard, away
    with pytest.raises(ApiError):
        create_objects.submit(api, a_plan())
    assert kept(api) == []


def test_the_image_of_a_script_is_that_of_the_module_that_it_loads() -> None:
    script = "#!/bin/bash\n#SBATCH -N 2\nmodule purge\nmodule load gromacs/2024 cmake  # both\nsrun gmx_mpi mdrun\n"
    known = {"gromacs/2024": ModuleSetting(env={"GMX": "1"}, image="x/gromacs:2024")}
    job = MPIJob(name="md", namespace="cv", script="run.sh", code=Code(files={"run.sh": script}))
    around = ClusterContext(served=SERVED, user=1000)
    settings = Settings(image="x/usual:1", modules=known)
    plan = planner.plan(job, FACTS, around, settings, Path("/nonexistent"), "cluster")
    assert plan.job.image == "x/gromacs:2024"
    assert [notice.field for notice in plan.notices if "x/gromacs:2024" in notice.message] == ["image"]
    named = planner.plan(
        job.replace(image="x/mine:1"), FACTS, around, settings, Path("/nonexistent"), "cluster"
    )
    assert named.job.image == "x/mine:1"
    assert 'export GMX="1"' in str(plan.documents)
