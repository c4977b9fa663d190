"""Everything that can be asked, as one table.

The application, the OpenAPI document and the test that each verb refuses strangers are all made from it. A job is
`/trainjobs/{namespace}/{name}`; its name alone with `?namespace=` answers too. In that short form the words of the
parts (`logs`, `events` …) come first, so a job called `logs` is asked for as `/trainjobs/logs?namespace=…`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mpijob.accounting.reports import Report
from mpijob.api import (
    answers,
    limits,
    overviews,
    questions,
    sheets,
    sockets,
    streams,
    verbs_acting,
    verbs_admin,
    verbs_audit,
    verbs_drafts,
    verbs_place,
    verbs_reading,
    verbs_session,
)
from mpijob.api.asking import Handler, Route
from mpijob.client.compare import Comparison
from mpijob.client.guide import Guide
from mpijob.client.migration import Progress
from mpijob.diagnosis.patterns import Fleet
from mpijob.diagnosis.report import Diagnosis
from mpijob.model.accounts import AccountPage
from mpijob.model.choices import Choices
from mpijob.model.fit import Fit
from mpijob.model.overview import ClusterView
from mpijob.model.stacks import StackReport
from mpijob.observation.curves import Curves
from mpijob.observation.usage import Usage

_SHORT, _LONG = "/trainjobs/{name}", "/trainjobs/{namespace}/{name}"


def _get(path: str, handler: Handler, summary: str, answer: Any, query: Any = None, **more: Any) -> Route:
    return Route(
        method="GET", path=path, handler=handler, summary=summary, answer=answer, query=query, **more
    )


def _post(path: str, handler: Handler, summary: str, answer: Any, **more: Any) -> Route:
    return Route(method="POST", path=path, handler=handler, summary=summary, answer=answer, **more)


def _document(path: str, handler: Handler, summary: str, answer: Any, **more: Any) -> Route:
    """Return a verb whose body is a user's document."""
    more.setdefault("most_bytes", limits.DOCUMENT_BYTES)
    return _post(path, handler, summary, answer, document=True, **more)


def _of_place() -> Iterator[Route]:
    yield _get("/health", verbs_session.health, "Say that the server answers.", answers.Health, open=True)
    yield _post(
        "/session", verbs_session.sign_in, "Sign in with the one-time token.", answers.Session,
        body=answers.SignIn, open=True,
    )  # fmt: skip
    yield _get("/session", verbs_session.who, "Who is signed in.", answers.Session)
    yield Route(
        method="DELETE", path="/session", handler=verbs_session.sign_out, summary="Sign out.", status=204
    )
    yield _post("/session/links", verbs_session.link, "A sign-in for another browser.", answers.SignInLink)
    yield _get("/capabilities", verbs_session.capabilities, "What this place can do.", answers.Capabilities)
    yield _get("/openapi.json", verbs_session.document, "This document.", dict[str, Any])
    yield _get("/facts", verbs_reading.facts, "What there is, what is free, the quota.", answers.FactsAnswer)
    yield _get(
        "/accounts", verbs_reading.accounts, "What ran, used and cost.", AccountPage, questions.AccountsQuery
    )
    yield _get(
        "/accounts/report", verbs_reading.report, "Usage by user, month …", Report, questions.ReportQuery
    )
    yield _get("/overview", verbs_reading.overview, "The place at a glance.", overviews.Overview)
    yield _get("/fields", verbs_reading.fields, "What every field of a job is for.", answers.Fields)
    yield _get("/guide", verbs_reading.guide, "Which kind of job suits, and the words used here.", Guide)
    yield _get("/templates", verbs_reading.templates, "Jobs to start from.", answers.TemplateList)
    yield _get(
        "/audit", verbs_audit.entries, "Who did what: all of it for administrators, else one's own acts.",
        verbs_audit.AuditList, verbs_audit.AuditAsked,
    )  # fmt: skip
    yield _get(
        "/stream", streams.changes, "Changes of jobs, as server-sent events.", answers.Delta,
        answers.StreamQuery, media="text/event-stream", flow=sockets.changes,
    )  # fmt: skip
    yield _document(
        "/drafts", verbs_acting.read_draft, "Read a draft: the job, or all that is wrong.", answers.Reading,
        body=answers.Draft,
    )  # fmt: skip
    yield _document("/fit", verbs_acting.fit, "Would it start now, wait, or never?", Fit, body=answers.Draft)
    yield _get(
        "/overview/cluster", verbs_admin.whole_cluster, "All namespaces, for administrators.", ClusterView
    )
    yield _document(
        "/plan", verbs_acting.plan, "Exactly what would run.", answers.PlanAnswer, body=answers.Draft
    )


def _of_drafts() -> Iterator[Route]:
    """What helps to write a job."""
    yield _document(
        "/drafts/edit", verbs_drafts.edit, "A job file after a form's change, notes and unknown fields kept.",
        sheets.Edited, body=sheets.Edit,
    )  # fmt: skip
    yield _document(
        "/drafts/advice", verbs_drafts.advice, "What earlier runs say.", sheets.Advised, body=answers.Draft
    )
    yield _document(
        "/drafts/convert", verbs_drafts.convert, "A text of another kind, as a job.", sheets.Conversions,
        body=sheets.ToConvert, most_bytes=limits.SCRIPT_BYTES,
    )  # fmt: skip
    yield _get("/choices", verbs_drafts.choices, "What a form can offer.", Choices, sheets.InNamespace)
    yield _post(
        "/templates", verbs_drafts.save_template, "Keep a job to start from.", answers.TemplateRow,
        body=sheets.NewTemplate, status=201, most_bytes=limits.DOCUMENT_BYTES,
    )  # fmt: skip
    yield Route(
        method="DELETE", path="/templates/{template}", handler=verbs_drafts.delete_template,
        summary="Remove an own template.", status=204,
    )  # fmt: skip


