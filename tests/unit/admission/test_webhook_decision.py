"""What is judged when a job reaches a cluster, and how it is told."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from tests.unit.incoming_support import (
    RULE,
    UID,
    Knowing,
    a_job,
    a_review,
    applied,
    asked_about,
    documents,
    limited,
    refused,
)

from mpijob.admission import webhook as judgement
from mpijob.backends.kubernetes.client import api_errors
from mpijob.backends.kubernetes.client.api_errors import ApiError
from mpijob.cluster.webhook import admission_review
from mpijob.errors import Conflict, MpiJobError, NotAllowed, QuotaExceeded
from mpijob.formats.admission import pod_templates, request_reader
from mpijob.formats.kubernetes.metadata import well_known
from mpijob.model import Amounts, Quota, Resources, job_uid
from mpijob.model.platform.admission_request import Around, Incoming
from mpijob.model.platform.governance import Enforcement, NamespaceLimits


# -- limits ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["TrainJob", "MPIJob"])
def test_an_ordinary_job_passes_without_a_word(kind: str) -> None:
    verdict = judgement.review(asked_about(a_job(), kind), Around())
    assert (verdict.refusals, verdict.warnings) == ((), ())


@pytest.mark.req("E-webhook")
@pytest.mark.parametrize("kind", ["TrainJob", "MPIJob"])
def test_more_workers_than_the_namespace_allows_are_refused(kind: str) -> None:
    said = refused(a_job(workers=9), limited(max_workers=8), kind)
    assert said == ["9 workers requested, but namespace 'cv' allows 1 to 8"]
    assert refused(a_job(workers=101), Around(), kind) == [
        "101 workers requested, but namespace 'cv' allows 1 to 100"
    ]


@pytest.mark.req("C-quota-text")
def test_more_gpus_than_the_namespace_has_are_refused_in_the_words_of_the_requirements() -> None:
    said = refused(a_job(workers=8, resources=Resources(gpu=8)), limited(max_gpus=32))
    assert said == ["Requested 64 GPUs, but project quota is 32. Contact admin or reduce workers."]


@pytest.mark.req("E-webhook", "UC1-AF1")
def test_a_quota_is_told_as_it_is_before_submitting() -> None:
    quota = Quota("cv", cores=256.0, used=Amounts(cores=10.0), request_url="https://quota.example.org")
    around = Around(quota=quota)
    verdict = judgement.review(asked_about(a_job(workers=16, resources=Resources(cpu="32"))), around)
    assert verdict.refusals[0].message.startswith(
        "Job requires 512.1 CPU cores, but project quota is 256 cores."
    )
    assert "https://quota.example.org" in verdict.refusals[0].hint


@pytest.mark.security
@pytest.mark.parametrize("amount", ["4e3", "4E3", "+4000", "4000.", "4000000000u"])
def test_an_amount_in_an_unusual_form_gets_nobody_past_the_quota(amount: str) -> None:
    *runtime, document = documents(a_job(workers=2), "MPIJob", "")
    container = document["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    container["resources"] = {"requests": {"cpu": amount}, "limits": {"cpu": amount}}
    asked = request_reader.read(a_review(document), *runtime)
    verdict = judgement.review(asked, Around(quota=Quota("cv", cores=256.0)))
    assert "but project quota is 256 cores." in " ".join(one.message for one in verdict.refusals)


@pytest.mark.req("B-100jobs")
def test_one_job_too_many_is_told_with_the_count() -> None:
    around = msgspec.structs.replace(limited(concurrent_jobs=5), jobs_running=5)
    assert refused(a_job(), around) == ["Quota exceeded: 5/5 jobs running"]
    assert refused(a_job(), msgspec.structs.replace(around, jobs_running=4)) == []


@pytest.mark.req("Q-SEC-004")
@pytest.mark.parametrize("kind", ["TrainJob", "MPIJob"])
def test_a_longer_run_than_the_namespace_allows_is_refused_and_no_deadline_becomes_the_longest(
    kind: str,
) -> None:
    assert refused(a_job(deadline_seconds=7200.0), limited(max_duration_seconds=3600.0), kind) == [
        "the job may run 7200 s, but namespace 'cv' allows 3600 s"
    ]
    *_, document = documents(a_job(), kind)
    changed = applied(document, request_reader.patches(a_review(document), deadline_seconds=3600.0))
    policy = changed["spec"] if kind == "TrainJob" else changed["spec"]["runPolicy"]
    assert policy["activeDeadlineSeconds"] == 3600


def test_images_classes_and_queues_that_are_not_allowed_are_named() -> None:
    limits = limited(
        allowed_images=("registry.example.org/cv", "x/*"), priority_classes=("low",), queue="main"
    )
    assert refused(a_job(image="x/y:1"), limits) == []
    assert "image 'evil:1' is not allowed" in refused(a_job(image="evil:1"), limits)[0]
    assert "priority class 'top'" in refused(a_job(priority="top"), limits, "MPIJob")[0]
    assert "queue 'other' is set" in refused(a_job(queue="other"), limits)[0]


@pytest.mark.security
def test_a_name_that_only_begins_like_an_allowed_image_is_none() -> None:
    limits = limited(allowed_images=("registry.example.org/cv",))
    assert refused(a_job(image="registry.example.org/cv/train:1"), limits) == []
    assert refused(a_job(image="registry.example.org/cv-evil:1"), limits)


def test_limits_that_only_warn_do_not_refuse() -> None:
    around = limited(max_workers=2, enforcement=Enforcement.WARN)
    verdict = judgement.review(asked_about(a_job(workers=4)), around)
    assert verdict.refusals == ()
    assert verdict.warnings[0].message.startswith("4 workers requested")


def _secured(**security: Any) -> dict[str, Any]:
    return {"name": "m", "image": "x/y:1", "securityContext": security}


# -- what touches others -----------------------------------------------------------------------------
@pytest.mark.security
@pytest.mark.req("E-webhook")
def test_secrets_that_the_user_may_not_read_are_refused_even_where_limits_only_warn() -> None:
    around = Around(unreadable_secrets=("db",), limits=NamespaceLimits(enforcement=Enforcement.WARN))
    (finding,) = judgement.review(asked_about(a_job()), around).refusals
    assert finding.message == (
        "User 'jane@example.org' may not read Secret 'db', which the job's pods would use"
    )
    assert finding.code == "NOT_ALLOWED"


@pytest.mark.security
def test_secrets_are_found_wherever_they_stand() -> None:
    spec = {
        "a": [{"valueFrom": {"secretKeyRef": {"name": "one", "key": "k"}}}],
        "b": {
            "volumes": [
                {"secret": {"secretName": "two"}},
                {"projected": {"sources": [{"secret": {"name": "three"}}]}},
            ]
        },
        "c": {
            "envFrom": [{"secretRef": {"name": "four"}}],
            "volumes": [{"csi": {"nodePublishSecretRef": {"name": "five"}}}],
        },
        "runtimePatches": [{"trainingRuntimeSpec": {"volumes": [{"secret": {"secretName": "six"}}]}}],
    }
    assert {"one", "two", "three", "four", "five", "six"} == set(pod_templates.secrets(spec))


@pytest.mark.security
def test_what_a_job_lays_over_its_runtime_is_judged_like_the_runtime() -> None:
    runtime, document = documents(a_job())
    pod = {"metadata": {"labels": {well_known.UID_LABEL: "victim"}}, "spec": {"hostNetwork": True}}
    replicated = [{"name": "node", "template": {"spec": {"template": pod}}}]
    over = {"template": {"spec": {"replicatedJobs": replicated}}}
    document["spec"]["runtimePatches"] = [{"manager": "me", "trainingRuntimeSpec": over}]
    said = [
        one.message
        for one in judgement.review(request_reader.read(a_review(document), runtime), Around()).refusals
    ]
    assert "mpijob.dev/uid=victim" in said[0]
    assert "the host's network" in said[1]


@pytest.mark.security
def test_more_secrets_than_can_be_looked_at_in_time_are_refused() -> None:
    (document,) = documents(a_job(), "MPIJob")
    volumes = [{"name": f"s{index}", "secret": {"secretName": f"s{index}"}} for index in range(33)]
    document["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["volumes"] = volumes
    (finding,) = judgement.review(request_reader.read(a_review(document)), Around()).refusals
    assert finding.message == "pods use 33 Secrets; at most 32 are checked"


@pytest.mark.security
@pytest.mark.req("E-webhook")
@pytest.mark.parametrize("kind", ["TrainJob", "MPIJob"])
@pytest.mark.parametrize(
    ("uid", "refused"),
    [
        pytest.param(UID, False, id="own"),
        pytest.param(job_uid.issue("cv", "bob"), True, id="bobs"),
        pytest.param(job_uid.issue("other", "jane@example.org"), True, id="another-namespace"),
        ("0123456789abcdef", True),
        ("victim", True),
        ("", False),
    ],
)
def test_a_uid_is_taken_only_by_whom_it_was_issued_for_however_early_they_come(
    kind: str, uid: str, refused: bool
) -> None:
    for document in documents(a_job(), kind, uid):
        said = judgement.review(request_reader.read(a_review(document)), Around()).refusals
        assert bool([one for one in said if "was not issued for" in one.message]) == refused


@pytest.mark.security
def test_a_job_that_says_it_is_somebody_elses_is_refused() -> None:
    *_, document = documents(a_job())
    document["metadata"]["annotations"][well_known.OWNER_LABEL] = "bob"
    (finding,) = judgement.review(request_reader.read(a_review(document, raw=True)), Around()).refusals
    assert (finding.code, finding.field) == ("NOT_ALLOWED", "metadata.annotations")


@pytest.mark.security
@pytest.mark.parametrize("kind", ["TrainJob", "MPIJob"])
@pytest.mark.parametrize(
    "key", [well_known.UID_LABEL, well_known.JOB_LABEL, well_known.ATTEMPT_LABEL, well_known.OWNER_LABEL]
)
@pytest.mark.parametrize("change", ["add", "change", "remove"])
def test_who_a_job_is_does_not_change(kind: str, key: str, change: str) -> None:
    for document in documents(a_job(), kind):
        before, after = (json.loads(json.dumps(document)) for _ in range(2))
        if change == "add":
            del before["metadata"]["labels"][key]
        elif change == "remove":
            del after["metadata"]["labels"][key]
        else:
            after["metadata"]["labels"][key] = "other"
        asked = request_reader.read(a_review(after, operation="UPDATE", oldObject=before))
        assert asked.reidentified == (f"metadata.labels[{key}]",)
        assert judgement.review(asked, Around()).refusals[0].code == "NOT_ALLOWED"


@pytest.mark.security
@pytest.mark.hostile
def test_the_runtime_of_a_job_is_frozen_with_its_label_on_either_side() -> None:
    runtime, _ = documents(a_job())
    other = json.loads(json.dumps(runtime))
    other["spec"]["mlPolicy"]["numNodes"] = 9
    bare = json.loads(json.dumps(other))
    del bare["metadata"]["labels"][well_known.UID_LABEL]
    for before, after in ((runtime, other), (runtime, bare), (bare, runtime)):
        asked = request_reader.read(a_review(after, operation="UPDATE", oldObject=before))
        assert "spec" in asked.changed


@pytest.mark.security
@pytest.mark.hostile
def test_an_annotation_that_contradicts_its_job_is_refused() -> None:
    runtime, document = documents(a_job())
    document["metadata"]["annotations"][well_known.REST_ANNOTATION] = (
        '{"namespace":"team-b","retry":{"limit":1}}'
    )
    (finding,) = judgement.review(request_reader.read(a_review(document), runtime), Around()).refusals
    assert finding.message == "the annotation mpijob.dev/rest contradicts the TrainJob: namespace"


@pytest.mark.security
def test_pods_that_carry_another_jobs_uid_are_refused() -> None:
    (document,) = documents(a_job(), "MPIJob")
    worker = document["spec"]["mpiReplicaSpecs"]["Worker"]["template"]
    worker["metadata"]["labels"][well_known.UID_LABEL] = "victim"
    (finding,) = judgement.review(request_reader.read(a_review(document)), Around()).refusals
    assert "mpijob.dev/uid=victim" in finding.message


@pytest.mark.security
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hostNetwork": True}, "the host's network"),
        ({"volumes": [{"name": "x", "hostPath": {"path": "/"}}]}, "the host's directory /"),
        ({"containers": [_secured(privileged=True)]}, "a privileged"),
        ({"containers": [_secured(capabilities={"add": ["SYS_ADMIN"]})]}, "SYS_ADMIN"),
    ],
)
def test_what_belongs_to_the_host_is_not_given(change: dict[str, Any], words: str) -> None:
    (document,) = documents(a_job(), "MPIJob")
    document["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"] |= change
    said = judgement.review(request_reader.read(a_review(document)), Around()).refusals
    assert [one for one in said if words in one.message]


@pytest.mark.req("E-webhook")
@pytest.mark.parametrize("kind", ["TrainJob", "MPIJob"])
def test_a_job_cannot_be_changed_but_put_to_rest(kind: str) -> None:
    *_, before = documents(a_job(), kind)
    *_, after = documents(a_job(workers=7), kind)
    said = judgement.review(
        request_reader.read(a_review(after, operation="UPDATE", oldObject=before)), Around()
    ).refusals
    assert said[0].code == "CONFLICT"
    assert "cannot be changed" in said[0].message
    resting = msgspec.json.decode(msgspec.json.encode(before))
    resting["spec"]["suspend" if kind == "TrainJob" else "x"] = True
    quiet = request_reader.read(a_review(resting, operation="UPDATE", oldObject=before))
    assert judgement.review(quiet, Around()).refusals == ()


@pytest.mark.security
def test_a_job_is_not_given_to_somebody_else() -> None:
    *_, before = documents(a_job())
    before["metadata"]["annotations"] = {well_known.OWNER_LABEL: "bob"}
    *_, after = documents(a_job())
    after["metadata"]["annotations"] = {well_known.OWNER_LABEL: "jane@example.org"}
    asked = request_reader.read(a_review(after, operation="UPDATE", oldObject=before))
    assert asked.reidentified == (f"metadata.annotations[{well_known.OWNER_LABEL}]",)
    assert judgement.review(asked, Around()).refusals[0].code == "NOT_ALLOWED"


def test_known_traps_are_warned_of_and_refused_where_the_namespace_is_strict() -> None:
    (document,) = documents(a_job(), "MPIJob")
    document["metadata"]["labels"] = {well_known.UID_LABEL: UID}
    document["spec"]["runPolicy"]["schedulingPolicy"] = {"minAvailable": 5}
    asked = request_reader.read(a_review(document))
    loose, strict = judgement.review(asked, Around()), judgement.review(asked, Around(), strict=True)
    assert ({one.code for one in loose.warnings}, loose.refusals) == (
        {"RUNTIME_GANG"},
        (),
    )
    assert [one.code for one in strict.refusals] == ["RUNTIME_GANG"]


def test_a_document_that_cannot_be_read_is_left_to_its_engine_where_nothing_limits_it() -> None:
    odd = {"kind": "MPIJob", "apiVersion": "kubeflow.org/v2beta1", "metadata": {"name": "odd"}, "spec": {}}
    asked = request_reader.read(a_review(odd))
    assert judgement.review(asked, Around()).refusals == ()
    (finding,) = judgement.review(asked, limited(max_workers=1)).refusals
    assert finding.message == (
        "MPIJob 'odd' cannot be checked against the limits of namespace 'cv': the MPIJob has no Launcher"
    )


@pytest.mark.security
def test_a_job_that_borrows_somebody_elses_runtime_is_judged_by_it() -> None:
    secret = [{"name": "s", "secret": {"secretName": "theirs"}}]
    runtime, _ = documents(a_job(), uid="theirs")
    for _, template in pod_templates.templates(runtime, "TrainingRuntime"):
        template["spec"]["volumes"] = secret
    *_, document = documents(a_job(name="mine"), uid="mine")
    asked = request_reader.read(a_review(document), runtime)
    assert asked.secrets == ("theirs",)
    said = [one.message for one in judgement.review(asked, Around()).refusals]
    assert [one for one in said if "mpijob.dev/uid=theirs" in one and "is not the uid of this" in one]


@pytest.mark.security
def test_who_lets_another_users_job_rest_is_not_asked_for_its_secrets() -> None:
    (before,) = documents(a_job(), "MPIJob")
    for replica in before["spec"]["mpiReplicaSpecs"].values():
        replica["template"]["spec"] |= {
            "volumes": [{"name": "s", "secret": {"secretName": "x"}}],
            "hostNetwork": True,
        }
    after = json.loads(json.dumps(before))
    after["spec"]["runPolicy"]["suspend"] = True
    asked = request_reader.read(a_review(after, operation="UPDATE", oldObject=before))
    assert (asked.secrets, asked.pods) == ((), ())
    assert judgement.review(asked, Around()).refusals == ()


def test_jobs_of_other_kinds_are_not_counted_as_mpi() -> None:
    runtime, document = documents(a_job(workers=500))
    del runtime["spec"]["mlPolicy"]["mpi"]
    asked = request_reader.read(a_review(document), runtime)
    assert asked.job is None
    assert judgement.review(asked, limited(max_workers=1)).refusals == ()


# -- how it is told ----------------------------------------------------------------------------------
def test_a_refusal_is_answered_with_the_sentence_and_read_back_as_the_same_error() -> None:
    *runtime, document = documents(a_job(workers=9))
    known = Knowing(limited(max_workers=8), *runtime)
    response = admission_review.respond("/judge", a_review(document), known)["response"]
    assert (response["uid"], response["allowed"], known.let_in) == ("r1", False, [])
    status = response["status"]
    said = f'admission webhook "judge.mpijob.dev" denied the request: {status["message"]}'
    error = api_errors.translate(
        ApiError(said, status=status["code"], details=status["details"]), doing="create"
    )
    assert isinstance(error, QuotaExceeded)
    assert error.message == "9 workers requested, but namespace 'cv' allows 1 to 8"
    assert error.hint == "use at most 8 workers"


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (f"Validating{RULE} denied request: spec.x cannot be changed: why (do this)", NotAllowed),
        ('admission webhook "validator.trainjob.trainer.kubeflow.org" denied the request: no', NotAllowed),
    ],
)  # fmt: skip
def test_what_others_refuse_stays_theirs_and_a_rule_of_ours_is_told_plainly(
    said: str, kind: type[MpiJobError]
) -> None:
    error = api_errors.translate(ApiError(said, status=403), doing="create it")
    assert isinstance(error, kind)
    if "mpijob-fixed" in said:
        assert (error.message, error.hint) == ("spec.x cannot be changed: why", "do this")


def test_a_conflict_is_told_as_one() -> None:
    *_, before = documents(a_job())
    *_, after = documents(a_job(workers=7))
    response = admission_review.respond(
        "/judge", a_review(after, operation="UPDATE", oldObject=before), Knowing()
    )["response"]
    causes = response["status"]["details"]
    said = f'admission webhook "judge.mpijob.dev" denied the request: {response["status"]["message"]}'
    assert isinstance(api_errors.translate(ApiError(said, status=409, details=causes), doing="x"), Conflict)


@pytest.mark.security
def test_what_we_cannot_judge_is_refused_except_where_an_administrator_opens_the_namespace() -> None:
    class Broken(Knowing):
        def facts(self, asked: Incoming) -> Around:
            raise ValueError("broken")

    *runtime, document = documents(a_job())
    loose = admission_review.respond("/open", a_review(document), Broken(None, *runtime))["response"]
    assert loose["allowed"]
    assert "could not evaluate" in loose["warnings"][0]
    for path in ("/judge", "/strict"):
        response = admission_review.respond(path, a_review(document), Broken(None, *runtime))["response"]
        assert (response["allowed"], response["status"]["code"]) == (False, 500)


def test_a_dry_run_is_judged_and_not_counted() -> None:
    *runtime, document = documents(a_job())
    known = Knowing(None, *runtime)
    assert admission_review.respond("/judge", a_review(document, dryRun=True), known)["response"]["allowed"]
    assert known.let_in == []
    admission_review.respond("/judge", a_review(document), known)
    assert known.let_in == ["bert"]
