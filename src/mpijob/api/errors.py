"""Map errors to responses: one table from the kind of an error to a status, and one body."""

from __future__ import annotations

import logging

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from mpijob.api.schemas.job_schemas import Problem
from mpijob.errors import HTTP_STATUS, InvalidJob, MpiJobError

_log = logging.getLogger(__name__)


class Refused(Exception):
    """A request that was refused before its handler: not signed in, forged, too large, too many."""

    def __init__(
        self, status: int, message: str, hint: str = "", code: str = "NOT_ALLOWED", *, retry_after: int = 0
    ) -> None:
        super().__init__(message)
        self.status, self.problem = status, problem(code, message, hint)
        # In seconds.
        self.retry_after = retry_after

    @classmethod
    def from_problem(cls, status: int, problem: Problem) -> Refused:
        """Return the refusal that the parser process has described."""
        refusal = cls(status, problem.message)
        refusal.problem = problem
        return refusal


def problem(code: str, message: str, hint: str = "") -> Problem:
    """Return an error body; `docs` is the page of its code in the documentation."""
    return Problem(code, message, hint, f"docs/troubleshooting/{code.lower()}.md")


def describe(error: Exception) -> tuple[int, Problem]:
    """Return status and body for an error."""
    if isinstance(error, Refused):
        return error.status, error.problem
    if isinstance(error, MpiJobError):
        body = problem(error.code, error.message, error.hint)
        return HTTP_STATUS[error.kind], msgspec.structs.replace(body, findings=error.findings)
    _log.error("a bug in mpijob", exc_info=error)
    return 500, problem("INTERNAL", "this is a bug in mpijob; the server's log has the traceback")


def response(error: Exception) -> Response:
    status, body = describe(error)
    wait = getattr(error, "retry_after", 0)
    headers = {"retry-after": str(wait)} if wait else None
    return Response(msgspec.json.encode(body), status, headers, media_type="application/json")


async def on_error(request: Request, error: Exception) -> Response:
    """Starlette's exception handler."""
    return response(error)


def misread(what: str, error: msgspec.ValidationError | msgspec.DecodeError) -> InvalidJob:
    """Return the error for a query or a body that does not match the OpenAPI document."""
    return InvalidJob(f"{what}: {error}", hint="/api/v1/openapi.json says what is expected")
