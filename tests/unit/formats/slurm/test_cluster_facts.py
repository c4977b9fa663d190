"""What Slurm's commands say of a cluster, gathered for one job: its partition, its account, its QOS, its limits."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.slurm_support import a_job

from mpijob.formats.slurm import cluster_facts
from mpijob.model.platform.slurm import SlurmFacts

PARTITIONS = (
    "PartitionName=main Default=YES MaxTime=1-00:00:00 State=UP TotalCPUs=16 TotalNodes=4\n"
    "PartitionName=short Default=NO MaxTime=00:05:00 State=UP TotalCPUs=4 TotalNodes=1\n"
)
ACCOUNTS = (
    "science||normal,high,tiny|normal|||cpu=8||\n"
    "science|short|tiny|tiny|||||\n"
    "ops||normal|normal|||||cpu=100\n"
)
QOS = "normal|0|||||\nhigh|100|||||\ntiny|1|node=1|00:05:00|||\n"
CONFIG = (
    "ClusterName             = bed\nSLURM_VERSION           = 22.05.8\nKillWait                = 45 sec\n"
)
EVERYTHING = {
    "partitions": PARTITIONS,
    "accounts": ACCOUNTS,
    "QOS": QOS,
    "config": CONFIG,
    "mpi": "none\npmi2\n",
    "nodes": "",
}


def of(usual: str = "", said: dict[str, str] = EVERYTHING, **fields: Any) -> SlurmFacts:
    return cluster_facts.read(a_job(**fields), said, usual)


def owners(facts: SlurmFacts) -> list[str]:
    return [limit.owner for limit in facts.limits]


def test_what_the_cluster_says_of_itself_is_kept() -> None:
    facts = of()
    assert (facts.cluster, facts.version, facts.kill_wait_seconds) == ("bed", "22.05.8", 45.0)
    assert (facts.partitions, facts.mpi, facts.unread) == (("main", "short"), ("none", "pmi2"), ())


@pytest.mark.parametrize(
    ("queue", "usual", "name"),
    [
        ("", "", "main"),
        ("short", "", "short"),
        ("", "short", "short"),
        ("main", "short", "main"),
        ("night", "", None),
    ],
)
def test_a_job_goes_to_its_own_partition_then_the_usual_one_then_the_default(
    queue: str, usual: str, name: str | None
) -> None:
    partition = of(usual, queue=queue).partition
    assert (partition.name if partition else None) == name


def test_the_limits_are_those_of_the_account_and_of_the_qos_that_is_used() -> None:
    assert owners(of()) == ["account science", "QOS normal"]
    assert of().limits[0].cpus == 8
    assert owners(of(cost={"account": "ops"})) == ["account ops", "QOS normal"]


def test_an_association_of_a_partition_holds_there_alone() -> None:
    assert owners(of(queue="short")) == ["account science", "account science", "QOS normal"]


@pytest.mark.parametrize(
    ("priority", "qos"),
    [("high", "high"), (0, ""), ("normal", ""), ("tiny", "tiny"), ("low", ""), ("vip", "vip"), (-5, "")],
)
def test_a_priority_means_the_qos_of_that_name(priority: str | int, qos: str) -> None:
    assert of(priority=priority).qos == qos


def test_a_cluster_without_accounting_has_no_limits_and_says_what_was_not_read() -> None:
    facts = of(said={"partitions": PARTITIONS})
    assert (facts.limits, facts.accounts, facts.qos, facts.nodes) == ((), (), "", ())
    assert facts.unread == ("accounts", "QOS", "nodes")
    assert facts.kill_wait_seconds == 30.0


def test_a_partition_that_there_is_not_has_no_nodes() -> None:
    facts = of(queue="night")
    assert (facts.partition, facts.nodes, facts.partitions) == (None, (), ("main", "short"))
