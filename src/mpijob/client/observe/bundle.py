"""The support bundle: everything known of a job in one archive that may be sent to somebody else.

Each part is collected by itself: one that cannot be had is told in its place, and the rest goes on. Every text
goes through `observation.sealing` last. The archive is bounded, its listing is always in the same order, its
names are plain, and only its owner may read it.
"""

from __future__ import annotations

import hashlib
import platform
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from mpijob import __version__
from mpijob.backends.streams import close
from mpijob.client.observe import rank_stacks, tar_writer
from mpijob.client.observe.log_parts import LogParts
from mpijob.errors import MpiJobError
from mpijob.model import LogQuery, MPIJob, Phase
from mpijob.observation.redaction import masking
from mpijob.observation.redaction.bundle import BundleRedactor, values_of
from mpijob.settings import CLUSTER

if TYPE_CHECKING:
    from mpijob.backends.protocol import Backend
    from mpijob.model import JobRef, JobState
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
    """One file of a bundle: its name, its size and its digest."""

    name: str
    size: int
    sha256: str
    about: str


class Bundle(msgspec.Struct, frozen=True):
    """A bundle that was written, and what is in it."""

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
    """Write the bundle of a job to a new file and return what is in it."""
    state = backend.get(ref)
    spec = backend.spec(state.ref)
    path = target or Path(f"{tar_writer.plain(state.ref.name)}-bundle.tar.gz")
    tar_writer.refuse_existing(path)
    seal = BundleRedactor(values_of(spec, _told(state.ref, spec, backend)))
    parts = _Parts(seal, int(most_bytes * _PART_SHARE))
    for name, about, value in _values(state, spec, backend, settings, stacks):
        parts.add(name, about, value)
    for name, text in _logs(state.ref, backend, seal, int(most_bytes * _LOG_SHARE)):
        parts.add_text(name, "what was said, oldest first: time, stream, text", seal.text(text), most_bytes)
    entries = parts.entries()
    parts.add("MANIFEST.json", "this listing", [msgspec.to_builtins(entry) for entry in entries])
    parts.add_text("README.txt", "how to read it", _readme(state, entries), most_bytes)
    folder = f"{tar_writer.plain(state.ref.name)}-{tar_writer.plain(state.ref.uid)[:8]}"
    size = tar_writer.write(path, folder, parts.files, int(state.created))
    return Bundle(str(path), size, parts.entries())


class _Parts:
    """The files of a bundle so far, each sealed and bounded."""

    def __init__(self, seal: BundleRedactor, most_bytes: int) -> None:
        self._seal = seal
        self._most = most_bytes
        self._about: dict[str, str] = {}
        self.files: dict[str, bytes] = {}

    def add(self, name: str, about: str, value: Any) -> None:
        """Add a value: a text as it is, rows as lines of JSON, anything else as JSON."""
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
        """Add a text that was sealed; what is too long is cut, and that is told."""
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
    """Yield every part but the logs: its name, what it is, its value."""
    from mpijob.client.submit import drafts

    yield "spec.yaml", "what was asked for", drafts.shown(spec)
    yield "plan.json", "exactly what was to run", _plan(state, spec, backend)
    yield "state.json", "where the job stands, its workers, and why", state
    yield "census.json", "where each rank was, and how it ended", state.ranks
    yield "events.jsonl", "what happened, in order", _taken(backend.events(state.ref))
    yield "samples.jsonl", "cores and memory of each worker", _samples(state, backend)
    yield "findings.json", "the causes that were found", state.findings
    yield "warnings.json", "what is worrying now, where it runs", _or_why(lambda: backend.warnings(state.ref))
    yield "doctor.json", "whether the place is ready for jobs", _doctor(backend, settings)
    yield "versions.json", "what is installed", versions(state)
    if stacks and state.phase is Phase.RUNNING:
        yield (
            "stacks.json",
            "where each rank stood",
            _or_why(lambda: rank_stacks.stacks(state.ref, backend, ())),
        )


def _or_why(work: Callable[[], Any]) -> Any:
    """Return what some work gives, or why it gives nothing: a bundle is asked for when things go wrong."""
    try:
        return work()
    except MpiJobError as error:
        return {"missing": error.message, "hint": error.hint}


def _plan(state: JobState, spec: MPIJob, backend: Backend) -> Any:
    """Return the plan that was submitted; where nobody kept it, what would be planned now, which may differ."""
    found = _or_why(lambda: backend.planned(state.ref))
    if found is None:
        found = _or_why(lambda: _made_anew(spec, backend))
    if isinstance(found, dict):
        return found
    return masking.masked_plan(found)


def _made_anew(spec: MPIJob, backend: Backend) -> Any:
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
    """Return what is found about the place; a cluster is looked at by the engine, as whoever asks for the bundle."""
    from mpijob.client.admin import doctor

    if settings.engine != CLUSTER:
        return doctor.report(settings)
    look = getattr(backend, "checkup", None)
    found = None if look is None else _or_why(look)
    return {"missing": "this engine does not look at its cluster", "hint": ""} if found is None else found


def versions(state: JobState) -> dict[str, str]:
    """Return what is installed here, and the engine and MPI of the job."""
    found = {"mpijob": __version__, "python": platform.python_version(), "system": platform.platform()}
    found |= {"engine": state.engine, "mpi": state.mpi, "implementation": sys.implementation.name}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _logs(ref: JobRef, backend: Backend, seal: BundleRedactor, most_bytes: int) -> Iterator[tuple[str, str]]:
    """Yield what each source said, its beginning and its end where it is too long."""
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


def _told(ref: JobRef, spec: MPIJob, backend: Backend) -> tuple[str, ...]:
    """Return the values of the job's secrets that its engine can tell: a cluster has Secret objects.

    Only the engine knows whether this machine is the user's own, and its files and variables are theirs.
    """
    known = getattr(backend, "secret_values", None)
    if known is None or not spec.secrets:
        return ()
    try:
        found: tuple[str, ...] = known(ref, spec.secrets)
    except MpiJobError:
        return ()  # what this user may not read is not theirs to mask
    return found


def _readme(state: JobState, entries: tuple[BundleFile, ...]) -> str:
    lines = [
        f"Support bundle of job {state.ref} ({state.ref.uid}), written by mpijob {__version__}.",
        "Secrets, tokens and what looks like one are replaced by ***; please look through it before you send it.",
        "",
        *(f"{entry.name:<24} {entry.size:>10}  {entry.about}" for entry in entries),
    ]
    return "\n".join(lines) + "\n"
