"""Call stacks of ranks: the shell script that reads them inside a worker, and the parser of its output.

The script is POSIX shell for any image and machine. py-spy and gdb stop a rank for a moment; without them it reads
/proc. It sends no signals, and `SCRIPT` writes no files. Each section of the output has a mark that the caller has
chosen, so that a program's name cannot be mistaken for one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from mpijob import codec
from mpijob.model.status.stacks import Frame, Lack, Means, RankStack

MOST_FRAMES = 60
_LONGEST = 200

# $1 the mark, $2 the path of py-spy or "", $3 seconds for each tool; then rank:pid of the shims. Without those, the
# ranks are those with a pid file (see `pod_scripts.RANK`), else the processes with a rank's variables.
SCRIPT = r"""
mark=$1 spy=$2 patience=$3
shift 3
home=${MPIJOB_HOME:-/mpijob/home}
if [ -z "$spy" ]; then spy=$(command -v py-spy) || spy=; fi
if [ -z "$spy" ] && [ -x "$home/py-spy" ]; then spy=$home/py-spy; fi
gdb=$(command -v gdb) || gdb=
section() { printf '\n%s %s\n' "$mark" "$*"; }
limited() { if command -v timeout >/dev/null 2>&1; then timeout "$patience" "$@"; else "$@"; fi; }
variable() { # $1 pid, $2 name: its value in the process's environment
  tr '\0' '\n' 2>/dev/null <"/proc/$1/environ" | while read -r line; do
    case $line in "$2="*) printf '%s' "${line#*=}"; break ;; esac
  done
}
rank_of() {
  for name in MPIJOB_RANK PMIX_RANK OMPI_COMM_WORLD_RANK PMI_RANK; do
    value=$(variable "$1" "$name")
    case $value in ''|*[!0-9]*) ;; *) printf '%s' "$value"; return ;; esac
  done
}
program() { # the program itself, below its shim and the shells around it
  pid=$1 depth=0
  while [ "$depth" -lt 12 ]; do
    comm= child=
    { read -r comm <"/proc/$pid/comm"; } 2>/dev/null
    case $comm in
      rank.sh|sh|bash|dash|ash|zsh|ksh|busybox|env|timeout|nice|numactl|taskset|stdbuf|tini|dumb-init|xargs|time) ;;
      *) break ;;
    esac
    { read -r child rest <"/proc/$pid/task/$pid/children"; } 2>/dev/null
    [ -n "$child" ] || break
    pid=$child depth=$((depth + 1))
  done
}
is_python() {
  case $(readlink "/proc/$1/exe" 2>/dev/null) in *python*|*pypy*) return 0 ;; esac
  grep -q libpython "/proc/$1/maps" 2>/dev/null
}
spied() {
  [ -n "$spy" ] || return 1
  if found=$(limited "$spy" dump --json --native --pid "$1" 2>/dev/null) \
    || found=$(limited "$spy" dump --json --pid "$1" 2>/dev/null); then
    section py-spy
    printf '%s\n' "$found"
    return 0
  fi
  section failed py-spy
  limited "$spy" dump --pid "$1" 2>&1 | head -n 4
  return 1
}
debugged() {
  section gdb
  limited "$gdb" -p "$1" -batch -nx -iex 'set debuginfod enabled off' -iex 'set auto-load off' \
    -ex 'set width 0' -ex 'set print frame-arguments none' -ex 'thread apply all bt 60' 2>&1 </dev/null
  [ $? != 124 ] || section slow gdb
}
look() { # $1 rank, $2 pid
  program "$2"
  section rank "$1" "$pid"
  [ -d "/proc/$pid" ] || return
  section cmdline
  tr '\0\n' '\n ' 2>/dev/null <"/proc/$pid/cmdline" | head -n 8
  section status
  while read -r key value; do
    case $key in State:|Threads:) printf '%s %s\n' "$key" "$value" ;; esac
  done 2>/dev/null <"/proc/$pid/status"
  section wchan
  cat "/proc/$pid/wchan" 2>/dev/null
  section syscall
  cat "/proc/$pid/syscall" 2>/dev/null
  section machine
  uname -m
  if is_python "$pid"; then
    section python
    if spied "$pid"; then return; fi
  fi
  if [ -n "$gdb" ]; then debugged "$pid"; fi
}
if [ $# = 0 ]; then
  for file in "$home"/ranks/*; do
    pid=${file##*/}
    if [ -d "/proc/$pid" ] && rank=$(rank_of "$pid") && [ -n "$rank" ]; then set -- "$@" "$rank:$pid"; fi
  done
