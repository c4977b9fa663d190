"""The Kubernetes API as this engine uses it: paths in, decoded objects out, errors as `ApiError`.

All calls block and none needs an event loop; threads share one `Api`. `api_errors.translate` turns an error
into a message for the user; `http` sends the requests and decides about repetitions.
"""

from __future__ import annotations

import builtins
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from mpijob import codec
from mpijob.backends.kubernetes.auth.access import Access
from mpijob.backends.kubernetes.auth.credentials import Credentials
from mpijob.backends.kubernetes.client.api_errors import NO_API, ApiError
from mpijob.backends.kubernetes.client.http import Request, Transport
from mpijob.errors import InvalidJob
from mpijob.formats.kubernetes.metadata.well_known import Document

if TYPE_CHECKING:
    from mpijob.backends.kubernetes.client.stream import Stream

__all__ = ["JSON", "METADATA", "PARTIAL", "TABLE", "Api", "ApiError", "Document", "Listing"]

JSON = "application/json"
# The API server then returns the metadata of an object only: for callers that use no more of it.
PARTIAL = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
LONGEST_LINE = 1 << 20
# Objects in a page of `raws`, which is used for large collections: fewer requests, each still decoded in
# pieces.
LARGE_PAGE = 2500
# Concurrent reads: against a near server a further connection costs more than it saves, against a distant one
# the round trips dominate.
NEAR_LANES, FAR_LANES = 4, 16
# How often a list is started: a continue token expires with its resourceVersion (410) after about five
# minutes.
_RELISTS = 3
_FORMS = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
Form = Literal["merge", "json", "strategic", "apply"]


class Listing(msgspec.Struct, frozen=True):
    """Every object of a collection, at one version of it; of a table, its rows and columns."""

    items: list[Document]
    version: str
    columns: tuple[Document, ...] = ()


class _Meta(msgspec.Struct):
    resource_version: str = msgspec.field(default="", name="resourceVersion")
    more: str = msgspec.field(default="", name="continue")


