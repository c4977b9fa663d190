"""How launchers, shells and kubelets tell that a process was ended by a signal: one table for all of them.

Open MPI (ORTE, PRRTE), Hydra (MPICH, Intel MPI), torchrun, DeepSpeed, Horovod, Slurm, a shell, Kubernetes and Python's
fault handler each write the same fact in their own way: as -N, as 128 + N, by name, or by number.
"""

from __future__ import annotations

from mpijob.diagnosis.rule import Sign

NAMES = {  # number → name, and as the C library says it
    4: ("SIGILL", "Illegal instruction"),
    6: ("SIGABRT", "Aborted"),
    7: ("SIGBUS", "Bus error"),
    8: ("SIGFPE", "Floating[ -]point exception"),
    9: ("SIGKILL", "Killed"),
    11: ("SIGSEGV", "Segmentation fault"),
    15: ("SIGTERM", "Terminated"),
}
_FORRTL = {  # how Intel's Fortran run time numbers what ends a program: signal → its own numbers
    4: "168",
    6: "76",
    7: "175",
    8: "65|71|72|73|74|75",
    11: "174",
    15: "78",
}
_ROOT_CAUSE = (
    r"Root Cause \(first observed failure\): \[\d+\]:[\s\S]{0,200}?"
    r"rank : (?P<rank>\d+) \(local_rank[\s\S]{0,40}?"
)


def ended_by(number: int) -> tuple[Sign, ...]:
    """Return what is written of a process that a signal ended, by whoever started it."""
    name, words = NAMES[number]
    return (*_by_mpi(number), *_by_frameworks(number), *_by_systems(number, name, words), *_by_forrtl(number))


def exited_with(code: str) -> tuple[Sign, ...]:
    """Return what is written of a process that ended by itself with a code; it is named in the group `code`."""
    return (
        Sign("Root Cause (first observed", _ROOT_CAUSE + rf"exitcode : (?P<code>{code})\b"),
        Sign(
            "non-zero status",
            r"exited with non-zero status, thus causing the job to be terminated[\s\S]{0,200}?"
            rf"Process name: \[[^\n]*,(?P<rank>\d+)\] Exit code: (?P<code>{code})\b",
        ),
        Sign(
            "Exited with exit code",
            rf"srun: error: (?P<host>\S+): tasks? (?P<rank>\d+)[\d,-]*: Exited with exit code (?P<code>{code})\b",
        ),
        Sign(
            "BAD TERMINATION",
            r"BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES = (?:RANK (?P<rank>\d+) )?PID \d+ RUNNING AT "
            rf"(?P<host>\S+) = (?:EXIT CODE|EXIT STATUS): "
            rf"(?P<code>(?!(?:4|6|7|8|9|11|15)\b){code})\b(?![\s\S]{{0,300}}EXIT STRING)",
        ),
        Sign(
            "failed (exitcode:",
            rf"failed \(exitcode: (?P<code>{code})\) local_rank: (?P<rank>\d+) \(pid: \d+\)",
        ),
        Sign("exits with return code", rf"exits with return code = (?P<code>{code})\b"),
        Sign("with status code", rf"Process (?P<rank>\d+) exit with status code (?P<code>{code})\b"),
    )


def _by_mpi(number: int) -> tuple[Sign, ...]:
    return (
        Sign(
            "exit status of rank", rf"exit status of rank (?P<rank>\d+): killed by signal {number}\b"
        ),  # MPD
        Sign(
            "noticed that process rank",
            r"noticed that process rank (?P<rank>\d+)(?: with PID \d+ on node (?P<host>\S+)|[\s\S]{0,80}?) "
            rf"exited on signal {number}\b",
        ),
        Sign(
            # Hydra joins the statuses of all ranks in EXIT STRING by OR; EXIT CODE is one rank's, and 9 that of ranks
            # which it ended itself.
            "EXIT STRING",
            rf"EXIT CODE: (?:9\b[\s\S]{{0,300}}?EXIT STRING: [^\n(]{{1,40}}\(signal {number}\)"
            rf"|(?!9\b){number}\b[\s\S]{{0,300}}?EXIT STRING: [^\n(]{{1,40}}\(signal \d+\))",
            weak=number == 9,
        ),
        Sign(
            "EXIT STRING",  # without the line of the frame that names the EXIT CODE
            rf"(?:(?:^(?!=)[^\n]*\n|\A)(?:=(?!\s+EXIT CODE)[^\n]*\n){{1,6}}={{20,}}\n|"
            rf"(?<!===\n))YOUR APPLICATION TERMINATED WITH THE EXIT STRING: [^\n"
            rf"(]{{1,40}}\(signal {number}\)",
            weak=number == 9,
        ),
        Sign(
            "BAD TERMINATION",  # without its end, which names a signal: Hydra has no such frame for a plain exit code
            r"BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES = (?:PID \d+ RUNNING AT (?P<host>\S+) = )?"
            rf"EXIT CODE: {number}\b(?![\s\S]{{0,300}}EXIT STRING)",
            weak=number == 9,
        ),
        Sign(
            "BAD TERMINATION",  # of a shell whose program was ended, as 128 + N
            r"BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES = (?:(?:RANK (?P<rank>\d+) )?PID \d+ RUNNING AT "
            rf"(?P<host>\S+) = )?(?:EXIT CODE|EXIT STATUS): {128 + number}\b",
        ),
    )


