"""Every verb that changes something is told to the audit: the list of them is closed, and compared with the engines."""

from __future__ import annotations

import ast
import asyncio
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import cast

import msgspec
import pytest
from tests.unit.client.test_audit_recorder import Audited, a_client, a_job, told
from tests.unit.history_support import a_spec, a_state, encoded, said

import mpijob
from mpijob import AsyncClient, Client, codec
from mpijob.backends import capabilities
from mpijob.backends.capabilities import (
    Capability,
    SupportsArtifactStore,
    SupportsClose,
    SupportsModelRegistry,
    SupportsRates,
    SupportsSecretValues,
)
from mpijob.backends.kubernetes import capabilities as kubernetes_capabilities
from mpijob.backends.kubernetes.actions.schedules import ClusterSchedules
from mpijob.backends.kubernetes.backend import KubernetesBackend
from mpijob.backends.local import LocalBackend
from mpijob.backends.memory import MemoryBackend
from mpijob.backends.memory.schedules import MemorySchedules
from mpijob.backends.model_registry import Registered
from mpijob.backends.protocol import Backend, Schedules
from mpijob.backends.recurring.schedule_files import ScheduleFiles
from mpijob.client.admin.runtimes import Runtimes
from mpijob.client.audit import capabilities as audited_capabilities
from mpijob.client.audit import verbs
from mpijob.client.audit.capabilities import AUDITED, AuditedPast, AuditedSchedules, Auditor
from mpijob.client.audit.recorder import AuditedBackend
from mpijob.client.audit.verbs import Kind
from mpijob.client.history.fallback import with_history
from mpijob.errors import NotFound
from mpijob.history.archive import Archive
from mpijob.history.archive_reader import ArchiveReader, open_archive
from mpijob.model import Identity, JobKey, JobRef, Model, Phase
from mpijob.model.spec.schedule import Schedule
from mpijob.model.status.audit import COMPLETE, RECEIVED, STARTED, AuditEvent, AuditQuery, ObjectRef, Verb
from mpijob.settings import Settings

pytestmark = [pytest.mark.security, pytest.mark.req("FR-026", "FR-SEC-001", "C-audit")]

TABLE = {**verbs.PORT, **verbs.ABILITIES}
CAPABILITIES = {
    name: kind
    for module in (capabilities, kubernetes_capabilities)
    for name, kind in vars(module).items()
    if name.startswith("Supports")
}
SOURCE = Path(mpijob.__file__).parent
CLOCKS_OWN = {
    "root",
    "wake",
    "scheduler_lock",
}  # of the process that keeps the time, which has no audited port


def remembered(directory: Path) -> ArchiveReader:
    """Return a record with one job that is gone: what it said, and what it was."""
    archive = Archive(str(directory))
    archive.put_job(a_state(phase=Phase.SUCCEEDED, finished=3.0), now=3.0, spec=encoded(a_spec()))
    said(archive, 3).end()
    archive.mark_deleted(JobKey("team", "u1"), 5.0)
    archive.close()
    found = open_archive(str(directory))
    assert found is not None
    return found


