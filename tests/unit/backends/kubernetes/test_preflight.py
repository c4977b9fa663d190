"""Rights, quotas, limits and queues of a cluster: what is read before a job is sent, and what is said."""

from __future__ import annotations

import pytest
from tests.unit.preflight_support import (
    JANE,
    NAMESPACE,
    SERVED,
    FakeApi,
    a_cluster_queue,
    a_job,
    a_queue,
    a_quota,
    gathered,
    one,
    refused,
    told,
    with_gpus,
)

from mpijob import admission
from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.resources import Kind
from mpijob.errors import NotAllowed, NotFound, QuotaExceeded, Severity
from mpijob.formats.kubernetes.metadata.well_known import Gang
from mpijob.model import Resources


@pytest.fixture
def api() -> FakeApi:
    return with_gpus()


def test_a_job_that_may_run_and_fits_is_admitted_without_a_word(api: FakeApi) -> None:
    assert told(api, a_job()) == ()


# -- rights


@pytest.mark.security
@pytest.mark.req("A-edge-403", "FR-023", "FR-INT-001")
def test_a_user_without_the_right_is_told_which_one_is_missing(api: FakeApi) -> None:
    api.rules = [{"verbs": ["get", "list"], "apiGroups": ["*"], "resources": ["*"]}]
    error = refused(api, a_job(), NotAllowed)
    assert error.message == "User 'jane' lacks 'create' permission for MPIJobs in namespace 'team-cv'"
    assert "create trainjobs.trainer.kubeflow.org" in error.hint
    assert "create trainingruntimes.trainer.kubeflow.org" in error.hint


def test_who_may_not_create_runtimes_is_sent_to_the_other_engine_and_told_so(api: FakeApi) -> None:
    api.rules = [
        {"verbs": ["*"], "apiGroups": ["kubeflow.org"], "resources": ["mpijobs"]},
        {"verbs": ["*"], "apiGroups": ["trainer.kubeflow.org"], "resources": ["trainjobs"]},
        {"verbs": ["get"], "apiGroups": [""], "resources": ["pods", "pods/log"]},
    ]
    found = gathered(api, a_job())
    assert resources.TRAINER_API not in found.around.served
    assert {"create", "logs"} <= found.facts.may
    assert "exec" not in found.facts.may
    notice = one(admission.admit(a_job(), JANE, found.facts), "CLUSTER_NOTICE")
    assert "missing permissions: create trainingruntimes.trainer.kubeflow.org" in notice.message


def test_rules_good_for_single_objects_are_no_right_to_create(api: FakeApi) -> None:
    api.rules = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "resourceNames": ["bert"]}]
    assert "create" not in gathered(api, a_job()).facts.may


def test_an_authorizer_that_cannot_list_its_rules_is_asked_one_by_one(api: FakeApi) -> None:
    api.rules, api.allowed = [], {"create trainjobs", "create trainingruntimes", "get pods/log"}
    facts = gathered(api, a_job()).facts
    assert facts.may == {"create", "logs"}


def test_files_that_go_along_need_the_right_to_create_a_config_map(api: FakeApi) -> None:
    api.rules = [{"verbs": ["*"], "apiGroups": ["trainer.kubeflow.org", "kubeflow.org"], "resources": ["*"]}]
    error = refused(api, a_job(code={"files": {"a.py": "1"}}), NotAllowed)
    assert "create configmaps" in error.hint


def test_a_namespace_that_is_not_there_is_named(api: FakeApi) -> None:
    del api.objects[resources.NAMESPACE.path("", NAMESPACE)]
    assert refused(api, a_job(), NotFound).message == "namespace 'team-cv' does not exist"


# -- quotas and limits