def _by_frameworks(number: int) -> tuple[Sign, ...]:
    return (
        Sign("Root Cause (first observed", _ROOT_CAUSE + rf"exitcode : (?:-{number}|{128 + number})\b"),
        Sign(
            "failed (exitcode:",
            rf"failed \(exitcode: (?:-{number}|{128 + number})\) local_rank: (?P<rank>\d+) \(pid: \d+\)",
        ),
        Sign("exits with return code", rf"exits with return code = (?:-{number}|{128 + number})\b"),
        Sign("with status code", rf"Process (?P<rank>\d+) exit with status code {128 + number}\b"),
    )


def _by_systems(number: int, name: str, words: str) -> tuple[Sign, ...]:
    literal = words.partition("[")[0]
    return (
        Sign(literal, rf"srun: error: (?P<host>\S+): tasks? (?P<rank>\d+)[\d,-]*: {words}"),
        Sign(  # not of what starts workers and launchers
            literal,
            rf"^(?:\S+[ ])?\S+: line \d+: \d+ {words}\b(?! (?:unshare|\"\$@\"|\S*ssh|\S*orted|\S*prted|\S*hydra))",
        ),
        Sign("exit code", rf"(?:terminated with |[Ff]ailed with |, |\()exit code:? {128 + number}\b"),
        Sign("Caught signal number", rf"\[(?P<rank>\d+)\]PETSC ERROR: Caught signal number {number} "),
        Sign("exitCode", rf"\"?exitCode\"?: ?{128 + number}\b"),
        Sign("Exit Code:", rf"^[ ]*Exit Code: {128 + number}$"),
    )


def _by_forrtl(number: int) -> tuple[Sign, ...]:
    numbers = _FORRTL.get(number)
    return (Sign("forrtl: ", rf"forrtl: (?:severe|error) \((?:{numbers})\): "),) if numbers else ()


def crashed(number: int) -> tuple[Sign, ...]:
    """Return what is written of a process that crashed, by whoever started it and by the process itself."""
    name, words = NAMES[number]
    literal = words.partition("[")[0]
    return (
        Sign(
            "KILLED BY SIGNAL",
            rf"RANK (?P<rank>\d+) PID \d+ RUNNING AT (?P<host>\S+) = KILLED BY SIGNAL: {number}\b",
        ),
        Sign(literal, rf"\[(?P<host>[\w.-]+):\d+\] Signal: {words} \({number}\)"),
        Sign(
            "Fatal Python error",  # with the first frame of its stack
            rf"Fatal Python error: {words}(?:\n[^\n]*){{1,3}}?\n[ ]+File[ ]\"(?P<file>[^\"\n]+)\", "
            rf"line (?P<line>\d+)[^\n]*",
        ),
        Sign(literal, rf"^(?:Fatal Python error: )?{words}(?: \(core dumped\))?$"),
        Sign("Fatal Python error", rf"Fatal Python error: {words}"),
        Sign("Caught signal", rf"Caught signal {number} \("),
        *((Sign("egmentation ", r"[Ss]egmentation [Vv]iolation\b"),) if number == 11 else ()),
        Sign("received signal", rf"[Pp]rogram received signal {name}\b[^\n]*\n?[^\n]{{0,300}}"),
        Sign(name, rf"Signal {number} \({name}\) received by PID"),
        *ended_by(number),
    )
