"""`make kills`: the recorder and its database are killed at moments that a seed chooses; nothing promised may be lost.

The recorder is the real one in a process of its own, the database a file or a real PostgreSQL, kill is SIGKILL. The
cluster is played: its pods say lines whose moments follow from the seed, so that every process of a run sees the same
cluster, and the parent knows what must be in the record. The real cluster has its own kills in `make faults`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from tests.unit.cluster_objects import COUNTED, Cluster, at_work, ended
from tests.unit.history_support import stored_lines
from tests.unit.kube_node import TEAM, Node, Stream, lay_out

from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.logs.archive import of_archive
from mpijob.backends.kubernetes.recorder import recorder
from mpijob.backends.kubernetes.recorder.recorder import Recorder
from mpijob.errors import BackendError, MpiJobError
from mpijob.history import retention
from mpijob.history.archive import Archive
from mpijob.history.archive_reader import ArchiveReader
from mpijob.history.retention import RetentionSettings
from mpijob.model import JobRef, LogQuery, Phase
from mpijob.model.status.accounts import AccountQuery
from mpijob.observation.logs import cri

PATIENCE = 60.0
SPEAKS_SECONDS = 1.5
LINES = 1200  # of each pod
KILLS = 4
WEEK = 7 * 86_400.0


class Said(NamedTuple):
    """A line of a pod, and from when on its node has it."""

    after: float
    raw: bytes


class Play:
    """What happens on the cluster in one run, by its seed: the same for every process that looks."""

    def __init__(self, seed: int, begin: float, gone: str) -> None:
        self.begin, self._gone = begin, gone
        self.cluster: Cluster = at_work()
        chance = Random(seed)
        self.said = {name: [*_speech(chance, name, begin)] for name in sorted(self.cluster.pods)}

    @property
    def over(self) -> bool:
        """Whether the launcher has ended."""
        return time.time() >= self.begin + SPEAKS_SECONDS + 0.2

    @property
    def gone(self) -> bool:
        """Whether the job was deleted."""
        return os.path.exists(self._gone)


def _speech(chance: Random, name: str, begin: float) -> Iterator[Said]:
    first = COUNTED.splitlines() if "launcher" in name else ["sshd"]
    moments = sorted(chance.uniform(0.05, SPEAKS_SECONDS) for _ in range(LINES))
    for number, after in enumerate([0.0] * len(first) + moments):
        after = moments[(number - len(first)) // 2 * 2] if number >= len(first) else after  # two each moment
        words = (
            first[number]
            if number < len(first)
            else f"[1,{number % 2}]<stdout>:line {number} {'x' * chance.randrange(80)}"
        )
        yield Said(after, cri.stamp(int((begin + after) * 1e9)) + f" {words}\n".encode())


class Tail(Stream):
    """Lines as their node gets them; follows until the pod has ended."""

    def __init__(self, play: Play, said: list[Said], since: bytes, follow: bool) -> None:
        super().__init__([])
        self._play, self._follow, self._closed = play, follow, False
        self._left = [one for one in said if one.raw.partition(b" ")[0] >= since]

    def __next__(self) -> bytes:
        while not self._closed:
            now = time.time() - self._play.begin
            if self._left and self._left[0].after <= now:
                return self._left.pop(0).raw
            if not self._left or not self._follow:
                break
            time.sleep(0.005)
        raise StopIteration

    def close(self) -> None:
        self._closed = True


class Played(Node):
    """The API server of a play."""

    def __init__(self, play: Play) -> None:
        super().__init__()
        self._play = play
        self._path = lay_out(self, play.cluster)
        threading.Thread(target=self._change, daemon=True).start()

    def lines(self, path: str, **query: Any) -> Any:
        if query.get("watch"):
            return super().lines(path, **query)
        said = self._play.said[path.split("/")[-2]]
        return Tail(self._play, said, query["sinceTime"].encode(), bool(query.get("follow")))

    def raw(self, path: str, **query: str) -> bytes:
        now = time.time() - self._play.begin
        return b"".join(one.raw for one in self._play.said[path.split("/")[-2]] if one.after <= now)

    def _change(self) -> None:
        cluster = self._play.cluster
        while not self._play.over:
            time.sleep(0.01)
        cluster.condition("Complete")
        for name, pod in cluster.pods.items():
            self.put(resources.POD.path(TEAM, name), pod | {"status": ended(0, 60)})
        self.put(self._path, cluster.job)
        while not self._play.gone:
            time.sleep(0.01)
        for name in cluster.pods:
            self.remove(resources.POD.path(TEAM, name))
        self.remove(self._path)


def record(play: Play, directory: str, database: str) -> None:
    """Be a recorder until killed."""
    for name, seconds in {"_TICK": 0.02, "_FLUSH": 0.03, "_LAST_READ": 0.1}.items():
        setattr(recorder, f"{name}_SECONDS", seconds)
    while True:  # as its supervisor would start it again while the database is away
        try:
            archive = Archive(directory, shared=True, database=database)
            Recorder(Played(play), archive, RetentionSettings(), TEAM).run(threading.Event())
        except BackendError:
            time.sleep(0.05)


class Child:
    """A recorder in a process of its own."""

    def __init__(self, play: Play, directory: str, database: str) -> None:
        self.pid = os.fork()
        if self.pid:
            return
        try:
            sys.stderr = open(os.devnull, "w")  # noqa: SIM115 the process ends with it
            record(play, directory, database)
        finally:
            os._exit(1)

    def kill(self) -> None:
        """End it as a power cut would."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def check_run(seed: int, place: Path, server: Any = None) -> None:
    """Make one run: kills at the moments of its seed, then hold the record against what was said."""
    chance, gone = Random(seed), place / "gone"
    directory, database = str(place / "history"), server.database(f"seed{seed}") if server is not None else ""
    Archive(directory, database=database).close()
    play = Play(seed, time.time() + 0.2, str(gone))
    for _ in range(KILLS):
        child = Child(play, directory, database)
        time.sleep(chance.uniform(0.05, 0.6))  # the fault's own moment
        if server is not None and chance.random() < 0.5:
            server.kill()
            time.sleep(chance.uniform(0.0, 0.2))
            if chance.random() < 0.5:
                child.kill()
            server.start()
        child.kill() if _alive(child.pid) else None
    child = Child(play, directory, database)
    try:
        _hold(play, directory, database, gone)
    finally:
        child.kill()
    _a_week_later(play, directory, database)