@pytest.mark.req("FR-RES-002", "C-quota-text", "D-quota", "FR-027", "FR-INT-002", "SC-006")
def test_gpus_beyond_the_quota_are_refused_with_the_largest_shape(api: FakeApi) -> None:
    a_quota(api, "compute", {"requests.nvidia.com/gpu": "16"}, {"requests.nvidia.com/gpu": "4"})
    error = refused(api, a_job(workers=8, resources=Resources(gpu=4)), QuotaExceeded)
    assert error.message == "Requested 32 GPUs, but project quota is 16. Contact admin or reduce workers."
    assert "4 of 16 GPUs are in use" in error.hint
    assert error.findings[0].fixes[0].patch == {"workers": 4}


@pytest.mark.req("FR-027", "AC4")
def test_a_used_up_quota_is_refused_without_a_queue_and_waits_with_one(api: FakeApi) -> None:
    a_quota(api, "compute", {"requests.nvidia.com/gpu": "16"}, {"requests.nvidia.com/gpu": "12"})
    job = a_job(workers=2, resources=Resources(gpu=4))
    assert refused(api, job, QuotaExceeded).message == "team-cv: 8 GPUs requested, 4 of 16 free"
    a_queue(api, "gpu", "all")
    waiting = one(told(api, job.replace(queue="gpu")), "WILL_WAIT")
    assert waiting.message == "Waiting for quota: 12 of 16 GPUs in use."


def test_of_several_quotas_the_one_that_can_never_hold_the_job_is_told(api: FakeApi) -> None:
    a_quota(api, "wide", {"requests.cpu": "100"}, {"requests.cpu": "99"})
    a_quota(api, "narrow", {"cpu": "4"}, {"cpu": "0"})
    assert "project quota is 4 cores" in refused(api, a_job(workers=8), QuotaExceeded).message


@pytest.mark.parametrize(
    ("hard", "used", "said", "hint"),
    [
        (
            {"pods": "10"},
            {"pods": "8"},
            "allows 10 pods, 8 are in use, and the job adds 5",
            "at most 1 worker ",
        ),
        (
            {"limits.memory": "4Gi"},
            {"limits.memory": "2Gi"},
            "allows 4 GiB of memory as limits, 2 GiB are in use, and the job adds 4.25 GiB",
            "at most 1 worker ",
        ),
        (
            {"count/trainjobs.trainer.kubeflow.org": "5"},
            {"count/trainjobs.trainer.kubeflow.org": "5"},
            "allows 5 trainjobs.trainer.kubeflow.org objects, 5 are in use, and the job adds 1",
            "delete finished jobs",
        ),
    ],
)
def test_the_other_lines_of_a_quota_count_too(
    api: FakeApi, hard: dict[str, str], used: dict[str, str], said: str, hint: str
) -> None:
    a_quota(api, "compute", hard, used)
    error = refused(api, a_job(), QuotaExceeded)
    assert said in error.message
    assert hint in error.hint


def test_quotas_for_other_pods_do_not_count(api: FakeApi) -> None:
    a_quota(api, "scraps", {"pods": "1"}, {"pods": "1"}, scopes=["BestEffort"])
    a_quota(api, "short", {"pods": "1"}, {"pods": "1"}, scopes=["Terminating"])
    scope = {"scopeName": "PriorityClass", "operator": "In", "values": ["gold"]}
    a_quota(api, "gold", {"pods": "1"}, {"pods": "1"}, scopeSelector={"matchExpressions": [scope]})
    assert told(api, a_job()) == ()
    api.put(resources.PRIORITY_CLASS, "gold", value=10)
    assert "ResourceQuota 'gold'" in refused(api, a_job(priority="gold"), QuotaExceeded).message


@pytest.mark.req("FR-027", "FR-INT-002")
def test_a_worker_beyond_the_limit_range_is_refused_with_the_field_to_change(api: FakeApi) -> None:
    limits = [{"type": "Container", "max": {"memory": "8Gi"}, "min": {"cpu": "50m"}}]
    api.put(resources.LIMIT_RANGE, "sizes", spec={"limits": limits})
    error = refused(api, a_job(resources=Resources(cpu="1", memory="16Gi")), QuotaExceeded)
    assert error.message == (
        "LimitRange 'sizes' allows at most 8 GiB of memory for one container, but each worker requests 16 GiB"
    )
    assert error.findings[0].field == "resources.memory"
    assert error.findings[0].code == "LIMIT_RANGE"