def methods(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


# -- the table and the engines ----------------------------------------------------------------------
def test_the_table_has_every_method_of_the_port_and_no_other() -> None:
    assert methods(Backend) == set(verbs.PORT)
    assert not set(verbs.PORT) & set(verbs.ABILITIES)


@pytest.mark.parametrize("engine", [LocalBackend, MemoryBackend, KubernetesBackend])
def test_the_table_has_every_method_of_every_engine(engine: type) -> None:
    assert methods(engine) - set(TABLE) == set()


def test_no_ability_is_in_the_table_that_no_engine_has() -> None:
    every = methods(LocalBackend) | methods(MemoryBackend) | methods(KubernetesBackend)
    assert set(verbs.ABILITIES) - every == set()


@pytest.mark.parametrize("kept", [Schedules, ScheduleFiles, MemorySchedules, ClusterSchedules])
def test_the_table_has_every_method_of_the_schedules(kept: type) -> None:
    assert methods(kept) - set(verbs.SCHEDULES) - CLOCKS_OWN == set()
    assert set(verbs.SCHEDULES) - methods(Schedules) == set()


def test_the_table_has_every_method_of_the_record_and_no_other() -> None:
    assert methods(ArchiveReader) == set(verbs.PAST)


@pytest.mark.parametrize(
    ("audited", "table"),
    [(AuditedBackend, verbs.PORT), (AuditedSchedules, verbs.SCHEDULES), (AuditedPast, verbs.PAST)],
)
def test_whatever_is_told_of_has_code_that_tells_it(audited: type, table: Mapping[str, Kind]) -> None:
    told_of = {name for name, kind in table.items() if kind in (Kind.LOOK, Kind.ACT)}
    assert told_of <= set(vars(audited))


def test_every_ability_that_is_told_of_has_a_form_that_tells_it() -> None:
    told_of = {name for name, kind in verbs.ABILITIES.items() if kind in (Kind.LOOK, Kind.ACT)}
    in_audited = {name for kind in AUDITED for name in kind.__abstractmethods__}
    assert told_of == {name for name in in_audited if verbs.ABILITIES[name] in (Kind.LOOK, Kind.ACT)}
    for kind, form in AUDITED.items():
        assert isinstance(form, type)
        assert issubclass(form, kind)
        assert not kind.__abstractmethods__ - set(vars(form))


def test_the_table_has_the_methods_of_every_ability_and_no_other() -> None:
    abilities = {name for kind in CAPABILITIES.values() for name in kind.__abstractmethods__}
    assert abilities == set(verbs.ABILITIES) - {"now"}  # the simulated clock, for tests


@pytest.mark.parametrize("engine", [LocalBackend, MemoryBackend, KubernetesBackend])
def test_an_engine_declares_the_abilities_that_it_has(engine: type) -> None:
    declared = {
        name
        for kind in CAPABILITIES.values()
        if issubclass(engine, kind)
        for name in kind.__abstractmethods__
    }
    assert methods(engine) - set(verbs.PORT) - {"now"} == declared


class SupportsWipe(Capability):
    """An ability that nobody has put into the table."""

    @abstractmethod
    def wipe(self) -> None: ...


class Larger(Audited, SupportsClose, SupportsWipe):
    """An engine with methods that nobody has declared, or that are not for the audited port."""

    def wipe(self) -> None:
        raise AssertionError("it went past the audit")

    def close(self) -> None:
        raise AssertionError("it went past the audit")


@pytest.mark.parametrize("kind", [SupportsWipe, SupportsClose])
def test_an_ability_that_is_not_declared_or_not_for_this_way_raises(
    tmp_path: Path, kind: type[Capability]
) -> None:
    port = AuditedBackend(Larger(), Settings(home=str(tmp_path)))
    for wrapper in (port, with_history(cast("Backend", port))):
        with pytest.raises(NotImplementedError):
            wrapper.capability(kind)


@pytest.mark.parametrize("word", [Kind.LOOK, Kind.ACT])
def test_an_ability_that_is_told_of_without_a_form_that_tells_it_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: Kind
) -> None:
    monkeypatch.setattr(verbs, "ABILITIES", {**verbs.ABILITIES, "wipe": word})
    port = AuditedBackend(Larger(), Settings(home=str(tmp_path)))
    with pytest.raises(NotImplementedError, match="SupportsWipe"):
        port.capability(SupportsWipe)


def test_an_ability_that_an_engine_lacks_is_none_through_every_wrapper(tmp_path: Path) -> None:
    engine = Audited()
    port = AuditedBackend(engine, Settings(home=str(tmp_path)))
    for wrapper in (engine, port, with_history(cast("Backend", port))):
        assert wrapper.capability(SupportsRates) is None
        assert wrapper.capability(SupportsModelRegistry) is None
        assert wrapper.capability(SupportsSecretValues) is engine


@pytest.mark.parametrize("name", ["wipe", "close", "secret_values"])
def test_a_method_that_is_not_declared_or_not_for_this_way_raises(tmp_path: Path, name: str) -> None:
    port = AuditedBackend(Larger(), Settings(home=str(tmp_path)))
    with pytest.raises(NotImplementedError):
        getattr(port, name)
    with pytest.raises(AttributeError):
        _ = port.nothing_of_the_kind


