"""The table of all routes.

The application, the OpenAPI document and the test that each handler refuses unknown users are generated from
it. A job is `/trainjobs/{namespace}/{name}`, or its name alone with `?namespace=`. In that short form the
words of the parts (`logs`, `events` …) come first, so a job named `logs` is `/trainjobs/logs?namespace=…`.
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
    yield _get("/health", session.health, "Health check.", job_schemas.Health, open=True)
    yield _post(
        "/session", session.sign_in, "Sign in with a one-time token.", job_schemas.Session,
        body=job_schemas.SignIn, open=True,
    )  # fmt: skip
    yield _get("/session", session.who, "Get the signed-in user.", job_schemas.Session)
    yield Route(method="DELETE", path="/session", handler=session.sign_out, summary="Sign out.", status=204)
    yield _post(
        "/session/links", session.link, "Create a sign-in link for another browser.", job_schemas.SignInLink
    )
    yield _get(
        "/capabilities", session.capabilities, "Get the features of this server.", job_schemas.Capabilities
    )
    yield _get("/openapi.json", document, "Get this OpenAPI document.", dict[str, Any])
    yield _get("/facts", jobs.facts, "Get capacity, free resources and quota.", job_schemas.FactsAnswer)
    yield _get(
        "/accounts", jobs.accounts, "List accounting records.", AccountPage, query_schemas.AccountsQuery
    )
    yield _get(
        "/accounts/report", jobs.report, "Get a usage and cost report.", Report, query_schemas.ReportQuery
    )
    yield _get("/overview", jobs.overview, "Get an overview of the engine.", overview_schemas.Overview)
    yield _get("/fields", jobs.fields, "Describe every field of a job.", job_schemas.Fields)
    yield _get("/guide", jobs.guide, "Get the job type guide and the glossary.", Guide)
    yield _get(
        "/templates",
        drafts.templates,
        "List job templates.",
        job_schemas.TemplateList,
        draft_schemas.InNamespace,
    )
    yield _get(
        "/audit", audit.entries, "List audit entries: all for administrators, your own otherwise.",
        audit.AuditList, audit.AuditAsked,
    )  # fmt: skip
    yield _get(
        "/stream", sse.changes, "Stream job changes as server-sent events.", job_schemas.Delta,
        job_schemas.StreamQuery, media="text/event-stream", flow=websockets.changes,
    )  # fmt: skip
    yield _document(
        "/drafts", actions.read_draft, "Validate a draft; return the job, or all errors.", job_schemas.Reading,
        body=job_schemas.Draft,
    )  # fmt: skip
    yield _document("/fit", actions.fit, "Check whether a job would start now.", Fit, body=job_schemas.Draft)
    yield _get("/overview/cluster", admin.whole_cluster, "Get an overview of all namespaces.", ClusterView)
    yield _document("/plan", actions.plan, "Plan a job.", job_schemas.PlanAnswer, body=job_schemas.Draft)


def _of_drafts() -> Iterator[Route]:
    """Routes for editing a job before it is submitted."""
    yield _document(
        "/drafts/edit", drafts.edit, "Edit a job file; keep comments and unknown fields.",
        draft_schemas.Edited, body=draft_schemas.Edit,
    )  # fmt: skip
    yield _document(
        "/drafts/advice",
        drafts.advice,
        "Estimate duration, cost and resources from earlier runs.",
        draft_schemas.Advised,
        body=job_schemas.Draft,
    )
    yield _document(
        "/drafts/convert", drafts.convert, "Convert a manifest or batch script to jobs.", draft_schemas.Conversions,
        body=draft_schemas.ToConvert, most_bytes=rate_limit.SCRIPT_BYTES,
    )  # fmt: skip
    yield _get(
        "/choices",
        drafts.choices,
        "List the choices of a namespace: queues, claims, secrets, images.",
        Choices,
        draft_schemas.InNamespace,
    )
    yield _post(
        "/templates", drafts.save_template, "Save a job as a template, for you or for a namespace.",
        job_schemas.TemplateRow,
        body=draft_schemas.NewTemplate, status=201, most_bytes=rate_limit.DOCUMENT_BYTES,
    )  # fmt: skip
    yield Route(
        method="DELETE", path="/templates/{template}", handler=drafts.delete_template,
        query=draft_schemas.TemplateQuery, summary="Delete one of your templates, or a shared one.", status=204,
    )  # fmt: skip


def _of_others() -> Iterator[Route]:
    """Routes about the place and several jobs."""
    yield _get(
        "/rights",
        cluster.rights,
        "Get your permissions in a namespace.",
        draft_schemas.Rights,
        draft_schemas.InNamespace,
    )
    yield _get(
        "/queues",
        cluster.queues,
        "List queues with their running and waiting jobs.",
        draft_schemas.Queues,
        draft_schemas.InNamespace,
    )
    yield _get(
        "/queues/accuracy", cluster.wait_accuracy, "Get the accuracy of queue time estimates.", AccuracyReport,
        draft_schemas.AccuracyQuery,
    )  # fmt: skip
    yield _get("/budgets", cluster.budgets, "Get the budgets of namespaces.", draft_schemas.Budgets)
    yield _get(
        "/progress",
        usage.progress,
        "Get the training progress of jobs.",
        job_schemas.ProgressList,
        job_schemas.ProgressQuery,
    )
    yield _get("/compare", cluster.compare, "Compare jobs.", Comparison, draft_schemas.CompareQuery)
    yield _get(
        "/patterns", cluster.patterns, "Find common causes of failed jobs.", Fleet, draft_schemas.PatternQuery
    )
    yield _get("/migration", cluster.migrating, "Get the migration status of existing MPIJobs.", Progress)
    yield _get("/opinions", cluster.opinions, "Get the feedback on help texts.", draft_schemas.Opinions)
    yield _post(
        "/opinions",
        cluster.opinion,
        "Rate a help text.",
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
        "/bulk",
        actions.bulk,
        "Run one action on several jobs.",
        job_schemas.BulkAnswer,
        body=job_schemas.Bulk,
    )
    for base in (_SHORT, _LONG):
        yield from _of_one(base)


def _of_one(base: str) -> Iterator[Route]:
    where, which = job_schemas.Where, job_schemas.Which
    yield _get(
        f"{base}/logs", sse.logs, "Get the merged log in batches.", job_schemas.LogBatch, job_schemas.LogQuery,
        media="application/x-ndjson", flow=websockets.logs,
    )  # fmt: skip
    yield _get(f"{base}/events", jobs.events, "List the events of a job.", job_schemas.Events, which)
    yield _get(f"{base}/metrics", usage.metrics, "Get resource usage.", Usage, job_schemas.MetricsQuery)
    yield _get(
        f"{base}/profile", jobs.profile, "Get the MPI profile.", MpiProfile, query_schemas.ProfileQuery
    )
    yield _get(f"{base}/curves", usage.curves, "Get training metrics.", Curves, query_schemas.CurvesQuery)
    yield _get(
        f"{base}/scalars", usage.scalars, "Get TensorBoard scalars of a job.", EventScalars,
        query_schemas.ScalarsQuery,
    )  # fmt: skip
    yield _get(
        f"{base}/account", usage.account, "Get usage and cost of a job.",
        job_schemas.JobAccount, where,
    )  # fmt: skip
    yield _get(f"{base}/links", jobs.links, "Get links to tracking servers.", query_schemas.Links, where)
    yield _get(f"{base}/why", jobs.why, "Diagnose a job.", Diagnosis, which)
    yield _get(f"{base}/artifacts", jobs.artifacts, "List output files.", job_schemas.Artifacts, which)
    yield _get(
        f"{base}/artifact", jobs.fetch, "Download an output file of a job.", None, job_schemas.ArtifactQuery,
        media="application/octet-stream",
    )  # fmt: skip
    yield _get(f"{base}/nodes", jobs.nodes, "Get zone and rack of nodes.", job_schemas.NodePlaces, where)
    yield _get(f"{base}/runs", jobs.runs, "List all runs with their attempts.", job_schemas.Runs, where)
    yield _get(
        f"{base}/attempts", cluster.attempts, "List jobs of this name.", draft_schemas.AttemptsAnswer, where
    )
    yield _get(
        f"{base}/export", jobs.export, "Export a job as a file.", None, draft_schemas.ExportQuery,
        media="text/plain",
    )  # fmt: skip
    yield _get(
        f"{base}/bundle", jobs.bundle, "Download a support bundle, with secrets masked.", None, where,
        media="application/gzip",
    )  # fmt: skip
    yield _post(f"{base}/stacks", actions.stacks, "Capture the call stacks.", StackReport, query=where)
    yield _post(
        f"{base}/retry", actions.retry, "Run a job again, unchanged or with a fix.", job_schemas.JobRow,
        query=where, body=draft_schemas.Mend, bodiless=True,
    )  # fmt: skip
    for verb in (actions.cancel, actions.suspend, actions.resume):
        sentence = (verb.__doc__ or "").splitlines()[0]
        yield _post(f"{base}/{verb.__name__}", verb, sentence, job_schemas.JobRow, query=where)
    yield _post(
        f"{base}/scale", actions.scale, "Scale an elastic job.",
        job_schemas.JobRow, query=where, body=job_schemas.Scale,
    )  # fmt: skip
    yield _post(
        f"{base}/clone", actions.clone, "Clone a job with changes.", job_schemas.JobRow, query=where,
        body=job_schemas.Changes, status=201,
    )  # fmt: skip


def _whole() -> Iterator[Route]:
    """The routes of the job itself."""
    for base in (_SHORT, _LONG):
        yield _get(base, jobs.get_job, "Get the details of a job.", job_schemas.JobDetail, job_schemas.Which)
        yield Route(
            method="DELETE", path=base, handler=actions.delete, query=job_schemas.Where, status=204,
            summary="Delete a job; its record stays for a while.",
        )  # fmt: skip


ROUTES: tuple[Route, ...] = (*_of_place(), *_of_drafts(), *_of_others(), *_of_jobs(), *_whole())
