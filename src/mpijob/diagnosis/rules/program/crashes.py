"""Causes in the user's own program: signals that the system sends for what the program does, each by its number."""

from __future__ import annotations

from mpijob.diagnosis.rule import Remedy, Rule, Sign, Trust
from mpijob.diagnosis.rules.launcher_reports import crashed

_LINE = (
    Remedy(
        "print the {python} line of the crash: set PYTHONFAULTHANDLER=1", {"env": {"PYTHONFAULTHANDLER": "1"}}
    ),
    Remedy(
        "print the line of the crash: compile the program with -g and run it under gdb, where that is "
        "installed",
        {"command": "{with_gdb}"},
    ),
    Remedy(
        "print the line of the crash: compile the program with -g, and, in the script, put {gdb} in "
        "front of the program (gdb must be installed there)"
    ),
)
_SAID_BY_SHELLS = (
    *("Virtual timer expired", "Alarm clock", "Hangup", "Quit", "Bad system call"),
    *("User defined signal [12]", "Trace/breakpoint trap"),
)
_ALONE = Remedy("run a single rank, to see whether it also crashes without MPI communication")

RULES = (
    Rule(
        id="SEGFAULT",
        title="A rank crashed (signal 11)",
        why="A rank accessed invalid memory. The error is in native code: the program, a library, or "
        "two libraries of incompatible versions.",
        facts=("rank-signal:11",),
        crash=True,
        signs=(*crashed(11), Sign("sigSegv::sigHandler", r"^#\d+ [^\n]*Foam::sigSegv::sigHandler")),
        causes=(
            "{who} crashed with a segmentation fault (signal 11, SIGSEGV) in {file}, line {line}.",
            "{who} crashed with a segmentation fault (signal 11, SIGSEGV).",
        ),
        remedies=(
            *_LINE,
            _ALONE,
            Remedy(
                "use the same versions of MPI, CUDA and NumPy on all nodes, and rebuild extensions "
                "against them"
            ),
        ),
        confidence=0.95,
        yields_to=("BUS_ERROR", "ILLEGAL_INSTRUCTION", "FLOATING_POINT"),
    ),
    Rule(
        id="ILLEGAL_INSTRUCTION",
        title="A rank executed an instruction that this CPU does not have (signal 4)",
        why="The program or one of its libraries was compiled for a newer CPU than the node has "
        "(AVX-512, AMX), or the program jumped to invalid code. In a cluster with several kinds "
        "of nodes it fails only on some of them.",
        facts=("rank-signal:4",),
        crash=True,
        signs=crashed(4),
        causes=("{who} executed an instruction that its CPU does not have (signal 4, SIGILL).",),
        remedies=(
            Remedy(
                "compile for the oldest CPU of the nodes, for example -march=x86-64-v3 instead of "
                "-march=native"
            ),
            Remedy("run on nodes of one kind: placement.node_selector"),
            *_LINE,
        ),
        confidence=0.95,
    ),
    Rule(
        id="BUS_ERROR",
        title="A rank accessed mapped memory that is not available (signal 7)",
        why="The system could not provide memory that a rank had mapped: /dev/shm or the disk of a "
        "mapped file is full, or the file was truncated while it was mapped.",
        facts=("rank-signal:7",),
        crash=True,
        signs=crashed(7),
        causes=("{who} crashed with a bus error (signal 7, SIGBUS): often /dev/shm is full.",),
        remedies=(
            Remedy("mount a larger /dev/shm (it counts as the worker's memory)", {"volumes": "{with_shm}"}),
            Remedy("with docker: --shm-size=8g, or --ipc=host"),
            Remedy("check the free space while it runs: df -h /dev/shm /tmp"),
        ),
        confidence=0.95,
        yields_to=("SHM_FULL", "DISK_FULL", "LOADER_KILLED"),
    ),
    Rule(
        id="FLOATING_POINT",
        title="A rank crashed with an arithmetic error (signal 8)",
        why="An integer was divided by zero, or the program traps floating-point division by zero, "
        "overflow or invalid operations (-ffpe-trap, feenableexcept).",
        facts=("rank-signal:8",),
        crash=True,
        signs=(*crashed(8), Sign("sigFpe::sigHandler", r"^#\d+ [^\n]*Foam::sigFpe::sigHandler")),
        causes=("{who} crashed with an arithmetic error, such as a division by zero (signal 8, SIGFPE).",),
        remedies=(
            *_LINE,
            Remedy("check divisions by a count that may be 0: an empty partition, more ranks than rows"),
        ),
        confidence=0.95,
    ),
    Rule(
        id="ABORTED",
        title="A rank aborted (signal 6)",
        why="The program or a library called abort: a failed assertion, corrupted memory (free, malloc), "
        "an uncaught C++ exception. The last line of its log shows which.",
        facts=("rank-signal:6",),
        crash=True,
        signs=(
            Sign("Assertion", r"(?P<error>[^\n]{0,200}Assertion (?:`|'|‘)?[^\n]{1,200} failed\.?)"),
            Sign("stack smashing", r"(?P<error>\*\*\* stack smashing detected \*\*\*)"),
            *(
                Sign(
                    f"{call}():",
                    rf"(?P<error>{call}\(\): (?:invalid|double|corrupted|unaligned|memory)[^\n]{{1,80}})",
                )
                for call in ("free", "malloc", "realloc", "munmap_chunk")
            ),
            Sign("double free or corruption", r"(?P<error>double free or corruption[^\n]{0,40})"),
            Sign("corrupted ", r"(?P<error>corrupted (?:size vs\. prev_size|double-linked list)[^\n]{0,40})"),
            Sign("buffer overflow detected", r"(?P<error>\*\*\* buffer overflow detected \*\*\*)"),
            *crashed(6),
        ),
        causes=(
            "{who} aborted (signal 6, SIGABRT): {error}",
            "{who} aborted (signal 6, SIGABRT).",
        ),
        remedies=(
            *_LINE,
            Remedy("read the rank's last lines: mpijob logs JOB --rank {rank} --tail 50"),
            _ALONE,
        ),
        confidence=0.9,
        yields_to=(
            *(
                "UNCAUGHT_ERROR",
                "PROGRAM_ERROR",
                "MEMORY_ERROR",
                "PYTHON_EXCEPTION",
                "NCCL_TIMEOUT",
                "NCCL_ERROR",
            ),
            *(
                "NCCL_CONNECTION",
                "CUDA_ERROR",
                "CUDA_OOM",
                "MPI_CALL_ERROR",
                "MISSING_LIBRARY",
                "TOO_MANY_FILES",
            ),
            *("PROCESS_LIMIT", "SHM_FULL", "DISK_FULL", "LINK_FAILED", "FABRIC_FAILED", "CUDA_DRIVER"),
        ),
    ),
    Rule(
        id="RANK_SIGNAL",
        title="A signal ended a rank",
        why="A rank received a signal that it does not handle. Users and tools send SIGTERM and "
        "SIGUSR1; limits on CPU time and file size send SIGXCPU and SIGXFSZ.",
        facts=("rank-signalled",),
        signs=(
            Sign(
                "noticed that process rank",
                r"noticed that process rank (?P<rank>\d+)(?: with PID \d+ on node (?P<host>\S+)"
                r"|[\s\S]{0,80}?) exited on "
                r"signal (?!(?:4|6|7|8|9|11|15)\b)(?P<number>\d+) \((?P<words>[^)\n]{1,60})\)",
            ),
            Sign(
                "EXIT STRING",
                r"EXIT CODE: (?!(?:4|6|7|8|9|11|15)\b)(?P<number>\d+)[\s\S]{0,300}?EXIT STRING: "
                r"[^\n(]{1,40}\(signal \d+\)",
            ),
            Sign(
                "Caught signal number",
                r"\[(?P<rank>\d+)\]PETSC ERROR: Caught signal number (?!(?:4|6|7|8|9|11|15)\b)"
                r"(?P<number>\d+) (?P<words>[^\n:]{1,40})",
            ),
            Sign(
                "got signal:",
                r"SignalException: Process \d+ got signal: (?!(?:4|6|7|8|9|11|15)\b)(?P<number>\d+)",
            ),
            Sign(
                "exits with return code",
                r"exits with return code = -(?!(?:4|6|7|8|9|11|15)\b)(?P<number>\d+)",
            ),
            Sign(
                "CPU time limit exceeded",
                r"^(?:\S+[ ])?\S+: line \d+: \d+ (?P<by_shell>(?P<cpu_time>CPU time) limit exceeded)\b",
            ),
            *(  # as a shell says it of a program that it started
                Sign(words, rf"^(?:\S+[ ])?\S+: line \d+: \d+ (?P<by_shell>{words})\b")
                for words in _SAID_BY_SHELLS
            ),
        ),
        causes=(
            "A signal ended a program that {whom} had started: {by_shell}.",
            "{signal_name} ended {whom}.",
            "Signal {number} ({words}) ended {whom}.",
            "Signal {number} ended {whom}.",
        ),
        example="SIGUSR1 ended rank 1 on worker 0.",
        remedies=(
            Remedy(
                "raise the limit on CPU time in the script, or remove it: ulimit -t unlimited{cpu_time:.0}"
            ),
            Remedy("check why the program that reads from the rank's pipe or socket ended earlier{pipe:.0}"),
            Remedy("read the rank's last lines: mpijob logs JOB --rank {rank} --tail 50"),
            Remedy("if another process or user sent the signal, run the job again: mpijob retry JOB"),
        ),
        only_how=True,
        confidence=0.75,
        trust=Trust.CAUSE,
        yields_to=("*",),
    ),
)
