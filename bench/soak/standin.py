"""A stand-in for an API server: objects in memory, lists, watches, merge patches; fast enough to play a day.

It knows no schemas and no rights, and is no proof of anything but memory: what services do on a real API server is
shown by `tests/e2e/cluster`.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

Document = dict[str, Any]
_KEPT = 20_000  # changes; who is further behind begins anew
_BOOKMARK_SECONDS = 20.0
SERVED: dict[str, tuple[tuple[str, str, bool], ...]] = {
    "v1": (
        ("Pod", "pods", True), ("ConfigMap", "configmaps", True), ("Secret", "secrets", True),
        ("Event", "events", True), ("Namespace", "namespaces", False), ("Node", "nodes", False),
        ("ServiceAccount", "serviceaccounts", True), ("Service", "services", True),
        ("ResourceQuota", "resourcequotas", True), ("LimitRange", "limitranges", True),
    ),
    "batch/v1": (("Job", "jobs", True),),
    "apps/v1": (("Deployment", "deployments", True),),
    "coordination.k8s.io/v1": (("Lease", "leases", True),),
    "networking.k8s.io/v1": (("NetworkPolicy", "networkpolicies", True),),
    "rbac.authorization.k8s.io/v1": (
        ("ClusterRole", "clusterroles", False), ("ClusterRoleBinding", "clusterrolebindings", False),
        ("Role", "roles", True), ("RoleBinding", "rolebindings", True),
    ),
    "apiextensions.k8s.io/v1": (("CustomResourceDefinition", "customresourcedefinitions", False),),
    "admissionregistration.k8s.io/v1": (
        ("ValidatingAdmissionPolicy", "validatingadmissionpolicies", False),
        ("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", False),
    ),
    "trainer.kubeflow.org/v1alpha1": (
        ("TrainJob", "trainjobs", True), ("TrainingRuntime", "trainingruntimes", True),
        ("ClusterTrainingRuntime", "clustertrainingruntimes", False),
    ),
    "jobset.x-k8s.io/v1alpha2": (("JobSet", "jobsets", True),),
    "kueue.x-k8s.io/v1beta2": (
        ("ClusterQueue", "clusterqueues", False), ("LocalQueue", "localqueues", True),
        ("ResourceFlavor", "resourceflavors", False), ("Workload", "workloads", True),
    ),
    "mpijob.dev/v1alpha1": (
        ("MPIJobPlatform", "mpijobplatforms", False), ("MPIJobLimits", "mpijoblimits", False),
    ),
}  # fmt: skip


class Where(NamedTuple):
    """What a path means: a collection of one namespace or of all, an object in it, a part of that object."""

    root: str
    plural: str
    namespace: str = ""
    name: str = ""
    part: str = ""


class Told(NamedTuple):
    """One change, written once for all who listen."""

    version: int
    where: Where
    labels: Mapping[str, str]
    kind: str
    line: bytes


class Refused(Exception):
    """The server's answer is no."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


def place_of(path: str) -> Where:
    """Return what a path means."""
    words = path.strip("/").split("/")
    root, rest = (words[:2], words[2:]) if words[0] == "api" else (words[:3], words[3:])
    namespace = ""
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    plural, name, part = ([*rest, "", "", ""])[:3]
    return Where("/".join(root), plural, namespace, name, part)