def _alive(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG) == (0, 0)
    except ChildProcessError:
        return False


def _hold(play: Play, directory: str, database: str, gone: Path) -> None:
    archive = Archive(directory, database=database)
    past, ref = of_archive(archive), JobRef(TEAM, play.cluster.spec.name)

    def wholly() -> bool:
        state = past.state(ref)
        voices = archive.sources(state.ref.key) if state is not None else []
        return (
            state is not None
            and state.phase is Phase.SUCCEEDED
            and len(voices) == len(play.said)
            and all(voice.ended for voice in voices)
        )

    _until(wholly, "the end of the job and of its lines is stored")
    gone.touch()
    _until(lambda: (found := past.record(ref)) and found.deleted, "that it is gone is stored")
    check(play, archive, past)
    archive.close()


def check(play: Play, archive: Archive, past: ArchiveReader) -> None:
    """Hold what is stored against what happened."""
    ref = JobRef(TEAM, play.cluster.spec.name)
    state = past.state(ref)
    assert state is not None
    stored = {voice.source: stored_lines(archive, voice) for voice in archive.sources(state.ref.key)}
    for name, said in play.said.items():
        wanted = [one.raw for one in said]
        lost, more = len(set(wanted) - set(stored[name])), len(stored[name]) - len(set(stored[name]))
        assert stored[name] == wanted, f"the lines of {name} are not what it said: {lost} lost, {more} twice"
    record_ = past.record(ref)
    assert record_ is not None
    assert record_.gaps == ()
    assert [moment.phase for moment in record_.moments][-1] == "Succeeded"
    reasons = [event.reason for event in past.events(ref)]
    assert (reasons.count("WorkersReady"), reasons.count("Succeeded"), reasons[-1]) == (1, 1, "Deleted")
    assert past.spec(ref) == play.cluster.spec
    (account,) = past.accounts(AccountQuery())
    assert (account.phase, account.workers, account.deleted is not None) == (Phase.SUCCEEDED, 2, True)
    assert sum(line.rank is not None for line in past.logs(ref, LogQuery())) >= LINES


def _a_week_later(play: Play, directory: str, database: str) -> None:
    """A tidy-up just before logs expire takes nothing; files that nobody knows are gone."""
    archive = Archive(directory, database=database)
    state = of_archive(archive).state(JobRef(TEAM, play.cluster.spec.name))
    assert state is not None
    assert state.finished
    retention.apply_retention(archive, RetentionSettings(), state.finished + WEEK - 3600)
    check(play, archive, of_archive(archive))
    known = {
        chunk.file for (number,) in archive.read("SELECT id FROM voices") for chunk in archive.chunks(number)
    }
    files = {path.name for path in Path(archive.logs).rglob("*.log")}
    assert files == {os.path.basename(one) for one in known}
    archive.close()


def _until(look: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            if look():
                return
        except MpiJobError:
            pass  # the database is just coming back
        assert time.monotonic() < deadline, f"it never became so: {what}"
        time.sleep(0.05)


def main() -> int:
    """Make the runs and print the table; return 1 when anything was lost."""
    from tests.integration.postgres_support import Server

    parser = argparse.ArgumentParser(prog="make kills", description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # whoever ends this ends its database too
    place = Path(tempfile.mkdtemp(prefix="mpijob-kills-", dir="/tmp"))
    place.chmod(0o755)  # PostgreSQL runs as a user of its own
    server, wrong, begun = Server(place / "pg"), [], time.monotonic()
    try:
        for seed in range(asked.seed, asked.seed + asked.seeds):
            where = place / str(seed)
            where.mkdir()
            try:
                check_run(seed, where, server if seed % 2 else None)
            except Exception as error:
                at = traceback.extract_tb(error.__traceback__)[-1]
                wrong.append(f"seed {seed}: {error} ({Path(at.filename).name}:{at.lineno})")
                print(wrong[-1], flush=True)
    finally:
        server.stop()
        shutil.rmtree(place, ignore_errors=True)
    right = asked.seeds - len(wrong)
    print(f"{right} of {asked.seeds} runs lost nothing, in {time.monotonic() - begun:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
