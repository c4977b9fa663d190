"""Causes in the user's own program: signals that the system sends for what the program does, each by its number."""

from __future__ import annotations

from mpijob.diagnosis.rule import Remedy, Rule, Sign, Trust
from mpijob.diagnosis.rules.launcher_reports import crashed

_LINE = (
    Remedy(
        "see the {python} line of the crash: set PYTHONFAULTHANDLER=1", {"env": {"PYTHONFAULTHANDLER": "1"}}
    ),
    Remedy(
        "see the line of the crash: compile the program with -g, and let gdb run it, where that is installed",
        {"command": "{with_gdb}"},
    ),
    Remedy(
        "see the line of the crash: compile the program with -g, and write before it in the script, where gdb "
        "is installed: {gdb}"
    ),
)
_ALONE = Remedy("run one rank alone, to see whether MPI has a part in it")

RULES = (
    Rule(
        id="SEGFAULT",
        title="A rank crashed (signal 11)",
        why="A rank read or wrote memory that is not its own and was stopped by the system. The fault is in "
        "native code: the program, a library, or two libraries of versions that do not fit.",
        facts=("rank-signal:11",),
        crash=True,
        signs=crashed(11),
        causes=("{who} crashed with a segmentation fault (signal 11, SIGSEGV).",),
        remedies=(
            *_LINE,
            _ALONE,
            Remedy("use one version of MPI, CUDA and numpy everywhere; rebuild extensions against it"),
        ),
        confidence=0.95,
        yields_to=("BUS_ERROR", "ILLEGAL_INSTRUCTION", "FLOATING_POINT"),
    ),
    Rule(
        id="ILLEGAL_INSTRUCTION",
        title="A rank used an instruction that this CPU does not have (signal 4)",
        why="The program, or one of its libraries, was compiled for a newer CPU than the node has (AVX-512, AMX), "
        "or it ran into bytes that are no code at all. With several kinds of nodes it fails on some of them only.",
        facts=("rank-signal:4",),
        crash=True,
        signs=crashed(4),
        causes=("{who} used an instruction that its CPU does not have (signal 4, SIGILL).",),
        remedies=(
            Remedy("compile for the oldest CPU of the nodes: -march=x86-64-v3 instead of -march=native"),
            Remedy("send the job to nodes of one kind: placement.node_selector"),
            *_LINE,
        ),
        confidence=0.95,
    ),
    Rule(
        id="BUS_ERROR",
        title="A rank could not use memory that it had mapped (signal 7)",
        why="Memory that a rank had mapped could not be given: /dev/shm or the disk behind a mapped file is full, or "
        "the file was cut short meanwhile.",
        facts=("rank-signal:7",),
        crash=True,
        signs=crashed(7),
        causes=("{who} could not use memory that it had mapped (signal 7, SIGBUS): often /dev/shm is full.",),
        remedies=(
            Remedy("mount a larger /dev/shm (it counts as the worker's memory)", {"volumes": "{with_shm}"}),
            Remedy("with docker: --shm-size=8g, or --ipc=host"),
            Remedy("see what is full while it runs: df -h /dev/shm /tmp"),
        ),
        confidence=0.95,
        yields_to=("SHM_FULL", "DISK_FULL", "LOADER_KILLED"),
    ),
    Rule(
        id="FLOATING_POINT",
        title="A rank made an arithmetic error (signal 8)",
        why="An integer was divided by zero, or the program asked to be stopped at a floating-point division by zero, "
        "overflow or invalid operation (-ffpe-trap, feenableexcept).",
        facts=("rank-signal:8",),
        crash=True,
        signs=crashed(8),
        causes=("{who} divided by zero or made another arithmetic error (signal 8, SIGFPE).",),
        remedies=(
            *_LINE,
            Remedy("look for divisions by a count that may be 0: an empty partition, more ranks than rows"),
        ),
        confidence=0.95,
    ),
    Rule(
        id="ABORTED",
        title="A rank aborted (signal 6)",
        why="The program, or a library in it, found something impossible and called abort: an assertion, damaged "
        "memory (free, malloc), a C++ exception that nobody caught. What it found is in its last line.",
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
            *("PROCESS_LIMIT", "SHM_FULL", "DISK_FULL"),
        ),
    ),
    Rule(
        id="RANK_SIGNAL",
        title="A rank was ended by a signal",
        why="A rank got a signal that it did not handle, from outside or from a limit: SIGTERM and SIGUSR1 are sent "
        "by somebody, SIGXCPU and SIGXFSZ by a limit on CPU time or file size.",
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
                r"\[(?P<rank>\d+)\]PETSC ERROR: Caught signal number (?!(?:4|6|7|8|9|11|15)\b)(?P<number>\d+) (?P<words>[^\n:]{1,40})",
            ),
            Sign(
                "got signal:",
                r"SignalException: Process \d+ got signal: (?!(?:4|6|7|8|9|11|15)\b)(?P<number>\d+)",
            ),
            Sign(
                "exits with return code",
                r"exits with return code = -(?!(?:4|6|7|8|9|11|15)\b)(?P<number>\d+)",
            ),
        ),
        causes=(
            "{who} was ended by {signal_name}.",
            "{who} was ended by signal {number} ({words}).",
            "{who} was ended by signal {number}.",
        ),
        example="Rank 1 on worker 0 was ended by SIGUSR1.",
        remedies=(
            Remedy("read the rank's last lines: mpijob logs JOB --rank {rank} --tail 50"),
            Remedy("run it again if the signal came from outside: mpijob retry JOB"),
        ),
        only_how=True,
        confidence=0.75,
        trust=Trust.CAUSE,
        yields_to=("*",),
    ),
)