class World:
    """Every object, every change, and what pods said."""

    def __init__(self, kept: int = _KEPT) -> None:
        self.version = 1
        self._kept = kept
        self.log: Callable[[str, str], bytes] = lambda namespace, pod: b""
        self.requests = 0
        self._objects: dict[tuple[str, str], dict[tuple[str, str], Document]] = {}
        self._changes: deque[Told] = deque(maxlen=kept)
        self._news = threading.Condition()

    def put(self, path: str, document: Document) -> Document:
        """Make an object, or put another in its place."""
        where = place_of(path)
        with self._news:
            known = self._collection(where)
            key = (where.namespace, where.name)
            before = known.get(key)
            kind = "ADDED" if before is None else "MODIFIED"
            metadata = _birth(before, self.version) | document["metadata"]
            metadata |= {"name": where.name} | ({"namespace": where.namespace} if where.namespace else {})
            known[key] = {**document, "metadata": metadata}
            return self._tell(kind, where, known[key])

    def find(self, path: str) -> Document | None:
        """Return an object."""
        where = place_of(path)
        return self._collection(where).get((where.namespace, where.name))

    def remove(self, path: str) -> Document | None:
        """Take an object away."""
        where = place_of(path)
        with self._news:
            gone = self._collection(where).pop((where.namespace, where.name), None)
            return None if gone is None else self._tell("DELETED", where, gone)

    def merge(self, path: str, change: Mapping[str, Any], *, make: bool) -> Document:
        """Change an object by a merge; `make` makes one that is not there."""
        where = place_of(path)
        with self._news:
            found = self._collection(where).get((where.namespace, where.name))
            if found is None and not make:
                raise Refused(404, "NotFound")
            if found is None:
                return self.put(path, dict(change))
            asked = change.get("metadata") or {}
            for guard in ("uid", "resourceVersion"):
                if asked.get(guard) not in (None, "", found["metadata"].get(guard)):
                    raise Refused(409, "Conflict")
            merged = _merged(found, change)
            if merged == found:
                return found
            self._collection(where)[where.namespace, where.name] = merged
            return self._tell("MODIFIED", where, merged)

    def listed(self, where: Where, labels: str, fields: str) -> list[Document]:
        """Return the objects of a collection."""
        with self._news:
            known = [*self._collection(where).values()]
        return [one for one in known if _is_in(where, one["metadata"]) and _selected(one, labels, fields)]

    def changes(self, where: Where, since: int, labels: str) -> Iterator[bytes]:
        """Yield every later change of a collection, and a bookmark now and then."""
        while True:
            with self._news:
                found = [one for one in self._since(since) if _matches(one, where, labels)]
                if not found:
                    self._news.wait(_BOOKMARK_SECONDS)
                    found = [one for one in self._since(since) if _matches(one, where, labels)]
                since = self.version
            for one in found:
                yield one.line
            if not found:
                body = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(since)}}}
                yield json.dumps(body).encode()

    def _since(self, version: int) -> list[Told]:
        if len(self._changes) == self._kept and self._changes[0].version > version + 1:
            raise Refused(410, "Expired")
        found = []
        for one in reversed(self._changes):
            if one.version <= version:
                break
            found.append(one)
        return found[::-1]

    def _tell(self, kind: str, where: Where, document: Document) -> Document:
        self.version += 1
        document["metadata"] = document["metadata"] | {"resourceVersion": str(self.version)}
        line = json.dumps({"type": kind, "object": document}).encode()
        labels = document["metadata"].get("labels") or {}
        self._changes.append(Told(self.version, where, labels, kind, line))
        self._news.notify_all()
        return document

    def _collection(self, where: Where) -> dict[tuple[str, str], Document]:
        return self._objects.setdefault((where.root, where.plural), {})


def _birth(before: Document | None, version: int) -> Document:
    """Return what an object is given once and keeps: watchers know it by its uid."""
    if before is None:
        return {"uid": f"uid-{version}", "creationTimestamp": _now()}
    return {key: before["metadata"][key] for key in ("uid", "creationTimestamp")}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _merged(old: Mapping[str, Any], change: Mapping[str, Any]) -> Document:
    made = dict(old)
    for key, value in change.items():
        if value is None:
            made.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(made.get(key), Mapping):
            made[key] = _merged(made[key], value)
        else:
            made[key] = value
    return made


def _is_in(where: Where, metadata: Mapping[str, Any]) -> bool:
    return not where.namespace or metadata.get("namespace", "") == where.namespace


def _matches(told: Told, where: Where, labels: str) -> bool:
    same = (told.where.root, told.where.plural) == (where.root, where.plural)
    return same and where.namespace in ("", told.where.namespace) and _labelled(told.labels, labels)


def _selected(one: Document, labels: str, fields: str) -> bool:
    name = fields.removeprefix("metadata.name=") if fields.startswith("metadata.name=") else ""
    return (not name or one["metadata"]["name"] == name) and _labelled(
        one["metadata"].get("labels") or {}, labels
    )


def _labelled(mine: Mapping[str, str], labels: str) -> bool:
    for word in filter(None, labels.split(",")):
        key, equals, value = word.partition("=")
        if (mine.get(key) != value) if equals else (key not in mine):
            return False
    return True


