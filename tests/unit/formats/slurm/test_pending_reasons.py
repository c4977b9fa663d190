"""Why a job waits: each reason that Slurm has, whether waiting helps, and reasons that nobody knows yet."""

from __future__ import annotations

import re

import pytest

from mpijob.formats.slurm.pending_reasons import Outlook, explain

UNKNOWN = "Slurm says: "
REASONS = {
    Outlook.TURN: """None Priority Resources Dependency BeginTime Licenses Reservation Prolog Cleaning SchedDefer
        JobArrayTaskLimit FedJobLock BurstBufferStageIn BurstBufferResources PowerNotAvail PowerReserved
        BlockFreeAction QOSJobLimit QOSResourceLimit QOSTimeLimit QOSGrpCpuLimit QOSGrpMemLimit QOSGrpNodeLimit
        QOSGrpGRES QOSGrpJobsLimit QOSGrpSubmitJobsLimit QOSGrpWallLimit QOSGrpCPURunMinutesLimit QOSMaxCpuPerUserLimit
        QOSMaxGRESPerUser QOSMaxJobsPerUserLimit QOSMaxSubmitJobPerUserLimit QOSMaxMemoryPerUser QOSMaxNodePerUserLimit
        AssocGrpCpuLimit AssocGrpNodeLimit AssocGrpMemLimit AssocGrpGRES AssocGrpJobsLimit AssocMaxJobsLimit
        AssociationJobLimit AssociationResourceLimit AssociationTimeLimit MaxCpuPerAccount MaxGRESPerAccount
        MaxMemoryPerAccount MaxNodePerAccount MaxJobsPerAccount MaxSubmitJobsPerAccount MaxBillingPerAccount""",
    Outlook.ADMIN: """ReqNodeNotAvail PartitionDown PartitionInactive NodeDown FrontEndDown JobHeldAdmin BlockMaxError
        SystemFailure ReservationDeleted AccountingPolicy InactiveLimit QOSGrpCPUMinutesLimit AssocGrpCPUMinutesLimit
        AssocGrpGRESMinutes""",
    Outlook.USER: "JobHeldUser JobHoldMaxRequeue",
    Outlook.NEVER: """PartitionTimeLimit PartitionNodeLimit PartitionConfig BadConstraints DependencyNeverSatisfied
        InvalidAccount InvalidQOS AccountNotAllowed QOSNotAllowed MaxMemPerLimit DeadLine QOSUsageThreshold TimeLimit
        OutOfMemory NonZeroExitCode JobLaunchFailure QOSMaxCpuPerJobLimit QOSMaxCpuPerNode QOSMaxGRESPerJob
        QOSMaxGRESPerNode QOSMaxMemoryPerJob QOSMaxNodePerJobLimit QOSMaxWallDurationPerJobLimit
        QOSMaxCpuMinutesPerJobLimit QOSMinCpuNotSatisfied QOSMinGRES QOSMinMemory AssocMaxCpuPerJobLimit
        AssocMaxNodePerJobLimit AssocMaxWallDurationPerJobLimit AssocMaxMemPerJob AssocMaxGRESPerJob""",
}
KNOWN = [(reason, outlook) for outlook, words in REASONS.items() for reason in words.split()]


@pytest.mark.req("FR-OBS-005")
@pytest.mark.parametrize(("reason", "outlook"), KNOWN)
def test_each_reason_of_slurm_is_explained_in_words_with_what_becomes_of_the_job(
    reason: str, outlook: Outlook
) -> None:
    meaning = explain(reason)
    assert meaning.outlook is outlook
    assert reason not in meaning.message
    assert meaning.hint
    assert not re.search(r"[a-z][A-Z]", meaning.message)


@pytest.mark.parametrize(
    ("reason", "outlook", "detail"),
    [
        ("ReqNodeNotAvail, UnavailableNodes:n[1-4]", Outlook.ADMIN, "UnavailableNodes:n[1-4]"),
        ("ReqNodeNotAvail, Reserved for maintenance", Outlook.ADMIN, "Reserved for maintenance"),
        (
            "Job's account not permitted to use this partition (closed allows staff not science)",
            Outlook.NEVER,
            "closed allows staff not science",
        ),
        (
            "Job's QOS not permitted to use this partition (short allows debug not normal)",
            Outlook.NEVER,
            "debug",
        ),
        ("launch failed requeued held", Outlook.USER, "prolog"),
        ("job requeued in held state", Outlook.USER, "held"),
        (
            "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions",
            Outlook.ADMIN,
            "drained",
        ),
    ],
)
def test_whole_sentences_of_slurm_are_known_by_their_beginning(
    reason: str, outlook: Outlook, detail: str
) -> None:
    meaning = explain(reason)
    assert meaning.outlook is outlook
    assert detail in meaning.message


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("QOSMaxCpuPerJobLimit", ("CPUs", "QOS", "one job")),
        ("QOSMaxGRESPerNode", ("GPUs", "QOS", "one node")),
        ("AssocGrpMemLimit", ("memory", "account", "together")),
        ("AssocMaxWallDurationPerJobLimit", ("time", "account", "one job")),
        ("QOSMaxJobsPerUserLimit", ("jobs", "QOS", "one user's")),
        ("MaxCpuPerAccount", ("CPUs", "account")),
        ("QOSGrpCPUMinutesLimit", ("CPUs times minutes", "QOS")),
        ("QOSMinCpuNotSatisfied", ("a minimum of CPUs", "QOS")),
    ],
)
def test_a_limit_says_whose_it_is_and_of_what(reason: str, words: tuple[str, ...]) -> None:
    message = explain(reason).message
    assert [word for word in words if word not in message] == []


@pytest.mark.parametrize(
    "reason",
    [
        "WaitingForGodot",
        "PriorityBoost",
        "DependencyGraphTooDeep",
        "JobIsTooBlue",
        "JobHeld by the moon",
        "MaxPatience",
        "MinimumPatienceNotReached",
        "ResourceShapeUnknown",
        "TimeTravelDenied",
        "Job was moved; rm -rf /",
        "",
        "\x1b[2J",
        "Nodes",
        "QOS",
    ],
)
def test_a_reason_that_nobody_knows_is_told_as_slurm_says_it(reason: str) -> None:
    meaning = explain(reason)
    assert meaning.outlook is Outlook.TURN
    assert meaning.message == f"{UNKNOWN}{reason}"


@pytest.mark.security
def test_a_very_long_reason_is_read_in_time_that_grows_with_it() -> None:
    reason = "QOSMax" + "PerJobMinutesPerNode" * 5_000 + "!"
    assert explain(reason).message.startswith(UNKNOWN)


def test_a_word_that_only_begins_as_a_known_one_does_is_not_taken_for_it() -> None:
    assert explain("ReservationDeleted").outlook is Outlook.ADMIN
    assert explain("Reservation").outlook is Outlook.TURN
    assert explain("TimeLimits").message.startswith(UNKNOWN)
    assert explain("DependencyNeverSatisfied").outlook is Outlook.NEVER


def test_what_can_be_done_differs_by_what_becomes_of_the_job() -> None:
    reasons = ("Priority", "NodeDown", "JobHeldUser", "BadConstraints", "QOSGrpCpuLimit")
    hints = {reason: explain(reason).hint for reason in reasons}
    assert len(set(hints.values())) == 5
    assert "resume" in hints["JobHeldUser"]
    assert "limits" in hints["QOSGrpCpuLimit"]
