"""Causes in the user's own program: how it ends."""

from __future__ import annotations

from mpijob.diagnosis.rule import Remedy, Rule, Sign, Trust
from mpijob.diagnosis.rules.launcher_reports import exited_with
from mpijob.diagnosis.rules.program.start import SAID_BY_PYTHON, WITH_MPI4PY

_NOT_LOST = (  # what follows from another rank's end, or is told by a rule of its own
    r"(?![^\n]{0,400}(?:Connection (?:closed|reset) by peer|ChildFailedError|SignalException|HorovodInternalError"
    r"|Horovod has been shut down"
    r"|collective operation timeout|CalledProcessError: Command [^\n]{0,2000}died with <Signals\.SIGKILL"
    r"|CalledProcessError: Command [^\n]{0,200}(?:local_rank"
    r"|torch\.distributed|deepspeed)))"
    r"(?!KeyboardInterrupt\s[\s\S]{0,9000}?got signal: )"  # torchrun passes it on
)
_TRACEBACK = (  # whatever is indented, then the exception, with the next line where it only announces one
    r"Traceback \(most recent call last\):\s*\n(?:(?:\S+[ ])?[ \t]+[^\n]*\n)*+(?:(?![A-Za-z_][\w.]*: )\S+[ ])?"
    + _NOT_LOST
    + r"(?P<error>[A-Za-z_][\w.]*(?::[ ][^\n]{0,300}(?:(?<=:)\n[^\n]{1,200})?|$))"
)

