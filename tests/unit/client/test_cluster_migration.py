"""Old MPIJobs on their way out, by stage, and the verdict on an old job beside its new one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.cli_support import Cli
from tests.unit.incoming_support import a_job, a_review, documents, limited

from mpijob.admission import webhook as judgement
from mpijob.backends.memory import MemoryBackend, Outcome, Script
from mpijob.client.convert import cluster_migration
from mpijob.client.observe.compare import Column, Comparison, judge
from mpijob.cluster.webhook import admission_review
from mpijob.errors import InvalidJob
from mpijob.formats.admission import request_reader
from mpijob.model import JobRef, Phase
from mpijob.model.platform.admission_request import Incoming, Verdict
from mpijob.model.platform.governance import API, Enforcement, NamespaceLimits, Retirement, RetirementStage
from mpijob.settings import Settings


def old(kind: str = "MPIJob", uid: str = "", **more: Any) -> Incoming:
    *runtime, document = documents(a_job(workers=2), kind, uid)
    document["metadata"].pop("labels", None) if not uid else None
    return request_reader.read(a_review(document, **more), *runtime)


def said(asked: Incoming, stage: RetirementStage, **limits: Any) -> Verdict:
    plan = Retirement(stage=stage, until="2027-05-31")
    found = judgement.review(asked, limited(old_jobs=plan, **limits))
    words = "MPIJobs not created by mpijob"
    return Verdict(
        tuple(one for one in found.refusals if words in one.message),
        tuple(one for one in found.warnings if words in one.message),
    )


@pytest.mark.req("D-migrate")
def test_an_old_job_is_left_in_peace_then_warned_of_then_refused() -> None:
    assert said(old(), RetirementStage.ANNOUNCE) == Verdict()
    (warned,) = said(old(), RetirementStage.WARN).warnings
    assert (
        warned.message == "MPIJobs not created by mpijob will be refused in namespace 'cv' after 2027-05-31"
    )
    assert "mpijob convert FILE" in warned.hint
    (refused,) = said(old(), RetirementStage.REFUSE).refusals
    assert refused.message == "MPIJobs not created by mpijob are no longer accepted in namespace 'cv'"
    assert "mpijob convert FILE" in refused.hint


@pytest.mark.req("D-migrate")
def test_jobs_of_ours_and_jobs_that_run_already_are_not_touched() -> None:
    assert said(old(uid="abc"), RetirementStage.REFUSE) == Verdict()
    assert said(old("TrainJob"), RetirementStage.REFUSE) == Verdict()
    assert said(old(operation="UPDATE"), RetirementStage.REFUSE) == Verdict()


@pytest.mark.req("D-migrate")
def test_a_namespace_whose_limits_only_warn_refuses_no_old_job() -> None:
    found = said(old(), RetirementStage.REFUSE, enforcement=Enforcement.WARN)
    assert (len(found.refusals), len(found.warnings)) == (0, 1)


@pytest.mark.req("D-migrate")
def test_kubectl_is_told_the_stage() -> None:
    class Knowing:
        def __init__(self, stage: RetirementStage) -> None:
            self._around = limited(old_jobs=Retirement(stage=stage))

        def limits(self, namespace: str) -> NamespaceLimits:
            return self._around.limits

        def runtime(self, document: Any, namespace: str) -> None:
            return None

        def facts(self, asked: Incoming) -> Any:
            return self._around

        def count_admitted(self, asked: Incoming) -> None:
            return None

    (document,) = documents(a_job(workers=2), "MPIJob", "")
    document["metadata"].pop("labels", None)
    warned = admission_review.respond("/judge", a_review(document), Knowing(RetirementStage.WARN))["response"]
    assert warned["allowed"]
    assert any("will be refused in namespace 'cv' soon" in one for one in warned["warnings"])
    refused = admission_review.respond("/judge", a_review(document), Knowing(RetirementStage.REFUSE))[
        "response"
    ]
    assert (refused["allowed"], refused["status"]["code"]) == (False, 403)
    assert "no longer accepted" in refused["status"]["message"]


class Api:
    """As much of an API server as is asked for limits; the real one: tests/e2e/cluster/test_convert.py."""

    access = SimpleNamespace(namespace="cv")

    def __init__(self, own: dict[str, Any], defaults: dict[str, Any]) -> None:
        self._own, self._defaults = own, defaults

    def list(self, path: str) -> Any:
        items = [{"metadata": {"name": name}, "spec": spec} for name, spec in self._own.items()]
        return SimpleNamespace(items=items)

    def find(self, path: str) -> Any:
        if "mpijobplatforms" in path:
            return {"apiVersion": API, "spec": {"defaults": self._defaults}}
        name = path.rpartition("/")[2]
        return {"metadata": {"name": name}, "spec": self._own[name]} if name in self._own else None


@pytest.mark.req("D-migrate")
def test_a_fleets_report_tells_the_stage_of_each_namespace() -> None:
    settings = Settings(engine="kubernetes")
    plan = {"oldJobs": {"stage": "Announce", "until": "2027-05-31"}}
    api = Api({"nlp": {"oldJobs": {"stage": "Refuse"}}, "hpc": {"maxWorkers": 4}}, plan)
    announced = "MPIJobs not created by mpijob will be refused in"
    assert cluster_migration.retiring(settings, as_seen_by=api) == {
        "cv": f"{announced} namespace 'cv' after 2027-05-31"
    }
    assert cluster_migration.retiring(settings, everywhere=True, as_seen_by=api) == {
        "nlp": "MPIJobs not created by mpijob are no longer accepted in namespace 'nlp'",
        "hpc": f"{announced} namespace 'hpc' after 2027-05-31",
        "*": f"{announced} every other namespace after 2027-05-31",
    }
    assert cluster_migration.retiring(settings, everywhere=True, as_seen_by=Api({}, {})) == {}


# -- side by side ------------------------------------------------------------------------------------
def ran(name: str, seconds: float | None, phase: Phase = Phase.SUCCEEDED) -> Column:
    return Column(JobRef("cv", name), phase, seconds, "")


@pytest.mark.req("D-migrate")
@pytest.mark.parametrize(
    ("old", "new", "limit", "why"),
    [
        (100.0, 109.9, 10.0, ""),
        (100.0, 90.1, 10.0, ""),
        (100.0, 111.0, 10.0, "new took 111 s, 11 % more than old with 100 s; at most 10 % is the limit"),
        (100.0, 80.0, 10.0, "new took 80 s, 20 % less than old with 100 s; at most 10 % is the limit"),
        (0.0, 0.0, 0.0, ""),
    ],
)
def test_times_may_differ_by_so_much_and_no_more(old: float, new: float, limit: float, why: str) -> None:
    verdict = judge(Comparison((ran("old", old), ran("new", new)), ()), limit)
    assert (verdict.same, verdict.why) == (not why, why)


@pytest.mark.req("D-migrate")
def test_another_end_is_no_equal_result_however_equal_the_times_are() -> None:
    verdict = judge(Comparison((ran("old", 60.0), ran("new", 60.0, Phase.FAILED)), ()), 10.0)
    assert verdict.why == "new ended as Failed, old as Succeeded"
    three = Comparison((ran("old", 60.0), ran("new", 61.0), ran("third", 90.0)), ())
    assert judge(three, 10.0).percent == 50.0
    with pytest.raises(InvalidJob, match="new has not ended"):
        judge(Comparison((ran("old", 60.0), ran("new", None)), ()), 10.0)


@pytest.mark.req("D-migrate")
def test_the_command_ends_with_the_verdict() -> None:
    script = Script(jobs={"new": Outcome(exit_code=3)})
    cli = Cli(MemoryBackend(script=script))
    for name in ("old", "same", "new"):
        cli.finished(name, "true")
    assert "all have the same result" in cli("compare", "old", "same", "--time-limit", "10").stderr
    assert cli.json("compare", "old", "same", "--time-limit", "10")["verdict"]["same"]
    differs = cli("compare", "old", "new", "--time-limit", "10")
    assert differs.exit_code == 1
    assert "new ended as Failed, old as Succeeded" in differs.stderr
