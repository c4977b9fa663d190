"""Everything that can be asked, as one table.

The application, the OpenAPI document and the test that each verb refuses strangers are all made from it. A job is
`/trainjobs/{namespace}/{name}`; its name alone with `?namespace=` answers too. In that short form the words of the
parts (`logs`, `events` …) come first, so a job called `logs` is asked for as `/trainjobs/logs?namespace=…`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mpijob.accounting.reports import Report
from mpijob.api import openapi
from mpijob.api.auth import rate_limit
from mpijob.api.handlers import actions, admin, audit, cluster, drafts, jobs, session, usage
from mpijob.api.live import sse, websockets
from mpijob.api.request_context import Handler, RequestContext, Route
from mpijob.api.schemas import draft_schemas, job_schemas, overview_schemas, query_schemas
from mpijob.client.admin.guide import Guide
from mpijob.client.convert.cluster_migration import Progress
from mpijob.client.observe.compare import Comparison
from mpijob.diagnosis.patterns import Fleet
from mpijob.diagnosis.report import Diagnosis
from mpijob.model.platform.fit import Fit
from mpijob.model.platform.form_options import Choices
from mpijob.model.status.accounts import AccountPage
from mpijob.model.status.forecast import AccuracyReport
from mpijob.model.status.mpi_profile import MpiProfile
from mpijob.model.status.overview import ClusterView
from mpijob.model.status.stacks import StackReport
from mpijob.observation.metrics.event_files import EventScalars
from mpijob.observation.metrics.training import Curves
from mpijob.observation.metrics.usage import Usage

_SHORT, _LONG = "/trainjobs/{name}", "/trainjobs/{namespace}/{name}"


def _get(path: str, handler: Handler, summary: str, answer: Any, query: Any = None, **more: Any) -> Route:
    return Route(
        method="GET", path=path, handler=handler, summary=summary, answer=answer, query=query, **more
    )


def _post(path: str, handler: Handler, summary: str, answer: Any, **more: Any) -> Route:
    return Route(method="POST", path=path, handler=handler, summary=summary, answer=answer, **more)


def _document(path: str, handler: Handler, summary: str, answer: Any, **more: Any) -> Route:
    """Return a verb whose body is a user's document."""
    more.setdefault("most_bytes", rate_limit.DOCUMENT_BYTES)
    return _post(path, handler, summary, answer, document=True, **more)


async def document(ask: RequestContext) -> Any:
    """Return the OpenAPI document."""
    return openapi.document(ROUTES)


def _of_place() -> Iterator[Route]:
    yield _get("/health", session.health, "Say that the server answers.", job_schemas.Health, open=True)
    yield _post(
        "/session", session.sign_in, "Sign in with the one-time token.", job_schemas.Session,
        body=job_schemas.SignIn, open=True,
    )  # fmt: skip
    yield _get("/session", session.who, "Who is signed in.", job_schemas.Session)
    yield Route(method="DELETE", path="/session", handler=session.sign_out, summary="Sign out.", status=204)
    yield _post("/session/links", session.link, "A sign-in for another browser.", job_schemas.SignInLink)
    yield _get("/capabilities", session.capabilities, "Features of this server.", job_schemas.Capabilities)
    yield _get("/openapi.json", document, "This document.", dict[str, Any])
    yield _get("/facts", jobs.facts, "What there is, what is free, the quota.", job_schemas.FactsAnswer)
    yield _get(
        "/accounts", jobs.accounts, "What ran, used and cost.", AccountPage, query_schemas.AccountsQuery
    )
    yield _get("/accounts/report", jobs.report, "Usage by user, month …", Report, query_schemas.ReportQuery)
    yield _get("/overview", jobs.overview, "Overview of the engine.", overview_schemas.Overview)
    yield _get("/fields", jobs.fields, "What every field of a job is for.", job_schemas.Fields)
    yield _get("/guide", jobs.guide, "Which kind of job to use, and the glossary.", Guide)
    yield _get(
        "/templates",
        drafts.templates,
        "Jobs to start from.",
        job_schemas.TemplateList,
        draft_schemas.InNamespace,
    )
    yield _get(
        "/audit", audit.entries, "Who did what: all of it for administrators, else one's own acts.",
        audit.AuditList, audit.AuditAsked,
    )  # fmt: skip
    yield _get(
        "/stream", sse.changes, "Changes of jobs, as server-sent events.", job_schemas.Delta,
        job_schemas.StreamQuery, media="text/event-stream", flow=websockets.changes,
    )  # fmt: skip
    yield _document(
        "/drafts", actions.read_draft, "Validate a draft: the job, or all errors.", job_schemas.Reading,
        body=job_schemas.Draft,
    )  # fmt: skip
    yield _document("/fit", actions.fit, "Would it start now, wait, or never?", Fit, body=job_schemas.Draft)
    yield _get("/overview/cluster", admin.whole_cluster, "All namespaces, for administrators.", ClusterView)
    yield _document(
        "/plan", actions.plan, "Exactly what would run.", job_schemas.PlanAnswer, body=job_schemas.Draft
    )