RULES = (
    Rule(
        id="MPI_ABORT",
        title="The program called MPI_Abort",
        why="A rank called MPI_Abort, which ends all ranks. Programs do so when they detect an error; "
        "the reason is in the lines that the rank printed just before. python -m mpi4py calls it "
        "after an uncaught exception.",
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
            Sign(
                "application called MPI_Abort(",
                r"^(?:\S+[ ])?application called MPI_Abort\([^,\n]{1,40}, (?P<code>-?\d+)\) - process (?P<rank>\d+)",
            ),
        ),
        causes=("{who} called MPI_Abort with code {code}.",),
        remedies=(
            Remedy("read the rank's last lines: mpijob logs JOB --rank {rank} --tail 50"),
            Remedy("read the last lines: mpijob logs JOB --tail 50"),
        ),
        only_how=True,
        confidence=0.9,
        yields_to=("PYTHON_EXCEPTION", "MPI_CALL_ERROR", "UNCAUGHT_ERROR", "PROGRAM_ERROR", *SAID_BY_PYTHON),
    ),
    Rule(
        id="PYTHON_EXCEPTION",
        title="A Python exception was not caught",
        why="A rank ended with an exception, which ends the job. Under a plain mpirun the other ranks "
        "may wait for it forever, because it never reaches MPI_Finalize.",
        signs=(
            Sign("Traceback", r"^(?:\S*[ ])?" + _TRACEBACK),
            Sign(  # what was raised last of a chain
                "above exception",
                r"(?:(?P<cause>[A-Za-z_][\w.]*: [^\n]{1,200})\n\s*)?(?:\S*[ ])?"
                r"(?P<chained>The above exception was the direct cause of|During handling of the above "
                r"exception)[^\n]*\s+"
                r"(?:\S*[ ])?" + _TRACEBACK + r"(?![\s\S]{0,9000}?(?:direct cause of|handling of the above))",
            ),
            Sign(
                "Exception Group Traceback",
                r"Exception Group Traceback[\s\S]{0,4000}?\| (?P<error>[\w.]*ExceptionGroup:[ ][^\n]{1,200})"
                r"(?:\n[^\n]*\n\s*\| (?P<chained>[\w.]+:[ ][^\n]{1,200}))?",
            ),
            Sign("Original Traceback", r"(?P<chained>Original )" + _TRACEBACK),  # of a data loader's process
            Sign(  # of the file itself, without a traceback
                "Error: ",
                r"^(?:\S*[ ])?[ ]+File \"[^\"\n]+\", line \d+\n(?:[^\n]*\n){1,3}?(?:\S*[ ])?"
                r"(?P<error>(?:Syntax|Indentation|Tab)Error:[ ][^\n]{1,300})",
            ),
            Sign(  # in a box of rich, whose last lines follow it
                "Traceback (most recent call last) ─",
                r"Traceback \(most recent call last\) ─[\s\S]{0,9000}?╰─+╯\s*\n(?:\S*[ ])?(?P<error>[A-Za-z_][\w.]*:[ ]"
                r"[^\n]{1,300})",
            ),
            Sign(  # the last line alone
                "Error: ",
                r"^(?:\[\w ]{1,12}\]:?[ ]|\S+ \|[ ])?"
                + _NOT_LOST
                + r"(?P<error>[A-Za-z_]\w*(?:\.\w+)*Error:[ ][^\n]{1,300})$(?!\n[ ]+at )",  # Node.js: at
            ),
        ),
        causes=(
            "{who} failed with an exception: {error}; it was caused by {cause}",
            "{who} failed with an exception: {error}",
        ),
        remedies=(
            Remedy("fix what the exception names; the traceback shows where it was raised"),
            WITH_MPI4PY,
        ),
        confidence=0.85,
        uncaught=True,
        yields_to=(*SAID_BY_PYTHON, "COLLECTIVE_MISMATCH", "COLLECTIVE_TIMEOUT", "MAIN_GUARD"),
    ),
    Rule(
        id="BAD_ARGUMENTS",
        title="The program rejects its arguments",
        why="The program parsed its command line and rejected it: an option is misspelt, missing, or "
        "belongs to the launcher.",
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
                "nrecognized argument",
                r"^(?:\S+[ ])?(?P<detail>[Uu]nrecognized arguments?:? --?\S[^\n]{0,120})$",
            ),
            Sign("No such option", r"(?P<detail>(?:Error: )?No such option:? [^\n│]{1,120})"),
            Sign("Error: unknown ", r"(?P<detail>Error: unknown (?:shorthand )?flag: [^\n]{1,120})"),
            Sign(
                "Could not override",  # hydra
                r"(?P<detail>Could not override '[^'\n]{1,120}'\.)(?:[^\n]*\n){1,3}?(?=Key '|No match)",
            ),
            Sign("Error: Invalid value", r"(?P<detail>Error: Invalid value[^\n]{1,160})"),
            Sign(
                "Error: Missing",
                r"(?P<detail>Error: (?:Missing (?:option|argument|parameter)|Invalid value)[^\n]{1,160})",
            ),
            Sign(
                "nrecognized option",
                r"^(?:\S*[ ])?(?P<program>[\w./-]+): (?P<detail>unrecognized option [^\n]{1,80})",
            ),
            Sign("bad option:", r"^(?:\S*[ ])?(?P<program>[\w./-]+): (?P<detail>bad option: [^\n]{1,80})$"),
            Sign(
                "invalid option --",
                r"^(?:\S*[ ])?(?P<program>[\w./-]+): (?P<detail>invalid option -- [^\n]{1,80})",
            ),
            Sign(
                "error: argument",
                r"^(?:\S*[ ])?(?P<program>[\w./-]+): (?P<detail>error: argument [^\n]{1,200})$",
            ),
        ),
        causes=("{program} rejects its arguments: {detail}", "The program rejects its arguments: {detail}"),
        example="train.py rejects its arguments: error: unrecognized arguments: --epoch",
        remedies=(Remedy("correct the command: mpijob export JOB prints it as a job file"),),
        confidence=0.9,
        field="command",
        uncaught=True,
        yields_to=("BAD_LAUNCH_OPTION",),
    ),
    Rule(
        id="SHELL_ERROR",
        title="A shell script of the job failed",
        why="A script of the job has an error, or uses a variable that is not set where it runs. The "
        "ranks do not inherit the variables of your shell unless the job sets them.",
        signs=(
            Sign(
                "cd: ",
                r"(?P<script>[^\s:]+): (?:line )?(?P<line>\d+): (?P<error>cd: [^\n]{1,160}: No such file or directory)",
            ),
            Sign(
                "unbound variable",
                r"(?P<script>[^\s:]+): (?:line )?(?P<line>\d+): (?P<error>(?P<variable>\w+): unbound variable)",
            ),
            Sign(
                "parameter not set",
                r"(?P<script>[^\s:]+): (?:line )?(?P<line>\d+): (?P<error>(?P<variable>\w+): parameter not set)",
            ),
            Sign(
                "syntax error",
                r"(?P<script>[^\s:]+): (?:line )?(?P<line>\d+): (?P<error>(?:syntax error|unexpected EOF)[^\n]{0,120})",
            ),
            Sign(
                "unexpected EOF",
                r"(?P<script>[^\s:]+): (?:line )?(?P<line>\d+): (?P<error>unexpected EOF[^\n]{0,120})",
            ),
            Sign("yntax error", r"(?P<script>[^\s:]+): (?P<line>\d+): (?P<error>Syntax error: [^\n]{1,120})"),
            Sign(  # lines of a script from Windows: the carriage return belongs to the last word
                "\r",
                r"^(?:\S+[ ])?(?P<script>[^\s:]+): (?:line )?(?P<line>\d+): "
                r"(?P<error>[^\n]{0,160}(?:\r|\\r)[^\n]{0,100})(?P<from_windows>)",
            ),
            Sign(
                "\\r'",
                r"^(?:\S+[ ])?(?P<script>[^\s:]+): (?:line )?(?P<line>\d+): "
                r"(?P<error>[^\n]{0,160}\$?'[^'\n]{0,80}\\r'[^\n]{0,100})(?P<from_windows>)",
            ),
            Sign(  # of the C shell, for what only other shells know
                ": Command not found.",
                r"^(?:\S+[ ])?(?P<of_bash>export|source|declare|local|shopt|unset|function|trap|type|\w+=\S*"
                r"|\[\[): Command not found\.$",
            ),
            Sign(
                "ndefined variable",
                r"^(?:\S+[ ])?(?P<unset>\w+): Undefined variable\.$",
            ),
            Sign(
                "rgument list too long",
                r"(?P<script>[^\s:]+): (?:line )?(?P<line>\d+): "
                r"(?P<error>[^\n]{1,120}: (?P<too_long>Argument list too long))",
            ),
        ),
        causes=(
            "{script} has Windows line endings: the shell reads each carriage return (\\r) as a part of the "
            "last word of its line. Line {line}: {error}{from_windows:.0}",
            "Line {line} of {script} failed: {error}.",
            "The script is run by a C shell, which has no {of_bash}: its commands are those of bash.",
            "The script uses the variable {unset}, which is not set (C shell).",
        ),
        example="Line 2 of rank.sh failed: DATA_DIR: unbound variable.",
        remedies=(
            Remedy("remove the carriage returns: sed -i 's/\\r$//' {script}{from_windows:.0}"),
            Remedy(
                "run the script with bash: start it with the line #!/bin/bash, or put bash before it "
                "in the command{of_bash:.0}"
            ),
            Remedy("set the variable in the job: env.{unset}"),
            Remedy("pass fewer arguments: use a pattern, a file with the list, or xargs{too_long:.0}"),
            Remedy("set the variable in the job: env.{variable}"),
            Remedy("correct the script; bash -n SCRIPT checks its syntax"),
        ),
        confidence=0.85,
        field="command",
        yields_to=("PYTHON_EXCEPTION",),
    ),
    Rule(
        id="RANK_EXIT",
        title="A rank exited with an error code",
        why="A rank exited with a code other than 0, which ends the job. The program "
        "defines what the code means; the reason is usually in the rank's last log lines.",
        facts=("rank-exited",),
        signs=exited_with(r"(?!(?:132|134|135|136|137|139|143)\b)[1-9]\d*"),
        causes=("{who} exited with code {code}.",),
        remedies=(
            Remedy("read the rank's last lines: mpijob logs JOB --rank {rank} --tail 50"),
            Remedy("check its arguments and the files that it reads"),
        ),
        only_how=True,
        confidence=0.7,
        yields_to=("*", "RANK_SIGNAL"),
    ),
    Rule(
        id="NO_FINALIZE",
        title="A rank exited without MPI_Finalize",
        why="A rank ended with 0 but without MPI_Finalize: an early return, os._exit, or a rank that "
        "never reached MPI_Init although others did.",
        signs=(
            Sign(
                "improperly. There are",
                r"(?:process rank (?P<rank>\d+) with PID \d+ on "
                r"(?:node )?\S+ )?exiting improperly\. There are (?:two|three) "
                r"reasons this could occur",
            ),
        ),
        causes=("{who} exited without MPI_Finalize.",),
        remedies=(Remedy("look for sys.exit, os._exit or a return before the end of the program"),),
        confidence=0.8,
    ),
    Rule(
        id="ROOT_REFUSED",
        title="Open MPI does not run as root",
        why="Open MPI's mpirun refuses to run as root unless two environment variables allow it.",
        signs=(Sign("attempt to run as root", r"has detected an attempt to run as root"),),
        causes=("Open MPI refused to run as root.",),
        remedies=(
            Remedy(
                "allow it for this job",
                {"env": {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}},
            ),
            Remedy("run as an ordinary user"),
        ),
        confidence=0.95,
        trust=Trust.CAUSE,
    ),
)