def test_a_launcher_below_the_limit_range_is_refused_too(api: FakeApi) -> None:
    api.put(resources.LIMIT_RANGE, "sizes", spec={"limits": [{"type": "Pod", "min": {"cpu": "500m"}}]})
    error = refused(api, a_job(), QuotaExceeded)
    assert "at least 0.5 CPU cores for one pod, but the launcher requests 0.1" in error.message
    assert error.findings[0].field == "launcher.cpu"


def test_the_launcher_may_use_as_many_cores_as_the_namespace_leaves_it(api: FakeApi) -> None:
    a_quota(api, "compute", {"limits.cpu": "100"}, {})
    assert gathered(api, a_job()).around.launcher_cores == 0.0
    limits = [{"type": "Container", "default": {"cpu": "2"}}]
    api.put(resources.LIMIT_RANGE, "sizes", spec={"limits": limits})
    assert gathered(api, a_job()).around.launcher_cores == 2.0
    limits[0]["max"] = limits[0].pop("default")
    assert gathered(api, a_job()).around.launcher_cores == 2.0
    limits[0] |= {"default": {"cpu": "50m"}}  # below what the launcher requests, which is its limit then
    assert gathered(api, a_job()).around.launcher_cores == 0.05
    limits[0]["maxLimitRequestRatio"] = {"cpu": "3"}
    assert gathered(api, a_job()).around.launcher_cores == 0.0


# -- queues


@pytest.mark.req("FR-028", "FR-RES-001")
def test_a_queue_that_does_not_exist_is_refused_with_those_that_do(api: FakeApi) -> None:
    a_queue(api, "gpu-large", "all")
    error = refused(api, a_job(queue="gpu-lagre"), NotFound)
    assert error.message == "queue 'gpu-lagre' does not exist in namespace 'team-cv'"
    assert "did you mean 'gpu-large'?" in error.hint


@pytest.mark.req("FR-RES-001", "D-quota", "SC-006")
def test_more_than_a_queue_can_ever_give_is_refused(api: FakeApi) -> None:
    a_queue(api, "gpu", "all")
    a_cluster_queue(api, "all", {"cpu": "100", "memory": "1Ti", "nvidia.com/gpu": "16"}, {})
    error = refused(api, a_job(workers=6, queue="gpu", resources=Resources(gpu=4)), QuotaExceeded)
    assert error.message == "Requested 24 GPUs, but queue 'gpu' gives at most 16."
    assert error.findings[0].fixes[0].patch == {"workers": 4}


@pytest.mark.req("FR-RES-005", "A-edge-gpu", "B-edge-pending", "B-story1-wait")
def test_a_full_queue_makes_the_job_wait_and_the_numbers_are_told(api: FakeApi) -> None:
    a_queue(api, "gpu", "all", waiting=2)
    a_cluster_queue(
        api, "all", {"cpu": "100", "memory": "1Ti", "nvidia.com/gpu": "32"}, {"nvidia.com/gpu": "8"}
    )
    job = a_job(workers=8, queue="gpu", resources=Resources(gpu=4))
    facts = gathered(api, job).facts
    waiting = one(admission.admit(job, JANE, facts), "WILL_WAIT")
    assert waiting.message == "Requested 32 GPUs but only 24 available."
    assert admission.insufficient_sentence(job, facts) == "Insufficient GPUs: requested 32, available 24"
    assert facts.waiting_jobs == 2