class _Raws(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    items: list[msgspec.Raw] | None = None


class _Page(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    items: list[dict[str, Any]] | None = None
    rows: list[dict[str, Any]] | None = None
    columns: list[dict[str, Any]] | None = msgspec.field(default=None, name="columnDefinitions")


def target(access: Access, path: str, query: Iterable[tuple[str, str]]) -> str:
    """Return path and query as they are sent; raise InvalidJob for a path with empty or dot segments."""
    # Names come from users: "../" in a name must not select another object of the API.
    if not path.startswith("/") or not {".", "..", ""}.isdisjoint(path[1:].split("/")):
        raise InvalidJob(
            f"'{path}' is not a valid Kubernetes API path: it has an empty name or a name of dots"
        )
    parameters = urlencode([*query], safe="", quote_via=quote)
    # Rancher and other proxies serve the API below a path of their own.
    root = urlsplit(access.server).path.rstrip("/")
    return root + quote(path, safe="/:@") + (f"?{parameters}" if parameters else "")


_DECODERS = {shape: codec.decoder(shape) for shape in (_Raws, _Page, dict[str, Any])}
T = TypeVar("T")
P = TypeVar("P", _Raws, _Page)


class Api:
    """The API server of a cluster, with the credentials of one user."""

    def __init__(self, access: Access, *, timeout: float = 30.0) -> None:
        self.access = access
        self.credentials = Credentials(access)
        self._timeout = timeout
        self._transport = Transport(access, self.credentials)

    def __repr__(self) -> str:
        return f"Api({self.access!r})"

    def __enter__(self) -> Api:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the idle connections; the object must not be used afterwards."""
        self._transport.close()

    def now(self) -> float:
        """Return the time by the cluster's clock, to compare with the times in its objects."""
        return time.time() + self._transport.ahead_seconds()

    def lanes(self, near: int = NEAR_LANES) -> int:
        """Return how many reads are worth making at once, `near` against a server that is near."""
        return near if self._transport.is_near() else FAR_LANES

    def get(self, path: str, **query: str) -> Document:
        """Return an object, or whatever document the path has; raise ApiError."""
        return self._document(self.raw(path, **query), path)

    def find(self, path: str, **query: str) -> Document | None:
        """Return the object, or None if it does not exist (404)."""
        try:
            return self.get(path, **query)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def raw(self, path: str, *, accept: str = JSON, **query: str) -> bytes:
        """Return the undecoded body: for hot paths that decode only the fields they need."""
        return self._send(self._request("GET", path, query, accept=accept))

    def list(
        self,
        path: str,
        *,
        labels: str = "",
        fields: str = "",
        chunk: int = 500,
        accept: str = JSON,
        trim: Callable[[Document], Document] | None = None,
        **query: str,
    ) -> Listing:
        """Return all objects of a collection, `trim` applied to each as its page arrives.

        Pages have `chunk` objects (0: one page for all) and are of one resourceVersion; if that expires
        before the last page, the list is started again.
        """
        parameters = {"labelSelector": labels, "fieldSelector": fields, "limit": str(chunk or ""), **query}
        return self._restart_if_expired(lambda: self._collect_pages(path, parameters, accept, trim))

    def raws(self, path: str) -> builtins.list[msgspec.Raw]:
        """Return all objects of a collection undecoded: hot paths decode only the fields they need."""
        parameters = {"limit": str(LARGE_PAGE)}
        return self._restart_if_expired(
            lambda: [item for page in self._pages(path, _Raws, parameters) for item in page.items or ()]
        )

    def _restart_if_expired(self, collect: Callable[[], T]) -> T:
        for _ in range(_RELISTS - 1):
            try:
                return collect()
            except ApiError as error:
                # The continue token's version was compacted; the pages so far cannot be completed.
                if error.status != 410:
                    raise
        return collect()

    def _pages(
        self, path: str, shape: type[P], parameters: Mapping[str, str], accept: str = JSON
    ) -> Iterator[P]:
        more: dict[str, str] = {}
        while True:
            page = self._decoded(self.raw(path, accept=accept, **parameters, **more), shape, path)
            yield page
            if not page.metadata.more:
                return
            more = {"continue": page.metadata.more}

    def _collect_pages(
        self,
        path: str,
        parameters: Mapping[str, str],
        accept: str,
        trim: Callable[[Document], Document] | None,
    ) -> Listing:
        items: builtins.list[Document] = []
        columns: tuple[Document, ...] = ()
        version = ""
        for page in self._pages(path, _Page, parameters, accept):
            found = (page.rows if page.items is None else page.items) or []
            items += map(trim, found) if trim else found
            columns = columns or tuple(page.columns or ())
            version = page.metadata.resource_version
        return Listing(items, version, columns)

    def create(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        dry_run: bool = False,
        manager: str = "mpijob",
        accept: str = JSON,
        **query: str,
    ) -> Document:
        """Create an object in a collection and return it as the server stored it.

        If it is unknown whether it was created, the ApiError is `ambiguous`: read before creating it again.
        Reviews and dry runs store nothing and are repeated.
        """
        parameters = {"fieldManager": manager, "dryRun": "All" if dry_run else "", **query}
        harmless = dry_run or path.endswith("reviews")
        content = msgspec.json.encode(body)
        request = self._request("POST", path, parameters, body=content, accept=accept, repeatable=harmless)
        return self._document(self._send(request), path)

    def patch(
        self,
        path: str,
        body: Any,
        *,
        form: Form = "merge",
        dry_run: bool = False,
        manager: str = "mpijob",
        accept: str = JSON,
        **query: str,
    ) -> Document:
        """Change an object and return it; `apply` takes over fields that other managers own (force)."""
        parameters = {"fieldManager": manager, "dryRun": "All" if dry_run else "", **query}
        if form == "apply":
            parameters.setdefault("force", "true")
        request = self._request(
            "PATCH",
            path,
            parameters,
            body=msgspec.json.encode(body),
            content=_FORMS[form],
            accept=accept,
            # A JSON patch may append to a list; the other forms give the same object when applied twice.
            repeatable=dry_run or form != "json",
        )
        return self._document(self._send(request), path)

    def delete(
        self,
        path: str,
        *,
        grace_seconds: int | None = None,
        propagation: str = "Background",
        uid: str = "",
        **query: str,
    ) -> Document | None:
        """Delete an object; None if it is gone already, also when another one has its name (`uid`)."""
        options: Document = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        if uid:
            options["preconditions"] = {"uid": uid}
        request = self._request("DELETE", path, query, body=msgspec.json.encode(options))
        try:
            return self._document(self._send(request), path)
        except ApiError as error:
            # Another object has taken the name: the one with this uid is gone. The reason of a 409 does not
            # tell a failed precondition from a conflict, only the message does.
            other = error.status == 409 and uid and "the UID in the precondition" in error.message
            if error.status == 404 or other:
                return None
            raise

    def lines(
        self,
        path: str,
        *,
        idle_seconds: float | None = None,
        longest: int | None = LONGEST_LINE,
        attempts: int = 5,
        **query: str,
    ) -> Stream:
        """Return the lines of a response as they arrive (logs, watches); the caller closes the stream.

        A stream without data for `idle_seconds` ends with an ApiError; what a line has beyond `longest` bytes
        is left out and counted.
        """
        from mpijob.backends.kubernetes.client.stream import Stream

        address = target(self.access, path, ((name, value) for name, value in query.items() if value))
        request = Request(
            "GET", address, path, accept="*/*", seconds=idle_seconds, compressed=False, attempts=attempts
        )
        return Stream(self._transport.open(request), request, self.access.server, longest)

    def _send(self, request: Request) -> bytes:
        return self._transport.send(request).body

    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        *,
        body: bytes | None = None,
        content: str = JSON,
        accept: str = JSON,
        repeatable: bool = True,
    ) -> Request:
        address = target(self.access, path, ((name, value) for name, value in query.items() if value))
        return Request(method, address, path, body, content, accept, repeatable, self._timeout)

    def _document(self, body: bytes, path: str) -> Document:
        document: Document = self._decoded(body, dict[str, Any], path)
        return document

    def _decoded(self, body: bytes, shape: Any, path: str) -> Any:
        try:
            return _DECODERS[shape].decode(body)
        except msgspec.DecodeError as error:
            raise ApiError(
                f"{self.access.server} is not a Kubernetes API server",
                reason=NO_API,
                server=self.access.server,
                path=path,
                hint=f"check the server's address in the kubeconfig (context '{self.access.context}')",
            ) from error
