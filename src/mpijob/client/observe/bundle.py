"""The support bundle: everything known of a job in one archive that can be sent to others.

A part that cannot be collected is replaced by the reason, and the rest is collected. Every text passes
`observation/redaction/bundle` last. The archive is bounded, its order is fixed, its names are plain, and only
its owner can read it.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import os
import platform
import re
import sys
import tarfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from mpijob import __version__
from mpijob.backends.capabilities import SupportsDoctor, SupportsSecretValues
from mpijob.backends.streams import close
from mpijob.client.observe import logs
from mpijob.errors import BackendError, Conflict, MpiJobError
from mpijob.model import LogQuery, MPIJob, Phase
from mpijob.observation.logs.escape import visible
from mpijob.observation.redaction import masking
from mpijob.observation.redaction.bundle import BundleRedactor, values_of
from mpijob.settings import CLUSTER

if TYPE_CHECKING:
    from mpijob.backends.protocol import Backend
    from mpijob.model import JobRef, JobState, LogLine
    from mpijob.settings import Settings

MOST_BYTES = 32 << 20
_LOG_SHARE, _PART_SHARE = 0.6, 0.1
_MOST_ROWS = 20_000
_PACKAGES = (
    "msgspec",
    "click",
    "PyYAML",
    "mpich",
    "mpi4py",
    "rich",
    "google-re2",
    "websocket-client",
    "py-spy",
)


class BundleFile(msgspec.Struct, frozen=True):
    """A file of a bundle: name, size and digest."""

    name: str
    size: int
    sha256: str
    about: str


class Bundle(msgspec.Struct, frozen=True):
    """A bundle that was written, and its content."""

    path: str
    size: int
    files: tuple[BundleFile, ...]


def write(
    ref: JobRef,
    backend: Backend,
    settings: Settings,
    target: Path | None = None,
    *,
    stacks: bool = False,
    most_bytes: int = MOST_BYTES,
) -> Bundle:
    """Write the bundle of a job to a new file."""
    state = backend.get(ref)
    spec = backend.spec(state.ref)
    path = target or Path(f"{plain(state.ref.name)}-bundle.tar.gz")
    refuse_existing(path)
    seal = BundleRedactor(values_of(spec, _engine_secrets(state.ref, spec, backend)))
    parts = _Parts(seal, int(most_bytes * _PART_SHARE))
    for name, about, value in _values(state, spec, backend, settings, stacks):
        parts.add(name, about, value)
    for name, text in _logs(state.ref, backend, seal, int(most_bytes * _LOG_SHARE)):
        parts.add_text(name, "log lines, oldest first: time, stream, text", seal.text(text), most_bytes)
    entries = parts.entries()
    parts.add("MANIFEST.json", "this listing", [msgspec.to_builtins(entry) for entry in entries])
    parts.add_text("README.txt", "description of the bundle", _readme(state, entries), most_bytes)
    folder = f"{plain(state.ref.name)}-{plain(state.ref.uid)[:8]}"
    size = write_archive(path, folder, parts.files, int(state.created))
    return Bundle(str(path), size, parts.entries())


class _Parts:
    """The files of a bundle, masked and bounded."""

    def __init__(self, seal: BundleRedactor, most_bytes: int) -> None:
        self._seal = seal
        self._most = most_bytes
        self._about: dict[str, str] = {}
        self.files: dict[str, bytes] = {}

    def add(self, name: str, about: str, value: Any) -> None:
        """Add a value: a string as it is, rows as lines of JSON, anything else as JSON."""
        if isinstance(value, str):
            self.add_text(name, about, self._seal.text(value), self._most)
            return
        tree = self._seal.tree(msgspec.to_builtins(value, str_keys=True))
        if name.endswith(".jsonl"):
            text = "".join(msgspec.json.encode(row).decode() + "\n" for row in tree)
        else:
            text = msgspec.json.format(msgspec.json.encode(tree), indent=2).decode() + "\n"
        self.add_text(name, about, text, self._most)

    def add_text(self, name: str, about: str, text: str, most: int) -> None:
        """Add a masked text, truncated with a note if it is too long."""
        data = text.encode("utf-8", "backslashreplace")
        if len(data) > most:
            data = data[:most] + f"\n… {len(data) - most} bytes are left out here\n".encode()
        self.files[name], self._about[name] = data, about

    def entries(self) -> tuple[BundleFile, ...]:
        """Return the listing, by name."""
        return tuple(
            BundleFile(name, len(data), hashlib.sha256(data).hexdigest(), self._about[name])
            for name, data in sorted(self.files.items())
        )


def _values(
    state: JobState, spec: MPIJob, backend: Backend, settings: Settings, stacks: bool
) -> Iterator[tuple[str, str, Any]]:
    """Yield all parts except logs: name, description, value."""
    from mpijob.client.submit import drafts

    yield "spec.yaml", "job spec", drafts.shown(spec)
    yield "plan.json", "plan: everything that was to run", _plan(state, spec, backend)
    yield "state.json", "phase of the job, its workers and the reason", state
    yield "census.json", "worker and exit status of each rank", state.ranks
    yield "events.jsonl", "events, oldest first", _taken(backend.events(state.ref))
    yield "samples.jsonl", "CPU and memory usage of each worker", _samples(state, backend)
    yield "findings.json", "causes found by the diagnosis", state.findings
    yield (
        "warnings.json",
        "current early warnings of a running job",
        _or_why(lambda: backend.warnings(state.ref)),
    )
    yield "doctor.json", "whether the engine is ready for jobs", _doctor(backend, settings)
    yield "versions.json", "what is installed", versions(state)
    if stacks and state.phase is Phase.RUNNING:
        yield (
            "stacks.json",
            "call stack of each rank",
            _or_why(lambda: logs.stacks(state.ref, backend, ())),
        )


def _or_why(work: Callable[[], Any]) -> Any:
    """Return the result or the reason of an error: bundles are written when something is broken."""
    try:
        return work()
    except MpiJobError as error:
        return {"missing": error.message, "hint": error.hint}


def _plan(state: JobState, spec: MPIJob, backend: Backend) -> Any:
    """Return the submitted plan; if it was not stored, what would be planned now, which may differ."""
    found = _or_why(lambda: backend.submitted_plan(state.ref))
    if found is None:
        found = _or_why(lambda: _replan(spec, backend))
    if isinstance(found, dict):
        return found
    return masking.masked_plan(found)


def _replan(spec: MPIJob, backend: Backend) -> Any:
    return backend.plan(spec, backend.preflight(spec, backend.whoami()))


def _samples(state: JobState, backend: Backend) -> Any:
    found = _or_why(lambda: backend.samples(state.ref))
    return [found] if isinstance(found, dict) else found[-_MOST_ROWS:]


def _taken(stream: Iterator[Any]) -> list[Any]:
    rows: list[Any] = []
    try:
        for row in stream:
            rows.append(row)
    except MpiJobError as error:
        rows.append({"missing": error.message, "hint": error.hint})
    finally:
        close(stream)
    return rows[-_MOST_ROWS:]


def _doctor(backend: Backend, settings: Settings) -> Any:
    """Return the checks of the machine or, with the user's permissions, of the cluster."""
    from mpijob.client.admin import doctor

    if settings.engine != CLUSTER:
        return doctor.report(settings)
    examined = backend.capability(SupportsDoctor)
    found = None if examined is None else _or_why(examined.doctor)
    return {"missing": "this engine has no cluster checks", "hint": ""} if found is None else found


