"""Causes in the user's own program: how it ends."""

from __future__ import annotations

from mpijob.diagnosis.rule import Remedy, Rule, Sign, Trust
from mpijob.diagnosis.rules.program.start import SAID_BY_PYTHON, WITH_MPI4PY

RULES = (
    Rule(
        id="SEGFAULT",
        title="A rank crashed",
        why="A rank read or wrote memory that is not its own and was stopped by the system. The fault is in "
        "native code: the program, a library, or two libraries of versions that do not fit.",
        facts=("rank-crashed",),
        signs=(
            Sign(
                "Root Cause (first observed",
                r"Root Cause \(first observed failure\): \[\d+\]:[\s\S]{0,200}?rank : (?P<rank>\d+) \(local_rank"
                r"[\s\S]{0,40}?exitcode : -(?:11|7|8|4)\b",
            ),
            Sign(
                "exited on",
                r"noticed that process rank (?P<rank>\d+) with PID \d+ on node (?P<host>\S+) exited on "
                r"signal (?:11|7|8|4)\b",
            ),
            Sign("Segmentation fault", r"\[(?P<host>[\w.-]+):\d+\] Signal: Segmentation fault \(11\)"),
            Sign(
                "KILLED BY SIGNAL",
                r"RANK (?P<rank>\d+) PID \d+ RUNNING AT (?P<host>\S+) = KILLED BY SIGNAL: "
                r"(?:11|7|8|4)\b",
            ),
            Sign("EXIT STRING", r"EXIT STRING: (?:Segmentation fault|Bus error|Floating point exception)"),
            Sign("Segmentation fault", r"^(?:Fatal Python error: )?Segmentation fault"),
            Sign("Caught signal 11", r"Caught signal 11"),
            Sign(
                "Program received signal",  # gdb
                r"Program received signal (?P<signal_name>SIG(?:SEGV|BUS|FPE|ILL)),[^\n]*\n[^\n]{1,300}",
            ),
        ),
        causes=("{who} crashed ({signal_name}).", "{who} crashed (segmentation fault)."),
        remedies=(
            Remedy(
                "see the {python} line of the crash: set PYTHONFAULTHANDLER=1",
                {"env": {"PYTHONFAULTHANDLER": "1"}},
            ),
            Remedy(
                "see the line of the crash: compile the program with -g, and let gdb run it, where that is installed",
                {"command": "{with_gdb}"},
            ),
            Remedy(
                "see the line of the crash: compile the program with -g, and write before it in the script, where gdb "
                "is installed: {gdb}"
            ),
            Remedy("run one rank alone, to see whether MPI has a part in it"),
            Remedy("use one version of MPI, CUDA and numpy everywhere; rebuild extensions against it"),
        ),
        confidence=0.95,
    ),
    Rule(
        id="MPI_ABORT",
        title="The program itself stopped the job",
        why="A rank called MPI_Abort, which ends all ranks. Programs do so when they find something wrong; "
        "the reason is in the rank's own lines just before. python -m mpi4py does it after an uncaught "
        "exception.",
        signs=(
            Sign(
                "MPI_ABORT",
                r"MPI_ABORT was invoked on rank (?P<rank>\d+) in communicator[\s\S]{0,200}?Errorcode: "
                r"(?P<code>-?\d+)",
            ),
            Sign(
                "MPI_ABORT",
                r"MPI_ABORT was invoked on rank (?P<rank>\d+) in communicator \S+ with errorcode (?P<code>-?\d+)",
            ),
            Sign(
                "Abort(",
                r"Abort\((?P<code>-?\d+)\) on node \d+ \(rank (?P<rank>\d+) in comm \d+\): application "
                r"called MPI_Abort",
            ),
        ),
        causes=("{who} stopped the job itself (MPI_Abort with code {code}).",),
        remedies=(
            Remedy("read what the rank said just before: mpijob logs JOB --rank {rank} --tail 50"),
            Remedy("read what was said just before: mpijob logs JOB --tail 50"),
        ),
        confidence=0.9,
        yields_to=("PYTHON_EXCEPTION", "MPI_CALL_ERROR", *SAID_BY_PYTHON),
    ),
    Rule(
        id="PYTHON_EXCEPTION",
        title="A Python exception was not caught",
        why="A rank ended with an exception, and that ends the job. Where nobody watches the ranks, as under a plain "
        "mpirun, the others may wait for it for ever, because it never reaches MPI_Finalize.",
        signs=(
            Sign(
                "Traceback",
                r"^(?:\S*[ ])?Traceback \(most recent call last\):\s*\n(?:(?:\S+[ ])?[ \t]+[^\n]*\n)*+"
                r"(?:(?![A-Za-z_][\w.]*: )\S+[ ])?"
                r"(?![^\n]{0,300}(?:Connection (?:closed|reset) by peer|ChildFailedError))"
                r"(?P<error>[A-Za-z_][\w.]*(?:: [^\n]{0,300})?)$",
            ),
        ),
        causes=("{who} failed with an exception: {error}",),
        remedies=(
            Remedy("mend what the exception says; its place is in the lines shown"),
            WITH_MPI4PY,
        ),
        confidence=0.85,
        uncaught=True,
        yields_to=SAID_BY_PYTHON,
    ),
    Rule(
        id="BAD_ARGUMENTS",
        title="The program does not understand its arguments",
        why="The program looked at its command line and refused it: an option is misspelt, missing, or belongs to the "
        "launcher.",
        signs=(
            Sign(
                "error: unrecognized arguments",
                r"^(?:\S*[ ])?(?P<program>[\w./-]+): (?P<detail>error: unrecognized arguments: [^\n]{1,160})$",
            ),
            Sign(
                "error: the following arguments",
                r"^(?:\S*[ ])?(?P<program>[\w./-]+): (?P<detail>error: the following arguments are required: "
                r"[^\n]{1,160})$",
            ),
            Sign(
                "error: argument",
                r"^(?:\S*[ ])?(?P<program>[\w./-]+): (?P<detail>error: argument [^\n]{1,200})$",
            ),
        ),
        causes=("{program} refused its arguments: {detail}",),
        example="train.py refused its arguments: error: unrecognized arguments: --epoch",
        remedies=(Remedy("correct the command: mpijob export JOB prints it as a job file"),),
        confidence=0.9,
        field="command",
        uncaught=True,
    ),
    Rule(
        id="RANK_SIGNAL",
        title="A rank was ended by a signal",
        why="A rank got a signal that it did not handle. SIGABRT is its own doing (an assertion, a C++ "
        "exception), SIGTERM and SIGXCPU come from outside.",
        facts=("rank-signalled", "rank-aborted"),
        causes=("{who} was ended by {signal_name}.",),
        remedies=(
            Remedy("read what the rank said just before: mpijob logs JOB --rank {rank} --tail 50"),
            Remedy("run it again if the signal came from outside: mpijob retry JOB"),
        ),
        confidence=0.75,
        yields_to=("*",),
    ),
    Rule(
        id="RANK_EXIT",
        title="A rank ended with an error code",
        why="A rank ended by itself with a code other than 0, which ends the job. What the code means is "
        "known to the program only; the reason is usually in the rank's last lines.",
        facts=("rank-exited",),
        signs=(
            Sign(
                "Root Cause (first observed",
                r"Root Cause \(first observed failure\): \[\d+\]:[\s\S]{0,200}?rank : (?P<rank>\d+) \(local_rank"
                r"[\s\S]{0,40}?exitcode : (?P<code>\d+)",
            ),
            Sign(
                "non-zero status",
                r"exited with non-zero status, thus causing the job to be terminated[\s\S]{0,200}?"
                r"Process name: \[[^\]\n]*,(?P<rank>\d+)\] Exit code: (?P<code>\d+)",
            ),
        ),
        causes=("{who} exited with code {code}.",),
        remedies=(
            Remedy("read what the rank said just before: mpijob logs JOB --rank {rank} --tail 50"),
            Remedy("check its arguments and the files that it reads"),
        ),
        confidence=0.7,
        yields_to=("*",),
    ),
    Rule(
        id="NO_FINALIZE",
        title="A rank left without telling MPI",
        why="A rank ended with 0 but without MPI_Finalize: an early return, os._exit, or a rank that never "
        "reached MPI_Init while others did.",
        signs=(Sign("exiting improperly", r"exiting improperly\. There are three reasons this could occur"),),
        causes=("{who} ended without MPI_Finalize.",),
        remedies=(Remedy("look for sys.exit, os._exit or a return before the end of the program"),),
        confidence=0.8,
    ),
    Rule(
        id="ROOT_REFUSED",
        title="Open MPI does not run as root",
        why="Open MPI's mpirun refuses to work for the user root unless it is told twice that this is meant.",
        signs=(Sign("attempt to run as root", r"has detected an attempt to run as root"),),
        causes=("Open MPI refused to run as root.",),
        remedies=(
            Remedy("run as an ordinary user"),
            Remedy(
                "allow it for this job",
                {"env": {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}},
            ),
        ),
        confidence=0.95,
        trust=Trust.CAUSE,
    ),
)