def _of_others() -> Iterator[Route]:
    """What is told about the place and its jobs together."""
    yield _get("/rights", verbs_place.rights, "What you may do here.", sheets.Rights, sheets.InNamespace)
    yield _get("/queues", verbs_place.queues, "Who waits where.", sheets.Queues, sheets.InNamespace)
    yield _get("/budgets", verbs_place.budgets, "What may still be spent.", sheets.Budgets)
    yield _get("/compare", verbs_place.compare, "How jobs differ.", Comparison, sheets.CompareQuery)
    yield _get("/patterns", verbs_place.patterns, "What failed jobs share.", Fleet, sheets.PatternQuery)
    yield _get("/migration", verbs_place.migrating, "How far the jobs of old are.", Progress)
    yield _get("/opinions", verbs_place.opinions, "How helpful the help is.", sheets.Opinions)
    yield _post(
        "/opinions",
        verbs_place.opinion,
        "Say whether help was helpful.",
        None,
        body=sheets.Opinion,
        status=204,
    )


def _of_jobs() -> Iterator[Route]:
    yield _get("/trainjobs", verbs_reading.list_jobs, "List jobs.", answers.JobList, answers.ListQuery)
    yield _document(
        "/trainjobs", verbs_acting.create, "Create a job.", answers.JobRow, body=answers.Draft, status=201
    )
    yield _post(
        "/bulk", verbs_acting.bulk, "One action on several jobs.", answers.BulkAnswer, body=answers.Bulk
    )
    for base in (_SHORT, _LONG):
        yield from _of_one(base)


def _of_one(base: str) -> Iterator[Route]:
    where = answers.Where
    yield _get(
        f"{base}/logs", streams.logs, "The merged lines, in batches.", answers.LogBatch, answers.LogQuery,
        media="application/x-ndjson", flow=sockets.logs,
    )  # fmt: skip
    yield _get(f"{base}/events", verbs_reading.events, "What happened.", answers.Events, where)
    yield _get(f"{base}/metrics", verbs_reading.metrics, "What was used.", Usage, answers.MetricsQuery)
    yield _get(f"{base}/curves", verbs_reading.curves, "Its training metrics.", Curves, questions.CurvesQuery)
    yield _get(
        f"{base}/links", verbs_reading.links, "Where else its training is seen.", questions.Links, where
    )
    yield _get(f"{base}/why", verbs_reading.why, "Why it stands where it stands.", Diagnosis, where)
    yield _get(f"{base}/artifacts", verbs_reading.artifacts, "The files it left.", answers.Artifacts, where)
    yield _get(
        f"{base}/artifact", verbs_reading.fetch, "One of the files it left.", None, answers.ArtifactQuery,
        media="application/octet-stream",
    )  # fmt: skip
    yield _get(f"{base}/attempts", verbs_place.attempts, "All of its name.", sheets.AttemptsAnswer, where)
    yield _get(
        f"{base}/export", verbs_reading.export, "Its configuration as a file.", None, sheets.ExportQuery,
        media="text/plain",
    )  # fmt: skip
    yield _get(
        f"{base}/bundle", verbs_reading.bundle, "Everything known of it, without secrets.", None, where,
        media="application/gzip",
    )  # fmt: skip
    yield _post(f"{base}/stacks", verbs_acting.stacks, "Where its ranks stand.", StackReport, query=where)
    yield _post(
        f"{base}/retry", verbs_acting.retry, "Run it again, as it was or with a fix.", answers.JobRow,
        query=where, body=sheets.Mend, bodiless=True,
    )  # fmt: skip
    for verb in (verbs_acting.cancel, verbs_acting.suspend, verbs_acting.resume):
        sentence = (verb.__doc__ or "").splitlines()[0]
        yield _post(f"{base}/{verb.__name__}", verb, sentence, answers.JobRow, query=where)
    yield _post(
        f"{base}/scale", verbs_acting.scale, "Give an elastic job another number of workers.",
        answers.JobRow, query=where, body=answers.Scale,
    )  # fmt: skip
    yield _post(
        f"{base}/clone", verbs_acting.clone, "Create a changed copy.", answers.JobRow, query=where,
        body=answers.Changes, status=201,
    )  # fmt: skip


def _whole() -> Iterator[Route]:
    """The jobs themselves come last: their addresses would take the words of the parts for names."""
    for base in (_SHORT, _LONG):
        yield _get(
            base, verbs_reading.get_job, "Everything known of a job.", answers.JobDetail, answers.Where
        )
        yield Route(
            method="DELETE", path=base, handler=verbs_acting.delete, query=answers.Where, status=204,
            summary="Remove a job; its record stays for a while.",
        )  # fmt: skip


ROUTES: tuple[Route, ...] = (*_of_place(), *_of_drafts(), *_of_others(), *_of_jobs(), *_whole())