def versions(state: JobState) -> dict[str, str]:
    found = {"mpijob": __version__, "python": platform.python_version(), "system": platform.platform()}
    found |= {"engine": state.engine, "mpi": state.mpi, "implementation": sys.implementation.name}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _logs(ref: JobRef, backend: Backend, seal: BundleRedactor, most_bytes: int) -> Iterator[tuple[str, str]]:
    """Yield the log of each source, shortened in the middle if it is too long."""
    parts = LogParts(most_bytes, seal)
    stream = backend.logs(ref, LogQuery())
    try:
        for line in stream:
            parts.add(line)
    except MpiJobError as error:
        yield "logs/missing.txt", f"{error.message}\n{error.hint}\n"
    finally:
        close(stream)
    yield from parts.files()


def _engine_secrets(ref: JobRef, spec: MPIJob, backend: Backend) -> tuple[str, ...]:
    """Return the values of the job's secrets that the engine can read (Secret objects of a cluster)."""
    # Only the engine knows whether files and variables of this machine are the job's.
    known = backend.capability(SupportsSecretValues)
    if known is None or not spec.secrets:
        return ()
    try:
        return known.secret_values(ref, spec.secrets)
    except MpiJobError:
        # The user may not read the Secret, so its values are not known to mask. They are masked by pattern
        # only.
        return ()


