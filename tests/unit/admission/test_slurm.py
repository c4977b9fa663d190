"""What Slurm would refuse, or let wait for ever, is refused before: with the numbers; and nothing that fits is."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.slurm_support import a_cluster, a_job, a_node

from mpijob.admission import slurm as admission
from mpijob.errors import Finding, InvalidJob, MpiJobError, NotAllowed, QuotaExceeded
from mpijob.model import Amounts, Facts, Family, MPIJob, Placement, Resources
from mpijob.model.platform.slurm import Limit, Partition, SlurmFacts, layout

MIB, GIB = 1, 1024


def of(workers: int = 2, cpu: float = 1, memory: str = "1Gi", gpu: int = 0, **fields: Any) -> MPIJob:
    return a_job(workers=workers, resources=Resources(cpu=cpu, memory=memory, gpu=gpu), **fields)


def main(**fields: Any) -> Partition:
    return Partition(name="main", **fields)


def refused(job: MPIJob, facts: SlurmFacts) -> MpiJobError:
    with pytest.raises(MpiJobError) as caught:
        admission.refuse(job, facts)
    return caught.value


def over(job: MPIJob, facts: SlurmFacts) -> Finding:
    """Return the one finding for which a job exceeds something."""
    error = refused(job, facts)
    assert isinstance(error, QuotaExceeded)
    (finding,) = error.findings
    assert (finding.code, finding.message, finding.hint) == ("QUOTA_EXCEEDED", error.message, error.hint)
    return finding


def check_fits(job: MPIJob, facts: SlurmFacts) -> None:
    admission.refuse(job, facts)
    assert layout(job, facts.nodes).nodes > 0


def codes(job: MPIJob, facts: SlurmFacts) -> list[str]:
    place = Facts(place="Slurm", capacity=Amounts(), free=Amounts(), slurm=facts)
    return [finding.code for finding in admission.remarks(job, place)]


# -- the partition ----------------------------------------------------------------------------
def test_a_partition_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    facts = SlurmFacts(partitions=("main", "short"))
    error = refused(of(queue="mian"), facts)
    assert isinstance(error, InvalidJob)
    assert "'mian'" in error.message
    assert [(one.code, one.field) for one in error.findings] == [("SLURM_PARTITION", "queue")]
    assert "main" in error.findings[0].hint


def test_a_cluster_without_a_default_partition_says_so() -> None:
    error = refused(of(), SlurmFacts(partitions=("main",)))
    assert [one.code for one in error.findings] == ["SLURM_PARTITION"]
    assert "default" in error.message


@pytest.mark.parametrize(("workers", "fits"), [(1, True), (2, True), (3, False)])
def test_a_partition_takes_jobs_of_so_many_nodes_and_no_more(workers: int, fits: bool) -> None:
    facts = a_cluster(partition=main(max_nodes=2))
    if fits:
        check_fits(of(workers), facts)
        return
    finding = over(of(workers), facts)
    assert "3 nodes" in finding.message
    assert "2 nodes" in finding.message
    assert finding.fixes[0].patch == {"workers": 2}


@pytest.mark.parametrize(("workers", "fits"), [(1, False), (2, True), (3, True)])
def test_a_partition_for_large_jobs_takes_none_that_are_smaller(workers: int, fits: bool) -> None:
    facts = a_cluster(partition=main(min_nodes=2))
    if fits:
        check_fits(of(workers), facts)
        return
    finding = over(of(workers), facts)
    assert ("1 node" in finding.message, "2 or more" in finding.message, finding.field) == (
        True,
        True,
        "workers",
    )


@pytest.mark.parametrize(("seconds", "fits"), [(3599.0, True), (3600.0, True), (3601.0, False), (None, True)])
def test_a_deadline_is_at_most_what_the_partition_allows(seconds: float | None, fits: bool) -> None:
    facts = a_cluster(partition=main(max_seconds=3600.0))
    if fits:
        check_fits(of(deadline_seconds=seconds), facts)
        return
    finding = over(of(deadline_seconds=seconds), facts)
    assert "3601 s" in finding.message
    assert "1 hour" in finding.message
    assert (finding.field, finding.fixes[0].patch) == ("deadline_seconds", {"deadline_seconds": 3600.0})


# -- accounts and QOS -------------------------------------------------------------------------
@pytest.mark.security
@pytest.mark.parametrize(
    ("fields", "partition", "job", "word"),
    [
        (
            {"accounts": ("science", "ops"), "account": "staff"},
            main(),
            {"cost": {"account": "staff"}},
            "'staff'",
        ),
        ({"account": "science"}, main(accounts=("staff",)), {}, "'science'"),
        ({"account": "science"}, main(denied_accounts=("science",)), {}, "'science'"),
        ({"qos": "tiny"}, main(qos=("normal",)), {}, "'tiny'"),
        ({"qos": "tiny"}, main(denied_qos=("tiny", "debug")), {}, "'tiny'"),
        ({"qos": "urgent", "all_qos": ("normal", "tiny"), "account": "science"}, main(), {}, "'urgent'"),
    ],
)
def test_an_account_or_qos_that_may_not_be_used_there_is_refused_by_its_name(
    fields: dict[str, Any], partition: Partition, job: dict[str, Any], word: str
) -> None:
    error = refused(of(**job), a_cluster(partition=partition, **fields))
    assert isinstance(error, NotAllowed)
    assert word in error.message
    assert [one.code for one in error.findings] == ["SLURM_NOT_ALLOWED"]
    assert error.findings[0].field in ("cost.account", "priority")
    assert error.hint


@pytest.mark.parametrize(
    ("fields", "partition", "job"),
    [
        ({"accounts": ("science",), "account": "science"}, main(accounts=("science", "ops")),
         {"cost": {"account": "science"}}),
        ({"account": "science"}, main(denied_accounts=("ops",)), {}),
        ({}, main(accounts=("staff",)), {}),  # the user's account is not known
        ({}, main(), {"cost": {"account": "any"}}),  # the cluster keeps no accounts
        ({"qos": "tiny", "all_qos": ("tiny",)}, main(qos=("tiny",)), {}),
        ({"qos": "tiny"}, main(), {}),
    ],
)  # fmt: skip
def test_an_account_or_qos_that_may_be_used_is_not_refused(
    fields: dict[str, Any], partition: Partition, job: dict[str, Any]
) -> None:
    check_fits(of(**job), a_cluster(partition=partition, **fields))


# -- limits -----------------------------------------------------------------------------------
LARGE = tuple(a_node(f"n{number}", cpus=16, memory_mib=64 * GIB, gpus=4) for number in range(1, 9))


@pytest.mark.parametrize(
    ("limit", "least", "words", "workers"),
    [
        ({"nodes": 3}, 4, ("4 nodes", "3 nodes"), 3),
        ({"group_nodes": 2}, 4, ("4 nodes", "2 nodes", "all its jobs"), 2),
        ({"cpus": 15}, 4, ("16 CPU cores", "15 CPU cores"), 3),
        ({"group_cpus": 8}, 4, ("16 CPU cores", "8 CPU cores", "all its jobs"), 2),
        ({"gpus": 7}, 4, ("8 GPUs", "7 GPUs"), 3),
        ({"group_gpus": 1}, 4, ("8 GPUs", "1 GPU"), 0),
        ({"memory_mib": 8 * GIB - 1}, 4, ("8 GiB",), 3),
        ({"group_memory_mib": 4 * GIB}, 4, ("8 GiB", "4 GiB", "all its jobs"), 2),
    ],
)
def test_a_job_beyond_a_limit_is_refused_with_both_numbers_and_what_would_fit(
    limit: dict[str, int], least: int, words: tuple[str, ...], workers: int
) -> None:
    facts = a_cluster(Limit(owner="QOS tiny", **limit), nodes=0)
    facts = SlurmFacts(partition=facts.partition, limits=facts.limits, nodes=LARGE)
    finding = over(of(least, cpu=4, memory="2Gi", gpu=2), facts)
    assert [word for word in ("QOS tiny", *words) if word not in finding.message] == []
    assert [fix.patch for fix in finding.fixes] == ([{"workers": workers}] if workers else [])
    if workers:
        check_fits(of(workers, cpu=4, memory="2Gi", gpu=2), facts)


@pytest.mark.parametrize(
    "limit",
    [
        {"nodes": 4}, {"cpus": 16}, {"gpus": 8}, {"memory_mib": 8 * GIB}, {"group_nodes": 4}, {"group_cpus": 16},
        {"group_gpus": 8}, {"group_memory_mib": 8 * GIB}, {"seconds": 60.0}, {},
    ],
)  # fmt: skip
def test_a_job_at_a_limit_is_not_refused(limit: dict[str, Any]) -> None:
    facts = SlurmFacts(partition=main(), limits=(Limit(owner="QOS tiny", **limit),), nodes=LARGE)
    check_fits(of(4, cpu=4, memory="2Gi", gpu=2, deadline_seconds=60.0), facts)


def test_a_deadline_is_at_most_what_the_qos_allows() -> None:
    facts = a_cluster(Limit(owner="QOS tiny", seconds=300.0))
    finding = over(of(deadline_seconds=301.0), facts)
    assert ("301 s" in finding.message, "5 minutes" in finding.message) == (True, True)
    assert "QOS tiny" in finding.message


def test_everything_that_is_exceeded_is_told_at_once() -> None:
    facts = a_cluster(
        Limit(owner="account science", cpus=1), Limit(owner="QOS tiny", nodes=1), partition=main(max_nodes=1)
    )
    error = refused(of(2), facts)
    assert [one.code for one in error.findings] == ["QUOTA_EXCEEDED"] * 3
    assert error.message.splitlines() == [one.message for one in error.findings]


# -- the nodes --------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("fields", "fits"),
    [
        ({"workers": 4, "cpu": 4, "memory": "8Gi"}, True),
        ({"workers": 4, "cpu": 5}, False),
        ({"workers": 4, "memory": "8193Mi"}, False),
        ({"workers": 1, "gpu": 1}, False),
        ({"workers": 16}, True),  # four on each node
        ({"workers": 17}, False),
        ({"workers": 8, "cpu": 2, "memory": "4Gi"}, True),
        ({"workers": 8, "cpu": 2, "memory": "4097Mi"}, False),
    ],
)
def test_a_job_is_refused_only_where_no_nodes_could_ever_take_it(fields: dict[str, Any], fits: bool) -> None:
    facts = a_cluster(nodes=4)
    if fits:
        check_fits(of(**fields), facts)
        return
    finding = over(of(**fields), facts)
    assert (finding.field, "main" in finding.message, "4 CPU cores" in finding.message) == (
        "workers",
        True,
        True,
    )


def test_some_nodes_that_are_large_enough_are_offered() -> None:
    nodes = (a_node("n1"), a_node("n2", cpus=16), a_node("n3", cpus=16))
    finding = over(of(3, cpu=8), SlurmFacts(partition=main(), nodes=nodes))
    assert finding.fixes[0].patch == {"workers": 2}
    assert ("3 nodes" in finding.message, "has 2 such" in finding.message) == (True, True)


def test_a_feature_that_too_few_nodes_have_is_named() -> None:
    nodes = (a_node("n1", features=("ib",)), a_node("n2", features=("ib", "big")), a_node("n3"))
    facts = SlurmFacts(partition=main(), nodes=nodes)
    check_fits(of(2, placement=Placement(node_selector={"net": "ib"})), facts)
    finding = over(of(3, placement=Placement(node_selector={"net": "ib"})), facts)
    assert "ib" in finding.message
    assert finding.fixes[0].patch == {"workers": 2}
    check_fits(of(3, placement=Placement(node_selector={"reservation": "night"})), facts)


def test_nodes_that_are_down_today_take_the_job_tomorrow() -> None:
    nodes = tuple(a_node(f"n{number}", usable=False, free_cpus=0) for number in (1, 2))
    facts = SlurmFacts(partition=main(), nodes=nodes)
    check_fits(of(2, cpu=4), facts)
    assert "WILL_WAIT" in codes(of(2, cpu=4), facts)


def test_nodes_that_could_not_be_read_refuse_nobody() -> None:
    facts = SlurmFacts(partition=main(), unread=("nodes",))
    check_fits(of(1000, cpu=1000, gpu=8), facts)
    assert codes(of(deadline_seconds=5.0), facts) == ["NOT_READ"]


# -- what is worth knowing --------------------------------------------------------------------
def test_a_job_that_starts_at_once_and_has_a_deadline_needs_no_remark() -> None:
    assert codes(of(deadline_seconds=60.0), a_cluster()) == []


@pytest.mark.parametrize(
    ("partition", "job", "code"),
    [
        (main(state="DOWN"), {"deadline_seconds": 5.0}, "SLURM_PARTITION_CLOSED"),
        (main(state="DRAIN"), {"deadline_seconds": 5.0}, "SLURM_PARTITION_CLOSED"),
        (main(default_seconds=1800.0), {}, "SLURM_DEFAULT_TIME"),
        (main(max_seconds=86_400.0), {}, "SLURM_DEFAULT_TIME"),
        (main(), {"workers": 8, "deadline_seconds": 5.0}, "SLURM_NOTICE"),
    ],
)
def test_what_differs_from_what_one_expects_is_remarked(
    partition: Partition, job: dict[str, Any], code: str
) -> None:
    assert codes(of(**job), a_cluster(partition=partition)) == [code]


@pytest.mark.parametrize(("busy", "waits"), [(0, False), (2, False), (3, True)])
def test_a_job_that_has_to_wait_is_told_how_many_nodes_are_free(busy: int, waits: bool) -> None:
    nodes = tuple(a_node(f"n{number}", free_cpus=0 if number <= busy else 4) for number in range(1, 5))
    facts = SlurmFacts(partition=main(), nodes=nodes)
    assert codes(of(2, deadline_seconds=5.0), facts) == (["WILL_WAIT"] if waits else [])


def test_workers_of_a_custom_launcher_do_not_share_nodes() -> None:
    facts = a_cluster(nodes=2)
    assert layout(of(4, mpi=Family.CUSTOM), facts.nodes).workers_per_node == 1
    assert layout(of(4), facts.nodes).workers_per_node == 2
