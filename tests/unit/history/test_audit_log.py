"""The audit's own files: added to by several, killed in between, kept for ninety days, and never changed unseen."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from mpijob.errors import BackendError, InvalidJob
from mpijob.history.audit import audit_log, audit_query, chain, retention, verify_chain
from mpijob.history.audit.audit_log import AuditLog
from mpijob.model.status.audit import (
    COMPLETE,
    RECEIVED,
    AuditEvent,
    AuditQuery,
    ObjectRef,
    ResponseStatus,
    User,
    stamp,
)

DAY = 86_400.0
START = 1_790_000_000.0
pytestmark = pytest.mark.req("FR-026", "FR-SEC-003", "Q20")

ROOT = Path(__file__).resolve().parents[3]


def an_entry(job: str = "bert", at: float = START, **fields: Any) -> AuditEvent:
    known: dict[str, Any] = {
        "audit_id": f"id-{job}",
        "stage": COMPLETE,
        "verb": "create",
        "user": User(username="jane"),
        "object_ref": ObjectRef(resource="jobs", namespace="team-cv", name=job),
        "response_status": ResponseStatus(status="Success", code=201),
        "time": stamp(at),
    }
    return AuditEvent(**known | fields)


def a_trail(folder: Path, entries: int = 0, keep_days: float = 90.0) -> AuditLog:
    trail = AuditLog(str(folder), keep_days=keep_days)
    for number in range(entries):
        trail.add(an_entry(f"job-{number}", START + number))
    return trail


def lines_of(folder: Path) -> list[bytes]:
    return [
        line for name in chain.daily_files(str(folder)) for line in (folder / name).read_bytes().splitlines()
    ]


def rewritten(folder: Path, change: Callable[[list[bytes]], list[bytes]]) -> tuple[str, ...]:
    """Change the lines of the one file there is; return what is found wrong."""
    (name,) = chain.daily_files(str(folder))
    lines = (folder / name).read_bytes().splitlines()
    (folder / name).write_bytes(b"".join(line + b"\n" for line in change(lines)))
    return flaws(folder)


def flaws(folder: Path, anchor: str = "") -> tuple[str, ...]:
    kept = verify_chain.parse_anchor(anchor) if anchor else None
    return tuple(flaw.message for flaw in verify_chain.verify(str(folder), kept).flaws)


def test_an_entry_is_one_line_in_the_shape_of_kubernetes_audit(tmp_path: Path) -> None:
    a_trail(tmp_path, 1)
    (line,) = lines_of(tmp_path)
    told = json.loads(line)
    assert told["objectRef"] == {"resource": "jobs", "namespace": "team-cv", "name": "job-0"}
    assert (told["stage"], told["responseStatus"]["code"], told["user"]["username"]) == (
        COMPLETE,
        201,
        "jane",
    )
    assert told["stageTimestamp"] == "2026-09-21T14:13:20.000000Z"
    assert all(isinstance(value, str) for value in told["annotations"].values())
    assert (tmp_path.joinpath(chain.daily_files(str(tmp_path))[0]).stat().st_mode & 0o777) == 0o600


def test_a_whole_audit_is_found_whole(tmp_path: Path) -> None:
    a_trail(tmp_path, 20)
    verdict = verify_chain.verify(str(tmp_path))
    assert (verdict.sound, verdict.lines, verdict.first, verdict.last) == (True, 20, 1, 20)


@pytest.mark.thorough
def test_each_way_to_tamper_is_told_with_its_place(tmp_path: Path) -> None:
    def fresh(name: str) -> Path:
        a_trail(tmp_path / name, 10)
        return tmp_path / name

    changed = rewritten(fresh("changed"), lambda lines: [line.replace(b"job-4", b"job-X") for line in lines])
    assert changed == ("entry 5 was modified: its content does not match its hash",)
    removed = rewritten(fresh("removed"), lambda lines: lines[:4] + lines[6:])
    assert removed == ("entries 5 to 6 are missing before entry 7",)
    moved = rewritten(fresh("moved"), lambda lines: [*lines[:3], lines[4], lines[3], *lines[5:]])
    assert any("inserted or moved" in flaw for flaw in moved)
    twice = rewritten(fresh("twice"), lambda lines: [*lines[:5], lines[4], *lines[5:]])
    assert twice == ("entry 5 follows entry 5: inserted or moved",)
    inserted = rewritten(fresh("inserted"), lambda lines: [*lines[:5], b'{"verb":"create"}', *lines[5:]])
    assert inserted == ("17 bytes are not a valid entry: inserted, or a line was truncated",)
    beginning = rewritten(fresh("beginning"), lambda lines: lines[3:])
    assert beginning == (
        "entries 1 to 3 are missing at the beginning, and no retention entry records their removal",
    )
    end = rewritten(fresh("end"), lambda lines: lines[:-3])
    assert end == ("entries 8 to 10 are missing at the end",)


def test_a_line_made_to_fit_in_itself_does_not_fit_the_next_one(tmp_path: Path) -> None:
    a_trail(tmp_path, 5)

    def forge(lines: list[bytes]) -> list[bytes]:
        parts = chain.split_hash(lines[2])
        assert parts is not None
        return [*lines[:2], chain.append_hash(parts[0].replace(b"job-2", b"job-9"))[0], *lines[3:]]

    assert rewritten(tmp_path, forge) == (
        "hash chain broken before entry 4: the previous entry was modified or inserted",
    )


def test_an_audit_written_anew_from_end_to_end_is_found_only_by_an_anchor(tmp_path: Path) -> None:
    a_trail(tmp_path / "true", 5)
    anchor = verify_chain.verify(str(tmp_path / "true")).head
    assert flaws(tmp_path / "true", anchor) == ()
    trail = a_trail(tmp_path / "false")
    for number in range(5):
        trail.add(an_entry("innocent", START + number))
    assert flaws(tmp_path / "false") == ()  # what a chain alone cannot show
    assert flaws(tmp_path / "false", anchor) == ("entry 5 differs from the anchor",)
    shutil.rmtree(tmp_path / "false")
    assert flaws(tmp_path / "false", anchor) == ("entry 5 is the anchor, but is missing",)


def test_the_note_of_the_last_hash_cannot_be_taken_away_unseen(tmp_path: Path) -> None:
    a_trail(tmp_path, 3)
    (tmp_path / "head").unlink()
    assert flaws(tmp_path) == ("the stored head is missing: a truncated end would not be noticed",)


# -- retention ---------------------------------------------------------------------------------------
def days_of(folder: Path, days: range, keep_days: float = 90.0) -> None:
    trail = AuditLog(str(folder), keep_days=keep_days)
    for number in days:
        trail.add(an_entry(f"day-{number}", START + number * DAY))
        os.utime(
            folder / chain.daily_files(str(folder))[-1], (number, number)
        )  # long ago by any machine's clock


@pytest.mark.thorough
def test_days_go_after_ninety_and_the_rest_still_verifies(tmp_path: Path) -> None:
    days_of(tmp_path, range(200))
    kept = chain.daily_files(str(tmp_path))
    assert 90 <= len(kept) <= 93
    verdict = verify_chain.verify(str(tmp_path))
    assert (verdict.flaws, verdict.first > 100) == ((), True)
    told = [event.verb for event in audit_query.entries(str(tmp_path), AuditQuery(verbs=("prune",)))]
    assert told


@pytest.mark.thorough
def test_nothing_younger_than_ninety_days_is_ever_removed(tmp_path: Path) -> None:
    days_of(tmp_path, range(91), keep_days=0.0)
    assert len(chain.daily_files(str(tmp_path))) == 91
    with pytest.raises(InvalidJob, match="at least 90 days"):
        retention.check_days(30.0)


@pytest.mark.parametrize("ahead_too", [False, True], ids=["told so", "the machine's clock"])
def test_one_act_with_a_clock_years_ahead_removes_nothing(
    tmp_path: Path, ahead_too: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    days_of(tmp_path, range(5))
    if ahead_too:
        monkeypatch.setattr(time, "time", lambda: START + 3650 * DAY)
    days_of(tmp_path, range(3650, 3651))
    monkeypatch.undo()
    a_trail(tmp_path).add(an_entry("set right", START + 6 * DAY))
    assert (len(chain.daily_files(str(tmp_path))), flaws(tmp_path)) == (6, ())


def test_days_that_were_written_to_lately_stay_whatever_their_names_say(tmp_path: Path) -> None:
    days_of(tmp_path, range(3))
    os.utime(tmp_path / chain.daily_files(str(tmp_path))[0])
    days_of(tmp_path, range(1000, 1003))
    assert len(chain.daily_files(str(tmp_path))) == 6


@pytest.mark.thorough
def test_a_day_that_somebody_removed_by_hand_is_told_apart_from_retention(tmp_path: Path) -> None:
    days_of(tmp_path, range(200))
    oldest, *_, newest = chain.daily_files(str(tmp_path))
    (tmp_path / oldest).unlink()
    assert any("missing at the beginning" in flaw for flaw in flaws(tmp_path))
    (tmp_path / newest).unlink()
    assert any("missing at the end" in flaw for flaw in flaws(tmp_path))


def test_a_clock_that_was_set_back_does_not_disturb_the_order(tmp_path: Path) -> None:
    trail = a_trail(tmp_path, 2)
    trail.add(an_entry("later", START + 5 * DAY))
    trail.add(an_entry("set back", START + 1 * DAY))
    assert len(chain.daily_files(str(tmp_path))) == 2
    assert flaws(tmp_path) == ()


# -- faults ------------------------------------------------------------------------------------------
WRITER = """
import sys, time
from mpijob.history.audit.audit_log import AuditLog
from mpijob.model.status.audit import AuditEvent, User, stamp
trail = AuditLog(sys.argv[1], keep_days=90.0)
print("ready", flush=True)
for number in range(int(sys.argv[2])):
    trail.add(AuditEvent(audit_id=f"{sys.argv[3]}-{number}", stage="ResponseComplete", verb="create",
                         user=User(username=sys.argv[3]), time=stamp(time.time())))
    print(number, flush=True)