def _readme(state: JobState, entries: tuple[BundleFile, ...]) -> str:
    lines = [
        f"Support bundle of job {state.ref} ({state.ref.uid}), written by mpijob {__version__}.",
        "Secrets, tokens and strings that look like them are replaced by ***; check it before you send it.",
        "",
        *(f"{entry.name:<24} {entry.size:>10}  {entry.about}" for entry in entries),
    ]
    return "\n".join(lines) + "\n"


_PLAIN = re.compile(r"[^A-Za-z0-9._-]+")


def plain(name: str) -> str:
    """Return a name that is safe as a file name on any system."""
    return _PLAIN.sub("_", name).lstrip(".-") or "job"


def refuse_existing(path: Path) -> None:
    """Refuse to overwrite a file: a bundle may be all that is left of a job."""
    if os.path.lexists(path):
        raise Conflict(f"{path} exists already", hint="name another file with -O, or remove it")


def write_archive(path: Path, folder: str, files: Mapping[str, bytes], moment: int) -> int:
    """Write files into a new archive; return its size."""
    refuse_existing(path)
    try:
        # Also for a symbolic link that appeared since the check.
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise BackendError(f"cannot write {path}: {error.strerror}") from error
    try:
        with os.fdopen(fd, "wb") as raw:
            _pack(raw, folder, files, moment)
        return path.stat().st_size
    except OSError as error:
        with contextlib.suppress(OSError):
            path.unlink()
        raise BackendError(f"cannot write {path}: {error.strerror}") from error


def _pack(raw: io.BufferedWriter, folder: str, files: Mapping[str, bytes], moment: int) -> None:
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=moment) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, data in sorted(files.items()):
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.size, entry.mode, entry.mtime = len(data), 0o600, moment
            archive.addfile(entry, io.BytesIO(data))


_HEAD_SHARE = 0.25
_LONGEST_LINE = 16_384


class LogParts:
    """Collects lines of all sources, and returns them by source within a limit of bytes."""

    def __init__(self, most_bytes: int, seal: BundleRedactor) -> None:
        self._most = most_bytes
        self._seal = seal
        self._parts: dict[str, _Part] = {}

    def add(self, line: LogLine) -> None:
        name = (
            f"{line.source.lower()}.log"
            if line.attempt == 1
            else f"{line.source.lower()}.attempt-{line.attempt}.log"
        )
        part = self._parts.get(name)
        if part is None:
            part = self._parts[name] = _Part()
            for other in self._parts.values():
                other.shrink(self._most // len(self._parts))
        part.add(_written(line, self._seal))

    def files(self) -> Iterator[tuple[str, str]]:
        for name, part in sorted(self._parts.items()):
            yield f"logs/{name}", part.text()


class _Part:
    def __init__(self) -> None:
        self._head: list[str] = []
        self._tail: deque[str] = deque()
        self._head_bytes = self._tail_bytes = self._lost = 0
        self._most = 0

    def shrink(self, most: int) -> None:
        self._most = most
        while self._head and self._head_bytes > most * _HEAD_SHARE:
            line = self._head.pop()
            self._head_bytes -= len(line)
            self._tail.appendleft(line)
            self._tail_bytes += len(line)
        self._trim()

    def add(self, line: str) -> None:
        if not self._tail and self._head_bytes + len(line) <= self._most * _HEAD_SHARE:
            self._head.append(line)
            self._head_bytes += len(line)
            return
        self._tail.append(line)
        self._tail_bytes += len(line)
        self._trim()

    def _trim(self) -> None:
        while self._tail and self._tail_bytes > self._most * (1 - _HEAD_SHARE):
            self._tail_bytes -= len(self._tail.popleft())
            self._lost += 1

    def text(self) -> str:
        gap = [f"… {self._lost} lines are left out here\n"] if self._lost else []
        return "".join((*self._head, *gap, *self._tail))


def _written(line: LogLine, seal: BundleRedactor) -> str:
    when = (
        datetime.fromtimestamp(line.time / 1e9, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )
    text = visible(line.text)
    if len(text) > _LONGEST_LINE:
        # Masked before it is cut: the beginning of a secret would not be recognized.
        text = seal.line_to_shorten(text)[:_LONGEST_LINE]
    return f"{when} {line.stream} {text}\n"