fi
if [ $# = 0 ]; then # a launcher of the user's own: the topmost processes that have a rank
  for place in /proc/[0-9]*; do
    pid=${place#/proc/} parent=
    rank=$(rank_of "$pid")
    [ -n "$rank" ] && [ "$(variable "$pid" MPIJOB_ATTEMPT_DIR)" = "${MPIJOB_ATTEMPT_DIR:-}" ] || continue
    while read -r key value; do if [ "$key" = PPid: ]; then parent=$value; fi; done 2>/dev/null <"$place/status"
    [ -z "$(rank_of "${parent:-0}")" ] && set -- "$@" "$rank:$pid"
  done
fi
for one in "$@"; do look "${one%%:*}" "${one#*:}"; done
section end
"""

# $1 the program's architecture, $2 its size; the program comes on stdin, and is written into the job's own directory.
# A partial copy must not be executed, hence the rename.
CARRY = r"""
umask 077
home=${MPIJOB_HOME:-/mpijob/home}
[ "$(uname -m)" = "$1" ] || exit 3
head -c "$2" >"$home/py-spy.part" && chmod 700 "$home/py-spy.part" && mv "$home/py-spy.part" "$home/py-spy"
"""

_GDB_FRAME = re.compile(
    r"#\d+ +(?:0x[0-9a-f]+ in )?(?P<function>[^\s(]+|\(.*?\)|.*?) \(.*?\)"
    r"(?: at (?P<file>\S.*?):(?P<line>\d+)| from (?P<library>\S+))?\s*"
)
_GDB_THREAD = re.compile(r"Thread (\d+) \(")
_DENIED = re.compile(
    r"(?i)permission denied|operation not permitted|ptrace: |could not attach|process_vm_readv|EPERM"
)
_NO_WCHAN = ("0", "0\n", "")
_CALLS = {
    "x86_64": {0: "read", 1: "write", 7: "poll", 9: "mmap", 23: "select", 24: "sched_yield", 34: "pause",
               35: "nanosleep", 42: "connect", 43: "accept", 44: "sendto", 45: "recvfrom", 46: "sendmsg",
               47: "recvmsg", 61: "wait4", 74: "fsync", 202: "futex", 230: "clock_nanosleep", 232: "epoll_wait",
               247: "waitid", 270: "pselect6", 271: "ppoll", 281: "epoll_pwait"},
    "aarch64": {22: "epoll_pwait", 63: "read", 64: "write", 72: "pselect6", 73: "ppoll", 82: "fsync",
                95: "waitid", 98: "futex", 101: "nanosleep", 115: "clock_nanosleep", 124: "sched_yield",
                202: "accept", 203: "connect", 206: "sendto", 207: "recvfrom", 211: "sendmsg", 212: "recvmsg",
                260: "wait4"},
}  # fmt: skip


def read(mark: str, text: str, worker: int | None = None) -> tuple[RankStack, ...]:
    """Return the stacks in the output of one run of `SCRIPT`, by rank."""
    found: list[RankStack] = []
    sections: list[tuple[str, str]] = []
    for head, body in _sections(mark, text):
        if head.startswith("rank ") or head == "end":
            found += _stack(sections, worker)
            sections = []
        sections.append((head, body))
    return tuple(sorted((*found, *_stack(sections, worker)), key=lambda stack: stack.rank))


def _sections(mark: str, text: str) -> Iterator[tuple[str, str]]:
    head, body = "", list[str]()
    for line in text.splitlines():
        if line.startswith(f"{mark} "):
            yield head, "\n".join(body)
            head, body = line[len(mark) + 1 :], []
        else:
            body.append(line)
    yield head, "\n".join(body)


def _stack(sections: list[tuple[str, str]], worker: int | None) -> list[RankStack]:
    if not sections or not (match := re.fullmatch(r"rank (\d{1,7}) (\d{1,9})", sections[0][0])):
        return []
    texts = dict(sections)
    rank, pid = int(match[1]), int(match[2])
    if "status" not in texts:
        return [RankStack(rank=rank, worker=worker, pid=pid, lack=Lack.GONE)]
    means, frames = _frames(texts)
    lack, quote = _lack(texts, means)
    state = re.search(r"State: (\S)", texts["status"])
    threads = re.search(r"Threads: (\d+)", texts["status"])
    return [
        RankStack(
            rank=rank,
            worker=worker,
            pid=pid,
            program=_program(texts.get("cmdline", "")),
            means=means,
            state=state[1] if state else "",
            threads=int(threads[1]) if threads else 0,
            wchan="" if texts.get("wchan", "") in _NO_WCHAN else texts["wchan"].strip()[:_LONGEST],
            syscall=_syscall_name(texts),
            frames=frames,
            lack=lack,
            said=quote,
        )
    ]


def _frames(texts: dict[str, str]) -> tuple[Means, tuple[Frame, ...]]:
    if frames := _pyspy_frames(texts.get("py-spy", "")):
        return Means.PYSPY, frames
    if frames := _gdb_frames(texts.get("gdb", "")):
        return Means.GDB, frames
    return Means.PROC, ()


class _PySpyFrame(msgspec.Struct):
    name: str = ""
    filename: str = ""
    short_filename: str | None = None
    module: str | None = None
    line: int = 0


class _PySpyThread(msgspec.Struct):
    pid: int = 0
    os_thread_id: int | None = None
    frames: list[_PySpyFrame] = []


def _pyspy_frames(text: str) -> tuple[Frame, ...]:
    # The main thread has the number of its process.
    try:
        threads = codec.decode(text, list[_PySpyThread])
    except msgspec.DecodeError:
        return ()
    own = [thread for thread in threads if thread.os_thread_id == thread.pid] or threads
    return tuple(_frame(frame) for frame in (own[0].frames if own else [])[:MOST_FRAMES])


def _frame(frame: _PySpyFrame) -> Frame:
    native = frame.module is not None
    file = frame.module if frame.module is not None else frame.filename
    return Frame(frame.name[:_LONGEST], file[-_LONGEST:], frame.line, native)


def _gdb_frames(text: str) -> tuple[Frame, ...]:
    # gdb numbers the main thread 1.
    thread, frames = "1", dict[str, list[Frame]]()
    for line in text.splitlines():
        if match := _GDB_THREAD.match(line):
            thread = match[1]
        elif match := _GDB_FRAME.fullmatch(line):
            place = match["file"] or match["library"] or ""
            function = match["function"][:_LONGEST]
            frames.setdefault(thread, []).append(
                Frame(function, place[-_LONGEST:], int(match["line"] or 0), True)
            )
    return tuple(frames.get("1", [])[:MOST_FRAMES])


def _lack(texts: dict[str, str], means: Means) -> tuple[Lack | None, str]:
    """Return why there is no better stack, and the tool's message about it."""
    if means is Means.PYSPY:
        return None, ""
    for head in ("failed py-spy", "gdb"):
        words = texts.get(head, "")
        if match := _DENIED.search(words):
            return Lack.DENIED, _line_around(words, match)
    if "python" in texts and means is Means.PROC:
        return _python_lack(texts)
    if means is Means.GDB:
        return (Lack.NO_PYSPY, "") if "python" in texts and "failed py-spy" not in texts else (None, "")
    if "slow gdb" in texts:
        return Lack.TOO_SLOW, ""
    return (Lack.UNREADABLE, _first(texts["gdb"])) if "gdb" in texts else (Lack.NO_GDB, "")


def _python_lack(texts: dict[str, str]) -> tuple[Lack, str]:
    if "failed py-spy" not in texts:
        return Lack.NO_PYSPY, ""
    words = texts["failed py-spy"]
    return (Lack.UNREADABLE, _first(words)) if words.strip() else (Lack.TOO_SLOW, "")


def _line_around(text: str, match: re.Match[str]) -> str:
    start, end = text.rfind("\n", 0, match.start()) + 1, text.find("\n", match.end())
    return text[start : end if end >= 0 else None].strip()[:_LONGEST]


def _first(text: str) -> str:
    return next((line.strip()[:_LONGEST] for line in text.splitlines() if line.strip()), "")


def _program(cmdline: str) -> str:
    words = [word for word in cmdline.splitlines() if word]
    if not words:
        return ""
    # No other arguments than a script's name: one may be a secret.
    name = words[0].rpartition("/")[2]
    if not re.match(r"(?:python|pypy)", name):
        return name[:_LONGEST]
    script = next((word for word in words[1:] if word.endswith(".py")), "")
    return f"{name} {script.rpartition('/')[2]}".strip()[:_LONGEST]


def _syscall_name(texts: dict[str, str]) -> str:
    """Return the name of the system call that a process is in; numbers depend on the architecture."""
    word = (texts.get("syscall", "").split() or [""])[0]
    if not re.fullmatch(r"[0-9]{1,4}", word):
        return ""
    names = _CALLS.get(texts.get("machine", "").strip(), {})
    return names.get(int(word), f"call {word}")