"""


def a_writer(folder: Path, count: int, name: str) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", WRITER, str(folder), str(count), name]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)


@pytest.mark.thorough
def test_two_processes_that_write_at_once_make_one_chain(tmp_path: Path) -> None:
    writers = [a_writer(tmp_path, 60, name) for name in ("one", "two")]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    verdict = verify_chain.verify(str(tmp_path))
    assert (verdict.flaws, verdict.lines) == ((), 120)


@pytest.mark.thorough
def test_a_writer_killed_at_any_moment_loses_nothing_that_it_has_told(tmp_path: Path) -> None:
    told = 0
    for round in range(5):
        writer = a_writer(tmp_path, 10_000, f"round-{round}")
        assert writer.stdout is not None
        for _ in range(4 + 3 * round):
            heard = writer.stdout.readline()
        os.kill(writer.pid, signal.SIGKILL)
        heard = (writer.stdout.read().split() or [heard.strip()])[-1]
        writer.wait()
        told += int(heard) + 1
    verdict = verify_chain.verify(str(tmp_path))
    assert verdict.flaws == ()
    assert verdict.lines >= told


@pytest.mark.thorough
@pytest.mark.parametrize("step", range(1, 9))
def test_killed_at_each_step_the_chain_goes_on(tmp_path: Path, step: int) -> None:
    trail = a_trail(tmp_path, 2)
    pid = os.fork()
    if not pid:
        try:
            _die_at(step)
            trail.add(an_entry("cut"))
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    trail.add(an_entry("after"))
    verdict = verify_chain.verify(str(tmp_path))
    assert verdict.flaws == ()
    assert verdict.lines in (3, 4)
    assert len(verdict.remarks) == (step == 2)  # half a line was written, and it is told


def _die_at(fatal: int) -> None:
    """Kill this process before or after one of its writes; of the second half a line is written first."""
    count = 0

    def step() -> None:
        nonlocal count
        count += 1
        if count == fatal:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(name: str) -> None:
        call = getattr(os, name)

        def stepping(*arguments: Any) -> Any:
            step()
            if name == "write" and fatal == 2:
                call(arguments[0], arguments[1][: len(arguments[1]) // 2])
            elif count < fatal:
                answer = call(*arguments)
                step()
                return answer
            step()
            return None

        setattr(os, name, stepping)

    for name in ("write", "pwrite", "fdatasync"):
        around(name)


def test_a_full_disk_is_told_at_once_and_again_when_there_is_room(tmp_path: Path) -> None:
    trail = a_trail(tmp_path, 3)
    (name,) = chain.daily_files(str(tmp_path))
    size = (tmp_path / name).stat().st_size
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, hard))  # room for a part of a line
    try:
        with pytest.raises(BackendError, match="cannot write the audit log"):
            trail.add(an_entry("lost"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (tmp_path / name).stat().st_size == size
    trail.add(an_entry("after"))
    verdict = verify_chain.verify(str(tmp_path))
    assert (verdict.flaws, verdict.lines) == ((), 4)
    assert "could not be written since" in verdict.remarks[0].message
    trail.add(an_entry("later"))
    assert len(verify_chain.verify(str(tmp_path)).remarks) == 1


def test_a_writer_that_was_stopped_stops_nobody_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trail = a_trail(tmp_path, 1)
    monkeypatch.setattr(audit_log, "_LOCK_TIMEOUT_SECONDS", 0.05)
    holder = os.open(tmp_path / "lock", os.O_RDWR)
    fcntl.flock(holder, fcntl.LOCK_EX)
    with pytest.raises(BackendError, match="locked by another process"):
        trail.add(an_entry("held"))
    os.close(holder)
    trail.add(an_entry("free"))
    assert flaws(tmp_path) == ()


def test_a_directory_of_somebody_else_is_an_error_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BackendError, match=r"cannot write the audit log in .*file/audit"):
        a_trail(tmp_path / "file" / "audit", 1)


# -- reading -----------------------------------------------------------------------------------------
def test_entries_are_found_by_who_what_when_and_which_job(tmp_path: Path) -> None:
    trail = a_trail(tmp_path)
    refused = ResponseStatus(status="Failure", code=409, reason="QUOTA_EXCEEDED")
    trail.add(an_entry("a", START, user=User(username="jane")))
    trail.add(an_entry("b", START + DAY, user=User(username="bob"), verb="delete"))
    trail.add(an_entry("c", START + 2 * DAY, response_status=refused))

    def found(**wanted: Any) -> str:
        events = audit_query.entries(str(tmp_path), AuditQuery(**wanted))
        return "".join(event.object_ref.name for event in events if event.object_ref)

    assert found() == "abc"
    assert found(users=("jane",)) == "ac"
    assert found(verbs=("delete",)) == "b"
    assert found(jobs=("a", "b")) == "ab"
    assert found(namespace="team-cv", refused=True) == "c"
    assert found(since=START + DAY / 2, until=START + 1.5 * DAY) == "b"
    assert found(limit=1) == "c"


def test_an_act_is_shown_once_by_its_result_and_as_begun_where_there_is_none(tmp_path: Path) -> None:
    trail = a_trail(tmp_path)
    for job, stages in (("whole", (RECEIVED, COMPLETE)), ("cut", (RECEIVED,))):
        for stage in stages:
            trail.add(an_entry(job, stage=stage))
    assert [event.stage for event in audit_query.entries(str(tmp_path), AuditQuery())] == [
        COMPLETE,
        RECEIVED,
    ]


def test_a_hundred_thousand_entries_are_no_reason_for_a_slow_write(tmp_path: Path) -> None:
    trail = a_trail(tmp_path, 1)
    (name,) = chain.daily_files(str(tmp_path))
    line = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(line * 50_000)
    begun = time.process_time()
    for number in range(20):
        trail.add(an_entry(f"job-{number}"), on_disk=False)
    assert (time.process_time() - begun) / 20 < 0.02


@pytest.mark.security
@pytest.mark.parametrize(
    "asked", ["pods/exec", "pods/attach", "pods/portforward", "pods/log", "pods/ephemeralcontainers"]
)
def test_the_api_server_writes_down_who_enters_a_pod_also_from_the_systems_own_namespace(asked: str) -> None:
    rules = yaml.safe_load((ROOT / "deploy" / "base" / "audit" / "policy.yaml").read_text())["rules"]

    def matches(rule: dict[str, Any]) -> bool:
        named = [one for part in rule.get("resources") or () for one in part["resources"]]
        groups, verbs = rule.get("userGroups"), rule.get("verbs")
        return (
            (not named or asked in named)
            and (not verbs or "create" in verbs)
            and (groups is None or "system:serviceaccounts:kube-system" in groups)
            and not rule.get("users")
        )

    assert next(rule["level"] for rule in rules if matches(rule)) == "Metadata"