def test_what_the_cohort_lends_counts_and_what_others_borrow_does_not(api: FakeApi) -> None:
    a_queue(api, "gpu", "mine")
    mine = {"cpu": "100", "memory": "1Ti", "nvidia.com/gpu": {"nominalQuota": "8", "borrowingLimit": "12"}}
    a_cluster_queue(api, "mine", mine, {"nvidia.com/gpu": "4"}, cohort="lab")
    lender = {"nvidia.com/gpu": {"nominalQuota": "16", "lendingLimit": "10"}}
    a_cluster_queue(api, "lender", lender, {"nvidia.com/gpu": "8"}, cohort="lab")
    a_cluster_queue(api, "borrower", {"nvidia.com/gpu": "2"}, {"nvidia.com/gpu": "3"}, cohort="lab")
    a_cluster_queue(api, "stranger", {"nvidia.com/gpu": "100"}, {}, cohort="else")
    facts = gathered(api, a_job(queue="gpu", resources=Resources(gpu=1))).facts
    assert facts.cluster is not None
    assert facts.cluster.queue is not None
    (share,) = [one for one in facts.cluster.queue.shares or () if one.resource == "nvidia.com/gpu"]
    assert (share.most, share.free) == (20, 4 + 8 - 1)


def test_a_queue_without_readable_quota_is_used_and_said_to_be_unknown(api: FakeApi) -> None:
    a_queue(api, "gpu", "all")
    api.refuse(resources.CLUSTER_QUEUE)
    notice = one(told(api, a_job(queue="gpu")), "NOT_READ")
    assert "ClusterQueues (not allowed): the queue's quota and what is free in it" in notice.message


def test_a_stopped_queue_and_one_without_such_a_quota_are_warned_of(api: FakeApi) -> None:
    a_queue(api, "gpu", "all", active=False)
    a_cluster_queue(api, "all", {"cpu": "100", "memory": "1Ti"}, {})
    found = told(api, a_job(queue="gpu", resources=Resources(gpu=1)))
    assert one(found, "QUEUE_CLOSED").message == "queue 'gpu' is not active: ClusterQueue is stopped"
    assert "no quota for nvidia.com/gpu" in one(found, "QUEUE_NO_QUOTA").message


def test_the_queue_called_default_takes_jobs_that_name_none(api: FakeApi) -> None:
    a_queue(api, "default", "all")
    a_cluster_queue(api, "all", {"cpu": "2", "memory": "1Ti"}, {})
    assert "queue 'default' gives at most 2" in refused(api, a_job(), QuotaExceeded).message


def test_a_queue_on_a_cluster_without_kueue_is_only_noted(api: FakeApi) -> None:
    warned = one(told(api, a_job(queue="gpu"), SERVED - {resources.KUEUE_API}), "QUEUE_IGNORED")
    assert warned.severity is Severity.WARNING


def test_a_volcano_queue_makes_volcano_keep_the_gang(api: FakeApi) -> None:
    api.put(Kind("scheduling.volcano.sh/v1beta1", "Queue", "queues", namespaced=False), "gpu")
    served = (SERVED - {resources.KUEUE_API}) | {"scheduling.volcano.sh/v1beta1"}
    found = gathered(api, a_job(queue="gpu"), served)
    assert found.around.gang is Gang.VOLCANO
    assert admission.admit(a_job(queue="gpu"), JANE, found.facts) == ()


@pytest.mark.req("R7", "E-gang")
@pytest.mark.parametrize(
    ("kind", "gang"),
    [
        ("Coscheduling", Gang.COSCHEDULING),
        ("Volcano", Gang.VOLCANO),
        ("Kueue", Gang.NONE),
        ("None", Gang.NONE),
    ],
)
def test_who_starts_workers_together_is_said_by_the_namespaces_limits(kind: str, gang: Gang) -> None:
    api, limits = FakeApi(), Kind("mpijob.dev/v1alpha1", "MPIJobLimits", "mpijoblimits", namespaced=False)
    api.put(limits, NAMESPACE, spec={"gang": {"kind": kind}})
    served = SERVED | {limits.api}
    assert gathered(api, a_job(), served).around.gang is gang
    api.refuse(limits)  # who may not read them has what there was before
    assert gathered(api, a_job(), served).around.gang is Gang.NONE