def discovery(path: str) -> Document | None:
    """Return what the server tells of itself at a path."""
    groups = [version for version in SERVED if "/" in version]
    if path == "/apis":
        told = [_group(version) for version in groups]
        return {"kind": "APIGroupList", "groups": told}
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    if path == "/version":
        return {"major": "1", "minor": "34", "gitVersion": "v1.34.4"}
    known = SERVED.get(
        path.removeprefix("/apis/") if path.startswith("/apis/") else path.removeprefix("/api/")
    )
    if known is None:
        group = next((one for one in groups if path == f"/apis/{one.partition('/')[0]}"), "")
        return {"kind": "APIGroup", **_group(group)} if group else None
    verbs = ["create", "delete", "get", "list", "patch", "update", "watch"]
    listed = [
        {"kind": kind, "name": plural, "singularName": kind.lower(), "namespaced": own, "verbs": verbs}
        for kind, plural, own in known
    ]
    version = path.removeprefix("/apis/").removeprefix("/api/")
    return {"kind": "APIResourceList", "groupVersion": version, "resources": listed}


def _group(version: str) -> Document:
    name = version.partition("/")[0]
    told = {"groupVersion": version, "version": version.partition("/")[2]}
    return {"name": name, "versions": [told], "preferredVersion": told}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that broke is no news."""


def serve(world: World) -> ThreadingHTTPServer:
    """Serve a world on a port of this machine, in threads of its own."""
    server = _Server(("127.0.0.1", 0), _handler(world))
    threading.Thread(target=server.serve_forever, daemon=True, name="stand-in").start()
    return server


def _handler(world: World) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def _answer(self) -> None:
            world.requests += 1
            asked = urlsplit(self.path)
            query = {key: values[0] for key, values in parse_qs(asked.query).items()}
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else {}
            try:
                self._act(asked.path, query, body)
            except Refused as refused:
                told = {
                    "kind": "Status",
                    "status": "Failure",
                    "code": refused.status,
                    "reason": refused.reason,
                }
                self._send(refused.status, told | {"message": refused.reason})

        def _act(self, path: str, query: Mapping[str, str], body: Document) -> None:
            match self.command:
                case "GET":
                    self._get(path, query)
                case "POST":
                    self._post(path, body)
                case "DELETE":
                    gone = world.remove(path)
                    self._send(
                        200 if gone else 404, gone or {"kind": "Status", "code": 404, "reason": "NotFound"}
                    )
                case _:
                    where = path.removesuffix("/status")
                    make = "apply" in (self.headers.get("Content-Type") or "")
                    self._send(200, world.merge(where, body, make=make))

        def _get(self, path: str, query: Mapping[str, str]) -> None:
            told = discovery(path)
            where = place_of(path) if told is None else None
            if told is not None:
                self._send(200, told)
            elif where is None or f"{where.root.partition('/')[2]}" not in SERVED:
                raise Refused(404, "NotFound")
            elif where.part == "log":
                self._send(200, world.log(where.namespace, where.name))
            elif where.name:
                if (found := world.find(path)) is None:
                    raise Refused(404, "NotFound")
                self._send(200, found)
            elif query.get("watch") in ("true", "1"):
                self._watch(where, query)
            else:
                self._list(where, query)

        def _list(self, where: Where, query: Mapping[str, str]) -> None:
            version = world.version
            items = world.listed(where, query.get("labelSelector", ""), query.get("fieldSelector", ""))
            self._send(200, {"kind": "List", "metadata": {"resourceVersion": str(version)}, "items": items})

        def _watch(self, where: Where, query: Mapping[str, str]) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            since = int(query.get("resourceVersion") or world.version)
            try:
                for line in world.changes(where, since, query.get("labelSelector", "")):
                    self._chunk(line)
            except (
                Refused
            ) as refused:  # too far behind: without a word it would ask for the same again, for ever
                told = {"kind": "Status", "code": refused.status, "reason": refused.reason}
                self._chunk(json.dumps({"type": "ERROR", "object": told}).encode())
            except OSError:
                pass
            self.close_connection = True

        def _chunk(self, line: bytes) -> None:
            self.wfile.write(b"%x\r\n%s\n\r\n" % (len(line) + 1, line))
            self.wfile.flush()

        def _post(self, path: str, body: Document) -> None:
            where = place_of(path)
            if where.plural.endswith("reviews"):
                allowed = {"allowed": True, "userInfo": {"username": "soak"}, "authenticated": True}
                self._send(201, body | {"status": allowed})
                return
            address = f"{path}/{body['metadata']['name']}"
            if world.find(address) is not None:
                raise Refused(409, "AlreadyExists")
            self._send(201, world.put(address, body))

        def _send(self, status: int, body: Document | bytes) -> None:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/plain" if isinstance(body, bytes) else "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler
