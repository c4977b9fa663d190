"""The errors of an API server, and their meaning for a data scientist.

`ApiError` has the facts: status, reason, the server's message, where it happened. `translate` makes an error
of `mpijob.errors` of it, one sentence with the next step. Neither contains credentials.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from mpijob import codec
from mpijob.backends.kubernetes.client import error_messages, resources
from mpijob.errors import (
    BackendError,
    Conflict,
    Finding,
    InvalidJob,
    MpiJobError,
    NotAllowed,
    NotFound,
    QuotaExceeded,
    Severity,
    Unsupported,
)

if TYPE_CHECKING:
    from mpijob.backends.kubernetes.auth.access import Access

# Reasons of errors without an HTTP status.
REFUSED = "Refused"
UNKNOWN_HOST = "UnknownHost"
UNREACHABLE = "Unreachable"
TIMEOUT = "Timeout"
CERTIFICATE = "Certificate"
# The connection ended before the response did.
CUT = "Cut"
# A stream without data for longer than its limit.
IDLE = "Idle"
# A plugin or a token file gave no credentials.
NO_LOGIN = "NoLogin"
# The response is not that of a Kubernetes API: usually a proxy or a login page.
NO_API = "NoApi"
# A line break or the like in a name, token or address; nothing was sent.
UNSAYABLE = "Unsayable"

_LASTING = frozenset({CERTIFICATE, NO_LOGIN, NO_API})
_READING = frozenset({"get", "list", "watch"})
# The API server gives these details in its messages only. Not compiled here: errors are rare, and the command
# line must start quickly.
_RIGHT = (
    r'User "(?P<user>[^"]*)" cannot (?P<verb>\S+) resource "(?P<resource>[^"]*)" in API group "(?P<group>[^"]*)"'
    r'(?: in the namespace "(?P<namespace>[^"]*)")?'
)
_IMPERSONATION = r'User "(?P<user>[^"]*)" cannot impersonate resource "(?P<resource>[^"]*)"'
_QUOTA = (
    r"exceeded quota: (?P<name>[^,]+), requested: (?P<asked>.+), used: (?P<used>.+), limited: (?P<limit>.+)"
)
_WEBHOOK = r'failed calling webhook "(?P<name>[^"]+)"'
_PATH = (
    r"/(?:api|apis/(?P<group>[^/]+))/(?P<version>[^/]+)"
    r"(?:/namespaces/(?P<namespace>[^/]+)(?=/))?/(?P<plural>[^/]+)"
)
_PRODUCTS = {
    "trainer.kubeflow.org": "Kubeflow Trainer",
    "kubeflow.org": "the MPI Operator",
    "jobset.x-k8s.io": "JobSet",
    "kueue.x-k8s.io": "Kueue",
    "visibility.kueue.x-k8s.io": "Kueue's visibility API",
}


class ApiError(BackendError):
    """The API server refused, failed, or could not be reached (`status` 0).

    `reason` is the server's word (`AlreadyExists`) or a constant of this module; `details` are the server's.
    `ambiguous`: a change may have happened although no response came; read before repeating it.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        reason: str = "",
        details: dict[str, Any] | None = None,
        retry_after: float | None = None,
        ambiguous: bool = False,
        server: str = "",
        method: str = "",
        path: str = "",
        login: str = "",
        hint: str = "",
    ) -> None:
        # 429 and 5xx pass by themselves, and so does a broken connection.
        lasting = reason in _LASTING if status == 0 else status < 500 and status != 429
        super().__init__(message, hint=hint, passing=not lasting)
        self.status = status
        self.reason = reason
        self.details = details or {}
        self.retry_after = retry_after
        self.ambiguous = ambiguous
        self.server = server
        self.method = method
        self.path = path
        self.login = login

    @property
    def kind_missing(self) -> bool:
        """Whether the server does not serve this kind of object, rather than not have this object."""
        # The 404 of an unknown path has no `details.name`.
        return self.status == 404 and not self.details.get("name")


