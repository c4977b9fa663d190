"""What an API server refuses or fails to do, and how that is told to a data scientist.

`ApiError` is the fact: a status, the server's own words, where it happened. `translate` gives it its
meaning for the user in one sentence with the next step. No credential is ever part of either.
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

# What has no HTTP status has one of these reasons.
REFUSED = "Refused"  # nobody listens there
UNKNOWN_HOST = "UnknownHost"
UNREACHABLE = "Unreachable"
TIMEOUT = "Timeout"
CERTIFICATE = "Certificate"  # the server is not the one that the kubeconfig means
CUT = "Cut"  # the connection ended in the middle
IDLE = "Idle"  # a stream that sent no data for too long
NO_LOGIN = "NoLogin"  # a plugin or a token file gave no credentials
NO_API = "NoApi"  # something answered that is no Kubernetes API
UNSAYABLE = "Unsayable"  # a name, a token or an address that no request can carry; nothing was sent

_LASTING = frozenset({CERTIFICATE, NO_LOGIN, NO_API})
_READING = frozenset({"get", "list", "watch"})
# The server's sentences; compiled when one is needed, which is seldom.
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

    `reason` is the server's word (`AlreadyExists`) or one of this module's; `details` are the
    server's; `ambiguous` says that a change may have happened although no answer came: look before
    repeating it.
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
        """Whether the server knows no such kind of object, rather than no such object."""
        return self.status == 404 and not self.details.get("name")


class ErrorStatus(msgspec.Struct, frozen=True):
    """What came back, whole."""

    status: int
    headers: Mapping[str, str]  # their names in small letters
    body: bytes


class _Status(msgspec.Struct):
    message: str = ""
    reason: str = ""
    details: dict[str, object] | None = None


_STATUS = codec.decoder(_Status)


def refusal(access: Access, method: str, path: str, answer: ErrorStatus, *, sure: bool = True) -> ApiError:
    """Return the error that an answer of 300 or more stands for; `sure` that nothing was changed by it."""
    status = _status(answer.body)
    failed_in_doing = answer.status >= 500 and "failed calling webhook" not in status.message
    return ApiError(
        status.message or f"HTTP status {answer.status}",
        status=answer.status,
        reason=status.reason,
        details=status.details,
        retry_after=_retry_after(answer.headers.get("retry-after")),
        ambiguous=not sure and failed_in_doing,
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
        return _Status("" if "<" in text else text)  # not the page of some proxy


def _retry_after(value: str | None) -> float | None:
    return float(value) if value and value.strip().isdecimal() else None


def translate(error: ApiError, *, doing: str) -> MpiJobError:
    """Return what the user is told when `doing` ("create the job") met this error."""
    if "denied" in error.message and (ours := error_messages.of_ours(error.message, _causes(error))):
        return ours
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
    if seen := re.search(_QUOTA, error.message):
        return QuotaExceeded(
            f"cannot {doing}: quota '{seen['name']}' would be exceeded: "
            f"requested {seen['asked']}, used {seen['used']}, limit {seen['limit']}",
            hint="request less, or wait until running jobs end",
        )
    if seen := re.search(_IMPERSONATION, error.message):
        return NotAllowed(
            f"cannot {doing}: User '{seen['user']}' may not impersonate {seen['resource']}",
            hint="remove `as` from the kubeconfig's user, or ask an administrator for the RBAC verb 'impersonate'",
        )
    if seen := re.search(_RIGHT, error.message):
        return _lacking(seen, doing)
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
    """Whether the user has no right to do this, whatever it was done with."""
    return error.status == 403 and re.search(_RIGHT, error.message) is not None


def _lacking(seen: re.Match[str], doing: str) -> NotAllowed:
    user, verb, namespace = seen["user"], seen["verb"], seen["namespace"]
    place = f"namespace '{namespace}'" if namespace else "the whole cluster"
    what = _called(seen["resource"], seen["group"])
    message = f"cannot {doing}: User '{user}' lacks '{verb}' permission for {what} in {place}"
    if not namespace:
        return NotAllowed(
            message, hint="ask an administrator of the cluster, or name a namespace: --namespace NAME"
        )
    role = _role(verb, seen["resource"])
    account = user.removeprefix("system:serviceaccount:")
    subject = f"--user={user}" if account == user else f"--serviceaccount={account}"
    return NotAllowed(
        message,
        hint=f"ask an administrator of {place} for the role '{role}': "
        f"kubectl create rolebinding mpijob-{role} --clusterrole={role} {subject} --namespace={namespace}",
    )


def unseen(closed: Iterable[ApiError]) -> tuple[Finding, ...]:
    """Return what is told of reads that the user has no right to: what is told beside them is told without them."""
    errors = {error.message: translate(error, doing="see everything") for error in closed}
    return tuple(
        Finding(code="NOT_ALL_SEEN", message=one.message, hint=one.hint, severity=Severity.NOTICE)
        for one in errors.values()
    )


def _role(verb: str, resource: str) -> str:
    """Return the least of the roles that every cluster has which grants this."""
    reading = verb in _READING and resource not in ("secrets", "pods/exec")
    return "view" if reading else "edit"


def _called(resource: str, group: str) -> str:
    plural, _, sub = resource.partition("/")
    kind = resources.named(plural, group)
    if kind is None:
        return f"{resource}.{group}" if group else resource
    return f"{sub} of {kind.many}" if sub else kind.many


class _Place(msgspec.Struct, frozen=True):
    """What an address says: the kind of object, and the namespace that it is in."""

    group: str = ""
    version: str = ""
    plural: str = ""
    namespace: str = ""

    @classmethod
    def of(cls, path: str) -> _Place:
        seen = re.match(_PATH, path)
        if not seen:
            return cls()
        return cls(seen["group"] or "", seen["version"], seen["plural"], seen["namespace"] or "")

    @property
    def api(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


def _missing(error: ApiError, doing: str) -> MpiJobError:
    place = _Place.of(error.path)
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


def _unknown_kind(error: ApiError, place: _Place, doing: str) -> MpiJobError:
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
    place = _Place.of(error.path)
    what = _called(place.plural, place.group)
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
    told = "".join(f"\n  {finding}" for finding in findings) or f" {error.message}"
    return InvalidJob(f"cannot {doing}: the cluster rejects it:{told}", findings=findings)


def _failing(error: ApiError, doing: str) -> MpiJobError:
    if "request is too large" in error.message:
        return _too_large(error, doing)
    if seen := re.search(_WEBHOOK, error.message):
        owner = next(
            (name for group, name in _PRODUCTS.items() if group in seen["name"]), f"'{seen['name']}'"
        )
        return BackendError(
            f"cannot {doing}: the webhook of {owner} does not answer, so the cluster refuses changes: {error.message}",
            hint="an administrator finds the cause in the log of its controller; run the command again afterwards",
            passing=True,
        )
    unsure = "; whether it was done is not known: look before you repeat it" if error.ambiguous else ""
    return BackendError(
        f"cannot {doing}: {error.server} answered {error.status} ({error.message}){unsure}",
        hint="the cluster reported an internal error; run the command again in a minute",
        passing=True,
    )


def _causes(error: ApiError) -> list[dict[str, Any]]:
    causes = error.details.get("causes")
    return [cause for cause in causes if isinstance(cause, dict)] if isinstance(causes, list) else []


@contextmanager
def telling(doing: str) -> Iterator[None]:
    """Let what an API server refuses be told to the user; `doing` says what was wanted."""
    try:
        yield
    except ApiError as error:
        raise translate(error, doing=doing) from error
