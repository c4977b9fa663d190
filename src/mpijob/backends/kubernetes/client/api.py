"""The Kubernetes API as this engine uses it: addresses in, plain documents out, errors as `ApiError`.

Every call blocks and none needs an event loop; threads share one `Api`. What an error means for the
user is told by `failures.translate`; how requests travel is `http`'s affair.
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
PARTIAL = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"  # for who needs no more of an answer
METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
LONGEST_LINE = 1 << 20
LARGE_PAGE = 2500
NEAR_LANES, FAR_LANES = 4, 16
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
    """Return path and query as they go over the line; Rancher and others serve below a path of their own."""
    if not path.startswith("/") or not {".", "..", ""}.isdisjoint(path[1:].split("/")):
        raise InvalidJob(
            f"'{path}' is not a valid Kubernetes API path: it has an empty name or a name of dots"
        )
    asked = urlencode([*query], safe="", quote_via=quote)
    root = urlsplit(access.server).path.rstrip("/")
    return root + quote(path, safe="/:@") + (f"?{asked}" if asked else "")


_DECODERS = {shape: codec.decoder(shape) for shape in (_Raws, _Page, dict[str, Any])}
T = TypeVar("T")
P = TypeVar("P", _Raws, _Page)


class Api:
    """One API server, spoken to as one user."""

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
        """Close the connections that are kept."""
        self._transport.close()

    def now(self) -> float:
        """Return the present time by the cluster's clock, as far as it has told it: for comparing its times."""
        return time.time() + self._transport.ahead_seconds()

    def lanes(self, near: int = NEAR_LANES) -> int:
        """Return how many reads are worth being made at once: for a near server a new line costs more than a read."""
        return near if self._transport.is_near() else FAR_LANES

    def get(self, path: str, **query: str) -> Document:
        """Return one object, or what else the address gives; raise ApiError."""
        return self._document(self.raw(path, **query), path)

    def find(self, path: str, **query: str) -> Document | None:
        """Return the object, or None when there is none."""
        try:
            return self.get(path, **query)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def raw(self, path: str, *, accept: str = JSON, **query: str) -> bytes:
        """Return the bytes of an answer: for hot paths that decode only what they need."""
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

        Pages of `chunk` objects (0: one page) are of one version of the collection; when the server
        has forgotten that version before the last page, the list is begun again.
        """
        asked = {"labelSelector": labels, "fieldSelector": fields, "limit": str(chunk or ""), **query}
        return self._relisted(lambda: self._collected(path, asked, accept, trim))

    def raws(self, path: str) -> builtins.list[msgspec.Raw]:
        """Return all objects of a collection undecoded: for hot paths that decode only what they need."""
        asked = {"limit": str(LARGE_PAGE)}
        return self._relisted(
            lambda: [one for page in self._pages(path, _Raws, asked) for one in page.items or ()]
        )

    def _relisted(self, collect: Callable[[], T]) -> T:
        """Return what was collected; begin again when the server has forgotten the version of the first page."""
        for _ in range(_RELISTS - 1):
            try:
                return collect()
            except ApiError as error:
                if error.status != 410:
                    raise
        return collect()

    def _pages(self, path: str, shape: type[P], asked: Mapping[str, str], accept: str = JSON) -> Iterator[P]:
        more: dict[str, str] = {}
        while True:
            page = self._decoded(self.raw(path, accept=accept, **asked, **more), shape, path)
            yield page
            if not page.metadata.more:
                return
            more = {"continue": page.metadata.more}

    def _collected(
        self,
        path: str,
        asked: Mapping[str, str],
        accept: str,
        trim: Callable[[Document], Document] | None,
    ) -> Listing:
        items: builtins.list[Document] = []
        columns: tuple[Document, ...] = ()
        version = ""
        for page in self._pages(path, _Page, asked, accept):
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
        """Create an object in a collection and return it as the server keeps it.

        After a failure that leaves open whether it was created, the ApiError is `ambiguous`: look
        before creating it again. Reviews and dry runs, which leave nothing behind, are repeated.
        """
        asked = {"fieldManager": manager, "dryRun": "All" if dry_run else "", **query}
        harmless = dry_run or path.endswith("reviews")
        content = msgspec.json.encode(body)
        request = self._request("POST", path, asked, body=content, accept=accept, repeatable=harmless)
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
        """Change an object and return it; an `apply` takes over fields that others manage."""
        asked = {"fieldManager": manager, "dryRun": "All" if dry_run else "", **query}
        if form == "apply":
            asked.setdefault("force", "true")
        request = self._request(
            "PATCH",
            path,
            asked,
            body=msgspec.json.encode(body),
            content=_FORMS[form],
            accept=accept,
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
        """Delete an object; None says that it is gone already, also when another has taken its name."""
        options: Document = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        if uid:
            options["preconditions"] = {"uid": uid}
        request = self._request("DELETE", path, query, body=msgspec.json.encode(options))
        try:
            return self._document(self._send(request), path)
        except ApiError as error:
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
        """Return the lines of an answer as they arrive: logs, watches.

        A stream that is silent for `idle_seconds` ends with an ApiError; what a line has beyond
        `longest` bytes is left out and counted.
        """
        from mpijob.backends.kubernetes.client.stream import Stream  # not everybody reads streams

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