def _of_drafts() -> Iterator[Route]:
    """What helps to write a job."""
    yield _document(
        "/drafts/edit", drafts.edit, "A job file after a form's change, notes and unknown fields kept.",
        draft_schemas.Edited, body=draft_schemas.Edit,
    )  # fmt: skip
    yield _document(
        "/drafts/advice",
        drafts.advice,
        "Estimates from earlier runs.",
        draft_schemas.Advised,
        body=job_schemas.Draft,
    )
    yield _document(
        "/drafts/convert", drafts.convert, "A text of another kind, as a job.", draft_schemas.Conversions,
        body=draft_schemas.ToConvert, most_bytes=rate_limit.SCRIPT_BYTES,
    )  # fmt: skip
    yield _get("/choices", drafts.choices, "What a form can offer.", Choices, draft_schemas.InNamespace)
    yield _post(
        "/templates", drafts.save_template, "Keep a job to start from, alone or for a namespace.",
        job_schemas.TemplateRow,
        body=draft_schemas.NewTemplate, status=201, most_bytes=rate_limit.DOCUMENT_BYTES,
    )  # fmt: skip
    yield Route(
        method="DELETE", path="/templates/{template}", handler=drafts.delete_template,
        query=draft_schemas.TemplateQuery, summary="Remove an own template, or a namespace's.", status=204,
    )  # fmt: skip


def _of_others() -> Iterator[Route]:
    """What is told about the place and its jobs together."""
    yield _get(
        "/rights", cluster.rights, "What you may do here.", draft_schemas.Rights, draft_schemas.InNamespace
    )
    yield _get("/queues", cluster.queues, "Who waits where.", draft_schemas.Queues, draft_schemas.InNamespace)
    yield _get(
        "/queues/accuracy", cluster.wait_accuracy, "How good estimates of waiting were.", AccuracyReport,
        draft_schemas.AccuracyQuery,
    )  # fmt: skip
    yield _get("/budgets", cluster.budgets, "What may still be spent.", draft_schemas.Budgets)
    yield _get(
        "/progress", usage.progress, "How far jobs are.", job_schemas.ProgressList, job_schemas.ProgressQuery
    )
    yield _get("/compare", cluster.compare, "How jobs differ.", Comparison, draft_schemas.CompareQuery)
    yield _get("/patterns", cluster.patterns, "What failed jobs share.", Fleet, draft_schemas.PatternQuery)
    yield _get("/migration", cluster.migrating, "How far the jobs of old are.", Progress)
    yield _get("/opinions", cluster.opinions, "How helpful the help is.", draft_schemas.Opinions)
    yield _post(
        "/opinions",
        cluster.opinion,
        "Say whether help was helpful.",
        None,
        body=draft_schemas.Opinion,
        status=204,
    )


def _of_jobs() -> Iterator[Route]:
    yield _get("/trainjobs", jobs.list_jobs, "List jobs.", job_schemas.JobList, job_schemas.ListQuery)
    yield _document(
        "/trainjobs", actions.create, "Create a job.", job_schemas.JobRow, body=job_schemas.Draft, status=201
    )
    yield _post(
        "/bulk", actions.bulk, "One action on several jobs.", job_schemas.BulkAnswer, body=job_schemas.Bulk
    )
    for base in (_SHORT, _LONG):
        yield from _of_one(base)


