"""May it, and is there room: the sentences with their numbers, and the arithmetic behind them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.properties import examples

from mpijob import admission
from mpijob.admission.fit import fit
from mpijob.errors import Conflict, NotAllowed, QuotaExceeded, Severity
from mpijob.model import Amounts, Facts, Identity, MPIJob, Quota, Resources
from mpijob.model.platform.cluster import Bound, ClusterFacts

GIB = 1024**3
JANE = Identity("jane")
NO_LAUNCHER = Resources(cpu=0, memory=0)


def a_job(workers: int = 4, cpu: float = 1, memory: str = "1Gi", gpu: int = 0, **fields: Any) -> MPIJob:
    resources = Resources(cpu=cpu, memory=memory, gpu=gpu)
    return MPIJob(
        name="bert",
        namespace="team-cv",
        command=("a",),
        workers=workers,
        resources=resources,
        **{"launcher": NO_LAUNCHER} | fields,
    )


def a_place(cores: float = 1000, memory: int = 1000, gpus: int = 1000, **fields: Any) -> Facts:
    whole = Amounts(cores, memory * GIB, gpus)
    known: dict[str, Any] = {"place": "local", "capacity": whole, "free": whole}
    return Facts(**known | fields)


def refused(job: MPIJob, facts: Facts) -> QuotaExceeded:
    with pytest.raises(QuotaExceeded) as caught:
        admission.admit(job, JANE, facts)
    return caught.value


def test_a_job_that_may_run_and_fits_is_admitted_without_a_word() -> None:
    assert admission.admit(a_job(), JANE, a_place()) == ()


@pytest.mark.security
@pytest.mark.req("A-edge-403", "FR-023", "AC5")
def test_a_user_without_the_right_is_told_so() -> None:
    with pytest.raises(NotAllowed) as caught:
        admission.admit(a_job(), JANE, a_place(may=frozenset({"get", "list"})))
    assert caught.value.message == "User 'jane' lacks 'create' permission for MPIJobs in namespace 'team-cv'"
    assert caught.value.hint


def test_a_name_that_is_taken_is_a_conflict_that_names_a_free_one() -> None:
    with pytest.raises(Conflict, match="'bert' already exists") as caught:
        admission.admit(a_job(), JANE, a_place(taken_names=frozenset({"bert", "bert-2"})))
    assert "bert-3" in caught.value.hint
    assert "delete" in caught.value.hint


@pytest.mark.req("UC1-AF1", "C-quota-text", "D-quota", "FR-RES-001")
def test_cores_beyond_the_quota_are_refused_with_the_link_and_the_largest_shape() -> None:
    quota = Quota("team-cv", cores=256, used=Amounts(cores=16), request_url="https://quota.example/ask")
    error = refused(a_job(workers=64, cpu=8), a_place(quota=quota))
    assert error.message == (
        "Job requires 512 CPU cores, but project quota is 256 cores. "
        "Request quota increase or reduce workers."
    )
    assert "use at most 32 workers" in error.hint
    assert "16 of 256 CPU cores are in use" in error.hint
    assert "https://quota.example/ask" in error.hint
    assert error.findings[0].fixes[0].patch == {"workers": 32}


@pytest.mark.req("C-quota-text", "FR-RES-002")
def test_gpus_beyond_the_quota_are_refused() -> None:
    error = refused(a_job(workers=16, gpu=4), a_place(quota=Quota("team-cv", gpus=32)))
    assert error.message == "Requested 64 GPUs, but project quota is 32. Contact admin or reduce workers."
    assert "at most 8 workers" in error.hint


def test_memory_beyond_the_quota_is_refused_and_every_shortage_told() -> None:
    quota = Quota("team-cv", memory_bytes=32 * GIB, gpus=2)
    error = refused(a_job(workers=4, memory="16Gi", gpu=1), a_place(quota=quota))
    assert error.message.splitlines() == [
        "Requested 4 GPUs, but project quota is 2. Contact admin or reduce workers.",
        "Job requires 64 GiB of memory, but project quota is 32 GiB. "
        "Request quota increase or reduce workers.",
    ]
    assert len(error.findings) == 2
    assert "at most 2 workers" in error.hint


@pytest.mark.req("B-100jobs")
def test_too_many_jobs_are_refused_where_nothing_queues_and_wait_where_it_does() -> None:
    quota = Quota("team-cv", jobs=5, jobs_running=5)
    assert refused(a_job(), a_place(quota=quota, queues=False)).message == "Quota exceeded: 5/5 jobs running"
    (notice,) = admission.admit(a_job(), JANE, a_place(quota=quota))
    assert notice.message.startswith("Quota exceeded: 5/5 jobs running")
    assert notice.severity is Severity.NOTICE
    closed = Quota("team-cv", jobs=0)
    assert refused(a_job(), a_place(quota=closed)).message == "Quota exceeded: 0/0 jobs running"


def test_a_quota_that_is_used_up_makes_a_job_wait_or_refuses_it() -> None:
    quota = Quota("team-cv", gpus=32, used=Amounts(gpus=24))
    job = a_job(workers=8, gpu=4)
    error = refused(job, a_place(quota=quota, queues=False))
    assert error.message == "team-cv: 32 GPUs requested, 8 of 32 free"
    assert error.hint == "use at most 2 workers of this size, or wait for a running job to end"
    assert admission.waiting_sentence(job, a_place(quota=quota)) == "Waiting for quota: 24 of 32 GPUs in use"


def test_more_workers_than_the_place_allows_are_refused() -> None:
    error = refused(a_job(workers=101), a_place())
    assert error.hint == "use at most 100 workers"


@pytest.mark.req("FR-RES-005", "A-edge-gpu", "B-story1-wait")
def test_a_job_that_must_wait_is_told_why_and_how_long() -> None:
    facts = a_place(gpus=8, free=Amounts(1000, 1000 * GIB, 4), wait_estimate_seconds=25 * 60)
    (notice,) = admission.admit(a_job(workers=8, gpu=1), JANE, facts)
    assert notice.message == "Requested 8 GPUs but only 4 available. Estimated wait time: 25 minutes"
    assert notice.severity is Severity.NOTICE


@pytest.mark.req("B-edge-pending", "B-story1-wait")
def test_why_a_job_waits_is_said_in_each_of_its_phases() -> None:
    job = a_job(workers=8, gpu=4)
    facts = a_place(gpus=64, free=Amounts(1000, 1000 * GIB, 24))
    assert admission.insufficient_sentence(job, facts) == "Insufficient GPUs: requested 32, available 24"
    assert admission.availability_sentence(job, facts) == "Waiting for resources. 24/32 GPUs available."
    assert admission.waiting_sentence(a_job(workers=7, gpu=4), facts) == "Waiting for 4 GPUs"
    fewer = a_place(free=Amounts(2, 1 * GIB, 0))
    both = admission.waiting_sentence(a_job(workers=3, gpu=0), fewer)
    assert both == "Waiting for 2 GiB of memory and 1 CPU core"


def test_a_job_behind_others_waits_for_them_and_a_free_one_for_nothing() -> None:
    assert (
        admission.waiting_sentence(a_job(), a_place(waiting_jobs=3))
        == "Waiting for 3 jobs ahead in the queue"
    )
    assert admission.waiting_sentence(a_job(), a_place()) == ""
    assert admission.insufficient_sentence(a_job(), a_place()) == ""
    assert admission.availability_sentence(a_job(), a_place()) == ""


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(None, ""), (0, "1 second"), (45, "45 seconds"), (1500, "25 minutes"), (10_800, "3.0 hours")],
)
def test_a_wait_is_told_in_the_unit_that_suits_it(seconds: float | None, said: str) -> None:
    facts = a_place(gpus=8, free=Amounts(1000, 1000 * GIB, 0), wait_estimate_seconds=seconds)
    (notice,) = admission.wait_notice(a_job(gpu=1), facts)
    assert notice.message.endswith(f"Estimated wait time: {said}" if said else "available.")


def test_what_is_not_free_is_refused_where_nothing_queues() -> None:
    error = refused(a_job(workers=8, gpu=1), a_place(queues=False, free=Amounts(1000, 1000 * GIB, 4)))
    assert error.message == "Requested 8 GPUs but only 4 available."
    assert "at most 4 workers" in error.hint


def test_cores_beyond_one_machine_are_shared_where_that_is_allowed() -> None:
    (notice,) = admission.admit(a_job(workers=16), JANE, a_place(cores=4, oversubscribe=True))
    assert notice.code == "SHARED_CORES"
    assert notice.message == "16 CPU cores requested, but local has 4: 16 ranks share them"
    assert "has 4 in total" in refused(a_job(workers=16), a_place(cores=4)).message


def test_ranks_that_have_a_core_each_are_not_told_to_share_them_with_the_launcher() -> None:
    job = msgspec.structs.replace(a_job(workers=2), launcher=Resources(cpu="100m", memory="256Mi"))
    assert admission.admit(job, JANE, a_place(cores=2, oversubscribe=True)) == ()


@pytest.mark.parametrize(
    ("fields", "said"), [({"memory": "8Gi"}, "32 GiB of memory"), ({"gpu": 2}, "8 GPUs")]
)
def test_memory_and_gpus_beyond_the_machine_are_refused_even_where_cores_are_shared(
    fields: dict[str, Any], said: str
) -> None:
    error = refused(a_job(workers=4, **fields), a_place(memory=16, gpus=4, oversubscribe=True))
    assert f"Requested {said}, but local has" in error.message
    assert "at most 2 workers" in error.hint


def test_a_worker_that_never_fits_is_told_its_size() -> None:
    error = refused(a_job(workers=2, gpu=8), a_place(gpus=4))
    assert "not even 1 worker" in error.hint
    assert "gpu: 8" in error.hint
    assert error.findings[0].fixes == ()


@pytest.mark.req("FR-003")
def test_what_a_job_needs_is_its_workers_and_its_launcher() -> None:
    job = a_job(workers=4, cpu=2, memory="4Gi", gpu=1, launcher=Resources(cpu="500m", memory="512Mi"))
    assert admission.needs(job) == Amounts(8.5, 16 * GIB + GIB // 2, 4)


shapes = st.builds(
    a_job,
    workers=st.integers(1, 100),
    cpu=st.sampled_from([0.1, 0.5, 1, 3, 64]),
    memory=st.sampled_from(["1Mi", "1Gi", "7G", "1.5Gi"]),
    gpu=st.integers(0, 8),
    launcher=st.builds(Resources, cpu=st.sampled_from([0, "100m", 2]), memory=st.sampled_from([0, "256Mi"])),
)
rooms = st.builds(
    Amounts, st.integers(0, 500).map(lambda n: n / 2), st.integers(0, 500 * GIB), st.integers(0, 64)
)


@pytest.mark.thorough
@settings(max_examples=examples(150), deadline=None)
@given(shapes, rooms)
def test_the_largest_shape_fits_and_one_worker_more_does_not(job: MPIJob, room: Amounts) -> None:
    count = admission.max_workers(job, room)
    launcher_fits = admission.needs(job.replace(workers=0)).fits(room)
    assert not launcher_fits or admission.needs(job.replace(workers=count)).fits(room)
    assert not admission.needs(job.replace(workers=count + 1)).fits(room)


@pytest.mark.thorough
@settings(max_examples=examples(150), deadline=None)
@given(shapes, rooms, rooms, st.booleans(), st.booleans())
def test_a_judgement_is_notices_or_a_refusal_with_a_way_out(
    job: MPIJob, capacity: Amounts, free: Amounts, queues: bool, oversubscribe: bool
) -> None:
    facts = Facts(place="local", capacity=capacity, free=free, queues=queues, oversubscribe=oversubscribe)
    try:
        notices = admission.admit(job, JANE, facts)
    except QuotaExceeded as error:
        advice = error.hint
    else:
        advice = "admitted"
        assert all(notice.severity is Severity.NOTICE for notice in notices)
        assert oversubscribe or admission.needs(job).fits(capacity)
    assert advice


def test_a_job_that_asks_for_no_memory_needs_none_of_it() -> None:
    job = a_job(workers=3, cpu=2, memory="none")
    assert admission.needs(job) == Amounts(6.0, 0, 0)
    assert admission.admit(job, JANE, a_place(memory=1)) == ()


def test_a_quota_refuses_a_job_that_does_not_say_what_it_counts() -> None:
    job = a_job(memory="none", launcher=Resources(cpu="none", memory="1Gi"))
    error = refused(job, a_place(quota=Quota("team", memory_bytes=1 << 40)))
    assert [finding.field for finding in error.findings] == ["resources.memory"]
    error = refused(job, a_place(quota=Quota("team", cores=100.0)))
    assert [finding.field for finding in error.findings] == ["launcher.cpu"]
    assert admission.admit(job, JANE, a_place(quota=Quota("team", gpus=1))) == ()


def test_a_default_of_the_namespace_is_what_a_job_gets_that_asks_for_none() -> None:
    bound = Bound(name="defaults", scope="container", resource="memory", default=float(1 << 30))
    facts = a_place(
        quota=Quota("team", memory_bytes=1 << 40), cluster=ClusterFacts(namespace="team", bounds=(bound,))
    )
    assert admission.admit(a_job(memory="none"), JANE, facts) == ()


@pytest.mark.req("FR-RES-005")
def test_a_wait_has_its_reason_apart_and_offers_fewer_workers_only_where_they_would_start() -> None:
    place = a_place(free=Amounts(2, 1000 * GIB, 0))
    short = fit(a_job(4), JANE, place)
    assert (short.reason, short.hint) == ("Waiting for 2 CPU cores", "2 workers of this size would start now")
    assert short.message.startswith(f"{short.reason}; ")
    behind = fit(a_job(4), JANE, a_place(waiting_jobs=2))
    assert (behind.reason, behind.hint) == ("Waiting for 2 jobs ahead in the queue", "")  # they start first