class ErrorStatus(msgspec.Struct, frozen=True):
    """A response, read completely; names of headers are lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class _Status(msgspec.Struct):
    message: str = ""
    reason: str = ""
    details: dict[str, object] | None = None


_STATUS = codec.decoder(_Status)


def refusal(access: Access, method: str, path: str, answer: ErrorStatus, *, sure: bool = True) -> ApiError:
    """Return the error for a response of 300 or more; `sure` that the request changed nothing."""
    status = _status(answer.body)
    # A webhook is called before anything is stored, so its failure leaves nothing behind.
    may_have_changed = answer.status >= 500 and "failed calling webhook" not in status.message
    return ApiError(
        status.message or f"HTTP status {answer.status}",
        status=answer.status,
        reason=status.reason,
        details=status.details,
        retry_after=_retry_after(answer.headers.get("retry-after")),
        ambiguous=not sure and may_have_changed,
        server=access.server,
        method=method,
        path=path,
        login=access.login_hint,
    )


def _status(body: bytes) -> _Status:
    try:
        return _STATUS.decode(body)
    except msgspec.DecodeError:
        text = body[:200].decode(errors="replace").strip()
        # The HTML page of a proxy would hide the status in its markup.
        return _Status("" if "<" in text else text)


def _retry_after(value: str | None) -> float | None:
    return float(value) if value and value.strip().isdecimal() else None


def translate(error: ApiError, *, doing: str) -> MpiJobError:
    """Return the error for the user; `doing` ("create the job") completes "cannot …"."""
    if "denied" in error.message and (
        refused_by_us := error_messages.from_admission(error.message, _causes(error))
    ):
        return refused_by_us
    match error.status:
        case 401:
            return NotAllowed(
                f"cannot {doing}: the login at {error.server} has expired or is not accepted",
                hint=error.login,
            )
        case 403:
            return _forbidden(error, doing)
        case 404:
            return _missing(error, doing)
        case 409:
            return _conflict(error, doing)
        case 413:
            return _too_large(error, doing)
        case 400 | 422:
            return _invalid(error, doing)
        case 429:
            return BackendError(
                f"cannot {doing}: {error.server} returned 429 Too Many Requests",
                hint="run the command again in a minute; nothing was changed",
                passing=True,
            )
    if error.status >= 500:
        return _failing(error, doing)
    return BackendError(f"cannot {doing}: {error.message}", hint=error.hint, passing=error.passing)


def _forbidden(error: ApiError, doing: str) -> MpiJobError:
    if match := re.search(_QUOTA, error.message):
        return QuotaExceeded(
            f"cannot {doing}: quota '{match['name']}' would be exceeded: "
            f"requested {match['asked']}, used {match['used']}, limit {match['limit']}",
            hint="request less, or wait until running jobs end",
        )
    if match := re.search(_IMPERSONATION, error.message):
        return NotAllowed(
            f"cannot {doing}: User '{match['user']}' may not impersonate {match['resource']}",
            hint="remove `as` from the kubeconfig's user, or ask an administrator for the RBAC verb 'impersonate'",
        )
    if match := re.search(_RIGHT, error.message):
        return _missing_permission(match, doing)
    if any(cause.get("reason") == "NamespaceTerminating" for cause in _causes(error)):
        return Conflict(
            f"cannot {doing}: the namespace is being deleted", hint="use another one: --namespace NAME"
        )
    if "system:anonymous" in error.message:
        return NotAllowed(
            f"cannot {doing}: the request to {error.server} was anonymous: no credentials were accepted",
            hint=error.login,
        )
    return NotAllowed(
        f"cannot {doing}: {error.message}", hint="a policy of the cluster refuses this; ask its administrator"
    )


def lacks_right(error: ApiError) -> bool:
    """Return whether RBAC denied it, rather than a quota, a policy or a webhook."""
    return error.status == 403 and re.search(_RIGHT, error.message) is not None


def _missing_permission(match: re.Match[str], doing: str) -> NotAllowed:
    user, verb, namespace = match["user"], match["verb"], match["namespace"]
    place = f"namespace '{namespace}'" if namespace else "the whole cluster"
    what = _kind_name(match["resource"], match["group"])
    message = f"cannot {doing}: User '{user}' lacks '{verb}' permission for {what} in {place}"
    if not namespace:
        return NotAllowed(
            message, hint="ask an administrator of the cluster, or name a namespace: --namespace NAME"
        )
    role = _role(verb, match["resource"])
    account = user.removeprefix("system:serviceaccount:")
    subject = f"--user={user}" if account == user else f"--serviceaccount={account}"
    return NotAllowed(
        message,
        hint=f"ask an administrator of {place} for the role '{role}': "
        f"kubectl create rolebinding mpijob-{role} --clusterrole={role} {subject} --namespace={namespace}",
    )


def unread_findings(closed: Iterable[ApiError]) -> tuple[Finding, ...]:
    """Return notices for reads that RBAC denied, each message once; the caller's result is incomplete without
    them.
    """
    errors = {error.message: translate(error, doing="see everything") for error in closed}
    return tuple(
        Finding(code="NOT_ALL_SEEN", message=finding.message, hint=finding.hint, severity=Severity.NOTICE)
        for finding in errors.values()
    )


def _role(verb: str, resource: str) -> str:
    # The cluster roles that every cluster has; `view` does not contain secrets and exec.
    reading = verb in _READING and resource not in ("secrets", "pods/exec")
    return "view" if reading else "edit"


def _kind_name(resource: str, group: str) -> str:
    plural, _, sub = resource.partition("/")
    kind = resources.named(plural, group)
    if kind is None:
        return f"{resource}.{group}" if group else resource
    return f"{sub} of {kind.many}" if sub else kind.many


class _ApiPath(msgspec.Struct, frozen=True):
    """The kind of object and the namespace in the path of a request."""

    group: str = ""
    version: str = ""
    plural: str = ""
    namespace: str = ""

    @classmethod
    def of(cls, path: str) -> _ApiPath:
        match = re.match(_PATH, path)
        if not match:
            return cls()
        return cls(match["group"] or "", match["version"], match["plural"], match["namespace"] or "")

    @property
    def api(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


def _missing(error: ApiError, doing: str) -> MpiJobError:
    place = _ApiPath.of(error.path)
    if error.kind_missing:
        return _unknown_kind(error, place, doing)
    name, plural = error.details["name"], str(error.details.get("kind", ""))
    if plural == "namespaces":
        return NotFound(
            f"cannot {doing}: there is no namespace '{name}' at {error.server}",
            hint="name another one: --namespace NAME",
        )
    kind = resources.named(plural, str(error.details.get("group", "")))
    where = f" in namespace '{place.namespace}'" if place.namespace else ""
    return NotFound(f"cannot {doing}: no {kind.name if kind else plural} '{name}'{where}")


def _unknown_kind(error: ApiError, place: _ApiPath, doing: str) -> MpiJobError:
    if not place.plural:
        return NotFound(f"cannot {doing}: {error.server} returned 404 for {error.path}")
    product = _PRODUCTS.get(place.group)
    unknown = f"{error.server} does not serve {place.plural} of {place.api}"
    return Unsupported(
        f"cannot {doing}: {product} is not installed there: {unknown}"
        if product
        else f"cannot {doing}: {unknown}",
        hint="ask an administrator of the cluster to install it, or choose another cluster: --context NAME",
    )


def _conflict(error: ApiError, doing: str) -> MpiJobError:
    if error.reason != "AlreadyExists":
        return Conflict(
            f"cannot {doing}: conflict: the object was changed concurrently (409)",
            hint="run the command again",
        )
    place = _ApiPath.of(error.path)
    what = _kind_name(place.plural, place.group)
    where = f" in namespace '{place.namespace}'" if place.namespace else ""
    return Conflict(
        f"cannot {doing}: the name '{error.details.get('name', '')}' is already used by one of the {what}{where}",
        hint="choose another name, or delete the existing one",
    )


def _too_large(error: ApiError, doing: str) -> MpiJobError:
    return InvalidJob(
        f"cannot {doing}: it is too large for the cluster ({error.message})",
        hint="the limit is about 1.5 MB per object: put code and data into the image or on a volume",
    )


def _invalid(error: ApiError, doing: str) -> MpiJobError:
    findings = tuple(
        Finding(
            code=InvalidJob.code, message=str(cause.get("message", "")), field=str(cause.get("field", ""))
        )
        for cause in _causes(error)
        if cause.get("message")
    )
    details = "".join(f"\n  {finding}" for finding in findings) or f" {error.message}"
    return InvalidJob(f"cannot {doing}: the cluster rejects it:{details}", findings=findings)


def _failing(error: ApiError, doing: str) -> MpiJobError:
    # etcd's own limit comes back as a 500, that of the API server as a 413.
    if "request is too large" in error.message:
        return _too_large(error, doing)
    if match := re.search(_WEBHOOK, error.message):
        owner = next(
            (name for group, name in _PRODUCTS.items() if group in match["name"]), f"'{match['name']}'"
        )
        return BackendError(
            f"cannot {doing}: the webhook of {owner} does not answer, so the cluster refuses changes: {error.message}",
            hint="an administrator finds the cause in the log of its controller; run the command again afterwards",
            passing=True,
        )
    unknown_outcome = (
        "; whether it was done is not known: look before you repeat it" if error.ambiguous else ""
    )
    return BackendError(
        f"cannot {doing}: {error.server} answered {error.status} ({error.message}){unknown_outcome}",
        hint="the cluster reported an internal error; run the command again in a minute",
        passing=True,
    )


def _causes(error: ApiError) -> list[dict[str, Any]]:
    causes = error.details.get("causes")
    return [cause for cause in causes if isinstance(cause, dict)] if isinstance(causes, list) else []


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Raise ApiErrors of the block as errors for the user; `doing` completes "cannot …"."""
    try:
        yield
    except ApiError as error:
        raise translate(error, doing=doing) from error