def _of_one(base: str) -> Iterator[Route]:
    where, which = job_schemas.Where, job_schemas.Which
    yield _get(
        f"{base}/logs", sse.logs, "The merged lines, in batches.", job_schemas.LogBatch, job_schemas.LogQuery,
        media="application/x-ndjson", flow=websockets.logs,
    )  # fmt: skip
    yield _get(f"{base}/events", jobs.events, "What happened.", job_schemas.Events, which)
    yield _get(f"{base}/metrics", usage.metrics, "What was used.", Usage, job_schemas.MetricsQuery)
    yield _get(
        f"{base}/profile", jobs.profile, "What its ranks do with MPI.", MpiProfile, query_schemas.ProfileQuery
    )
    yield _get(f"{base}/curves", usage.curves, "Its training metrics.", Curves, query_schemas.CurvesQuery)
    yield _get(
        f"{base}/scalars", usage.scalars, "The scalars of its TensorBoard event files.", EventScalars,
        query_schemas.ScalarsQuery,
    )  # fmt: skip
    yield _get(
        f"{base}/account", usage.account, "What it used, cost, and is expected to take.",
        job_schemas.JobAccount, where,
    )  # fmt: skip
    yield _get(f"{base}/links", jobs.links, "Where else its training is seen.", query_schemas.Links, where)
    yield _get(f"{base}/why", jobs.why, "Why it is in its phase: causes, timeline, fixes.", Diagnosis, which)
    yield _get(f"{base}/artifacts", jobs.artifacts, "The files it left.", job_schemas.Artifacts, which)
    yield _get(
        f"{base}/artifact", jobs.fetch, "One of the files it left.", None, job_schemas.ArtifactQuery,
        media="application/octet-stream",
    )  # fmt: skip
    yield _get(f"{base}/nodes", jobs.nodes, "Where its nodes stand.", job_schemas.NodePlaces, where)
    yield _get(
        f"{base}/runs", jobs.runs, "All jobs of its name, with their attempts.", job_schemas.Runs, where
    )
    yield _get(f"{base}/attempts", cluster.attempts, "All of its name.", draft_schemas.AttemptsAnswer, where)
    yield _get(
        f"{base}/export", jobs.export, "Its configuration as a file.", None, draft_schemas.ExportQuery,
        media="text/plain",
    )  # fmt: skip
    yield _get(
        f"{base}/bundle", jobs.bundle, "Everything known of it, without secrets.", None, where,
        media="application/gzip",
    )  # fmt: skip
    yield _post(f"{base}/stacks", actions.stacks, "Call stacks of its ranks.", StackReport, query=where)
    yield _post(
        f"{base}/retry", actions.retry, "Run it again, as it was or with a fix.", job_schemas.JobRow,
        query=where, body=draft_schemas.Mend, bodiless=True,
    )  # fmt: skip
    for verb in (actions.cancel, actions.suspend, actions.resume):
        sentence = (verb.__doc__ or "").splitlines()[0]
        yield _post(f"{base}/{verb.__name__}", verb, sentence, job_schemas.JobRow, query=where)
    yield _post(
        f"{base}/scale", actions.scale, "Give an elastic job another number of workers.",
        job_schemas.JobRow, query=where, body=job_schemas.Scale,
    )  # fmt: skip
    yield _post(
        f"{base}/clone", actions.clone, "Create a changed copy.", job_schemas.JobRow, query=where,
        body=job_schemas.Changes, status=201,
    )  # fmt: skip


def _whole() -> Iterator[Route]:
    """The jobs themselves come last: their addresses would take the words of the parts for names."""
    for base in (_SHORT, _LONG):
        yield _get(base, jobs.get_job, "Everything known of a job.", job_schemas.JobDetail, job_schemas.Which)
        yield Route(
            method="DELETE", path=base, handler=actions.delete, query=job_schemas.Where, status=204,
            summary="Remove a job; its record stays for a while.",
        )  # fmt: skip


ROUTES: tuple[Route, ...] = (*_of_place(), *_of_drafts(), *_of_others(), *_of_jobs(), *_whole())