def test_a_method_of_the_schedules_or_the_record_that_is_not_declared_raises(tmp_path: Path) -> None:
    port = AuditedBackend(Audited(), Settings(home=str(tmp_path)))
    kept, record = MemorySchedules(), remembered(tmp_path / "record")
    kept.wipe = lambda: None  # type: ignore[attr-defined]  # what somebody may add
    record.wipe = lambda: None  # type: ignore[attr-defined]
    with pytest.raises(NotImplementedError):
        _ = AuditedSchedules(kept, port).wipe
    with pytest.raises(NotImplementedError):
        _ = AuditedPast(record, port).wipe


class AuditedWipe(SupportsWipe):
    def __init__(self, found: SupportsWipe, auditor: Auditor) -> None:
        self._found, self._auditor = found, auditor

    def wipe(self) -> None:
        self._auditor.act(Verb.DELETE, JobRef("default", "all"), self._found.wipe)


def test_a_new_ability_takes_five_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its class, the engine, the table, its audited form and whoever asks for it; CONTRIBUTING.md names the files."""

    class Wiping(Audited, SupportsWipe):
        def wipe(self) -> None:
            wiped.append(self.name)

    wiped: list[str] = []
    monkeypatch.setattr(verbs, "ABILITIES", {**verbs.ABILITIES, "wipe": Kind.ACT})
    monkeypatch.setattr(audited_capabilities, "AUDITED", AUDITED | {SupportsWipe: AuditedWipe})
    client = a_client(tmp_path, Wiping())
    ability = client._records.capability(SupportsWipe)
    assert ability is not None
    ability.wipe()
    assert (wiped, stages(client)) == (["local"], pair("delete", "all"))


# -- each act leaves two lines ----------------------------------------------------------------------
class Able(Audited, SupportsArtifactStore, SupportsModelRegistry):
    """The simulated engine with what others can do beside the port."""

    name = "cluster"
    record = ""

    def history(self) -> ArchiveReader | None:  # type: ignore[override]  # the simulated engine has none
        return open_archive(self.record) if self.record else None

    def register(self, ref: JobRef, model: Model) -> Registered:
        return Registered(model.name, "1", "s3://models/bert", "1", "2", "3")

    def store(self, ref: JobRef) -> tuple[str, ...]:
        return (f"stored {ref.name}",)


def stages(client: Client | AsyncClient) -> list[tuple[str, str, str, str]]:
    """Return the lines as they lie on the disk: verb, resource, name, stage."""
    lines = []
    for path in sorted(Path(client.settings.home).rglob("audit/*.jsonl")):
        for line in path.read_bytes().splitlines():
            event = codec.decode(line, AuditEvent)
            about = event.object_ref or ObjectRef()
            lines.append((event.verb, about.resource, about.name, event.stage))
    return lines


def pair(verb: str, name: str = "bert", resource: str = "jobs") -> list[tuple[str, str, str, str]]:
    return [(verb, resource, name, RECEIVED), (verb, resource, name, COMPLETE)]


NIGHTLY = Schedule(name="nightly", when="30 2 * * *", job=a_job("bert"), time_zone="Etc/UTC")


def scheduled(client: Client) -> None:
    schedules = client.schedules
    schedules.create(NIGHTLY)
    schedules.pause("nightly")
    schedules.resume("nightly")
    schedules.delete("nightly")


ACTS: dict[str, tuple[Callable[[Client], object], list[tuple[str, str, str, str]]]] = {
    "register": (lambda client: client.register("bert", Model(name="m")), pair("register")),
    "store": (lambda client: client.store("bert"), pair("store")),
    "cancel": (lambda client: client.cancel("bert"), pair("cancel")),
    "delete": (lambda client: client.delete("bert"), pair("delete")),
    "schedules": (
        scheduled,
        [
            line
            for verb in ("create", "suspend", "resume", "delete")
            for line in pair(verb, "nightly", "schedules")
        ],
    ),
}


@pytest.mark.thorough
@pytest.mark.parametrize("act", ACTS)
def test_what_changes_something_is_written_before_and_after(tmp_path: Path, act: str) -> None:
    client = a_client(tmp_path, Able())
    client.run(a_job())
    before = len(stages(client))
    work, expected = ACTS[act]
    work(client)
    assert stages(client)[before:] == expected


def test_the_async_client_writes_the_same(tmp_path: Path) -> None:
    async def story() -> list[tuple[str, str, str, str]]:
        async with AsyncClient(Able(), settings=Settings(home=str(tmp_path))) as client:
            job = await client.submit(a_job())
            await job.wait(10)
            before = len(stages(client))
            await client.register("bert", Model(name="m"))
            await client.store("bert")
            return stages(client)[before:]

    assert asyncio.run(story()) == [*pair("register"), *pair("store")]


def test_a_schedule_that_is_refused_or_not_there_is_told_with_its_reason(tmp_path: Path) -> None:
    client = a_client(tmp_path, Able())
    with pytest.raises(NotFound):
        client.schedules.delete("nobodys")
    assert told(client, refused=True) == [("delete", "nobodys", 404)]


def test_a_record_that_is_erased_backed_up_or_put_back_is_told(tmp_path: Path) -> None:
    settings = Settings(home=str(tmp_path / "home"), cores=1)
    with Client(LocalBackend(settings), settings=settings) as client:
        remembered(tmp_path / "home" / "history" / "local")
        client.backup_record(tmp_path / "backup.tar")
        client.erase_user("nobody")
        assert stages(client) == [*pair("fetch", "record", "records"), *pair("forget", "nobody", "records")]
    elsewhere = Settings(home=str(tmp_path / "elsewhere"), cores=1)
    with Client(LocalBackend(elsewhere), settings=elsewhere) as client:
        assert client.restore_record(tmp_path / "backup.tar") == 1
        assert stages(client) == pair("restore", "record", "records")


def test_a_next_attempt_that_an_attached_command_starts_is_told_once(tmp_path: Path) -> None:
    client = a_client(tmp_path, Able())
    state = client.submit(a_job("bert", command=("sleep", "1000"))).state()
    backing_off = msgspec.structs.replace(state, reason="BackingOff")
    before = len(stages(client))
    for _ in range(3):
        client._audited.reconcile(backing_off)
        client._audited.reconcile(state)
    assert stages(client)[before:] == pair("reconcile")


# -- the record -------------------------------------------------------------------------------------
def forgetful(tmp_path: Path) -> Client:
    """Return a client whose engine knows no job, and whose record knows one."""
    engine = Able()
    engine.record = str(tmp_path / "record")
    remembered(tmp_path / "record")
    return Client(engine, settings=Settings(home=str(tmp_path)), namespace="team")


def test_reading_the_lines_of_a_job_that_is_gone_is_told(tmp_path: Path) -> None:
    client = forgetful(tmp_path)
    lines = [line.text for line in client.logs("bert", workers=(0,))]
    assert lines == [b"line 0", b"line 1", b"line 2"]
    look = client.audit(AuditQuery(verbs=("logs",)))[-1]
    assert (look.stage, look.note("source"), look.note("workers")) == (STARTED, "record", "0")
    assert (look.object_ref.name if look.object_ref else "", look.refused) == ("bert", False)
    assert told(client, refused=True) == []


def test_downloading_the_lines_of_a_job_that_is_gone_is_told(tmp_path: Path) -> None:
    client = forgetful(tmp_path)
    client.download_logs("bert", tmp_path / "bert.log", merged=True)
    assert b"line 2" in (tmp_path / "bert.log").read_bytes()
    assert client.audit(AuditQuery(verbs=("logs",)))[-1].note("source") == "record"


def test_reading_the_lines_of_a_job_that_nobody_remembers_is_refused(tmp_path: Path) -> None:
    client = forgetful(tmp_path)
    with pytest.raises(NotFound):
        list(client.logs("nobody"))
    assert told(client, refused=True) == [("logs", "nobody", 404)]


def test_erasing_the_record_of_a_job_is_told_before_and_after(tmp_path: Path) -> None:
    client = forgetful(tmp_path)
    client.delete("bert", forget=True)
    assert [line for line in stages(client) if line[0] == "forget"] == pair("forget")
    with pytest.raises(NotFound):
        list(client.logs("bert"))


def test_the_same_look_of_two_people_is_told_for_each(tmp_path: Path) -> None:
    people = [Identity("ann"), Identity("ben")]
    for who in people:
        client = a_client(tmp_path, Audited(who=who))
        client.run(a_job(who.user))
    engine = Audited(who=people[0])
    client = a_client(tmp_path, engine)
    job = client.run(a_job("shared"))
    list(job.logs())
    engine._who = people[1]
    list(job.logs())
    looks = client.audit(AuditQuery(verbs=("logs",), jobs=("shared",)))
    assert [look.user.username for look in looks] == ["ann", "ben"]


# -- nobody goes past it ----------------------------------------------------------------------------
ONLY_READ = {  # what is handed an engine itself, and calls nothing of it that is told of
    "accounts.advise", "accounts.budgets", "accounts.estimate", "accounts.of", "accounts.page", "accounts.rates",
    "accounts.report", "accounts.with_estimate", "audit_directory", "diagnose.find_patterns", "fallback.deleted",
    "fallback.record", "pipeline.plan", "read_log.entries", "read_log.verify", "paging.pages", "run_broker.fit",
    "wait_accuracy.report", "training_metrics.points_of", "training_metrics.read",  # numbers in lines, not the lines
    "_reviewed", "with_audit",
}  # fmt: skip


def handed_on() -> Iterator[tuple[str, ast.Call]]:
    """Yield every call that is handed the engine of a client as it is."""
    for folder in ("client", "api", "cli", "kfp"):
        for path in (SOURCE / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and any(_is_engine(one) for one in node.args):
                    yield path.name, node


def _is_engine(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "backend"


@pytest.mark.thorough
def test_only_what_reads_is_handed_an_engine_without_its_audit() -> None:
    calls = {(file, _called(call)) for file, call in handed_on()}
    assert {one for one in calls if one[1] not in ONLY_READ} == set()
    assert {call for _, call in calls} == ONLY_READ


@pytest.mark.thorough
def test_no_ability_that_is_told_of_is_asked_of_an_engine_without_its_audit() -> None:
    asked = {
        ast.unparse(node.args[0])
        for folder in ("client", "api", "cli", "kfp")
        for path in (SOURCE / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "capability"
        and _is_engine(node.func.value)
    }
    assert asked >= {"SupportsClose", "SupportsWatchAll"}
    told_of = {kind.__name__ for kind in AUDITED}
    assert asked & told_of == set()


@pytest.mark.thorough
def test_no_ability_is_looked_for_by_name() -> None:
    found = [
        (path.name, ast.unparse(node))
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("getattr", "hasattr")
        and ast.unparse(node.args[0]).rpartition(".")[2].lstrip("_") in ("backend", "engine")
        and isinstance(node.args[1], ast.Constant)
    ]
    assert found == []


def _called(call: ast.Call) -> str:
    name = ast.unparse(call.func)
    return ast.unparse(call.args[0]) if name == "asyncio.to_thread" else name


@pytest.mark.thorough
def test_nothing_that_is_told_of_is_called_on_an_engine_without_its_audit() -> None:
    told_of = {name for name, kind in TABLE.items() if kind in (Kind.LOOK, Kind.ACT)}
    found = [
        (path.name, ast.unparse(node))
        for folder in ("client", "api", "cli", "kfp")
        for path in (SOURCE / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in {*told_of, "schedules"} and _is_engine(node.value)
    ]
    assert found == []


def test_a_runtime_that_is_installed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, installed = Able(), []
    monkeypatch.setattr("mpijob.client.admin.runtimes.open_backend", lambda settings: engine)
    monkeypatch.setattr(
        "mpijob.backends.kubernetes.admin.runtimes.install",
        lambda api, document, **_: installed.append(document),
    )
    monkeypatch.setattr(Runtimes, "_api", lambda self: nullcontext(None))
    monkeypatch.setattr(Runtimes, "_user", lambda self: 1000)
    settings = Settings(home=str(tmp_path), engine="kubernetes")
    Runtimes(settings).install("openmpi", dry_run=True)
    assert stages(Client(engine, settings=settings)) == []
    Runtimes(settings).install("openmpi")
    assert len(installed) == 2
    name = installed[0]["metadata"]["name"]
    assert stages(Client(engine, settings=settings)) == pair("install", name, "runtimes")
