"""How error lines look, whatever wrote them: log levels, exceptions, compilers, system calls, sentences of failure.

A line gets points for its form and its words, and loses points for words of warnings, of progress and of help. What
launchers write after any failure names no cause and gets none. `telling_line` chooses among the lines of a log.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

STRONG = 4.0  # points from which a line is taken for the program's own report of an error
EXPLICIT = 6.0  # points from which a line calls itself an error
COMPLAINT = 5.1  # points from which one of the first is a sentence of failure that names a value
ABNORMAL = 2.5  # points from which a line looks wrong at all
LITERALS = (
    *("ERROR", "Error", "error:", "FATAL", "Fatal", "fatal", "Exception", "CRITICAL", "critical", "panic"),
    *("failed", "Failed", "annot ", "nable to ", "not found", "bort"),
)
_CACHED = 4096
_DIGITS = bytes.maketrans(b"23456789", b"11777777")
_MORE = 0.4  # of the points of each further form that a line has
_TAGS = rb"^\W{0,8}(?:\S{1,40}[ \t]+){0,4}?"  # a time, a host, a logger, a rank
_FORMS = (
    (
        6.0,
        re.compile(
            rb"\bFATAL\b|\b[Ff]atal(?: |: |[ -][Ee]rror|[ -][Ii][Oo]\b)|\bPANIC\b|\bpanic(?:ked at |: )"
        ),
    ),
    (6.0, re.compile(rb"^\W{0,8}(?:\S{1,40} ){0,2}?\[?(?:ERROR|Error|error)\b\]?[:! ]")),
    (  # a log level behind a time and a name; as a field; as one letter
        6.0,
        re.compile(
            _TAGS + rb"[\[<(|]?(?:ERROR|CRITICAL|SEVERE|EMERG|ALERT|CRIT|ERR|error|critical)\s*[\])>|:]"
            rb"|" + _TAGS + rb"(?:ERROR|CRITICAL|SEVERE) "
            rb"|\b(?:level|severity|lvl)\"?\s*[=:]\s*\"?(?i:error|fatal|critical|panic|severe)\b"
            rb"|^[EF]\d{4} \d\d:\d\d:\d\d|^\S{0,30} ?\[[EF](?:\]|::\w+\]) ?|^[\d:.T-]{5,30}\s+[EF]\s|^<[0-3]>"
        ),
    ),
    (  # Error in X: …, X error: …, X: error: …, and the error of a file and line
        6.0,
        re.compile(
            rb"^\W{0,8}(?:[\w.+/-]{1,60} ){0,3}(?:[Ee]rror|ERROR) (?:in|at|on|while|during|opening|reading|from|"
            rb"when|near) \S"
            rb"|^\W{0,4}(?:[\w.+/()-]{1,60} ){0,3}[Ee]rror(?: \(?\w+\)?)?(?:[:!] |:$)"
            rb"|^\S{1,200}(?:: |\(\d+\): ?)(?:fatal |internal |runtime |syntax )?error(?: \w+)?: "
        ),
    ),
    (  # an exception of any language: Name: text, Name(text), text (Name)
        6.0,
        re.compile(
            rb"^\W{0,4}(?:[\w.\[\]-]{1,60}: )?[A-Za-z_][\w.:$/]{0,100}(?:Error|Exception|Fault|Failure|Interrupt|Exit|"
            rb"error|exception)\b(?:: ?|\(|\s*$)"
            rb"|^\W{0,4}(?:[a-z_]\w{0,60}\.){1,8}[A-Z]\w{2,60}: "
            rb"|\b(?:Caused by|Uncaught|Unhandled|uncaught exception)\b|^\W{0,4}Exception in\b|\braised exception\b"
            rb"|^\W{0,8}(?:[\w.\[\]-]{1,60}:? ){0,3}?(?i:exception): \S"
            rb"|\([A-Z]\w*(?:::\w+)*(?:Error|Exception)\)$"
        ),
    ),
    (4.0, re.compile(rb"\b(?:ERROR|Error|error)\b|\b[A-Z]\w{2,60}(?:Error|Exception)\b")),
    (
        4.0,
        re.compile(
            rb"(?i)\b(?:panic|assert(?:ion)?\b.{0,200}\bfail(?:ed|ure)|terminate called|core dumped|stack smashing|"
            rb"double free|check failed|buffer overflow)\b"
        ),
    ),
    (  # program: cannot …
        4.0,
        re.compile(
            rb"(?i)^(?:[\w.+/-]{1,60}(?:\[\d+\])?: +){1,2}(?:\S+ ){0,5}?(?:fail(?:ed|ure)|cannot|can't|could not|unable"
            rb"|no such|no rule|not found|unrecogni[sz]ed|unknown|invalid|illegal|missing|unbound|undefined|giving up"
            rb"|unterminated|unexpected|does not|do not|did not|is not|are not|was not|were not|has no|have no|must)\b"
        ),
    ),
    (  # what failed: why
        4.0,
        re.compile(rb"(?i)^\W{0,8}(?:[\w./'\"-]{1,60} ){1,8}?(?:failed|failure|refused|denied)(?:: +| \()\S"),
    ),
    (  # a complaint with the place in a source or input: x.pl line 3., "x.gp" line 2: …, x.lua:3: …
        4.0,
        re.compile(
            rb" at \S+ line \d+\.?$|^\W{0,2}[^\s\"]{1,200}\"?,? line \d+[:,] "
            rb"|^(?:[\w./+-]{1,60}: )?[^\s:]{1,200}\.\w{1,5}:\d+(?::\d+)?: \S"
        ),
    ),
    (  # cannot …, as the first thing in a line
        4.0,
        re.compile(
            rb"^\W{0,4}(?:[Cc]ould not|[Cc]an ?not|[Cc]an't|[Uu]nable to|[Ff]ailed to|[Nn]o such|Invalid|Unknown"
            rb"|Missing|Illegal|Unrecogni[sz]ed|Unsupported|Undefined)\b"
        ),
    ),
    (
        3.0,
        re.compile(
            rb"(?i)\b(?:fail(?:ed|ure|s)?|cannot|can't|can not|could(?: not|n't)|unable to|not found|no "
            rb"such|denied|refused|rejected|attempt to|did not|doesn't|don't|won't|"
            rb"invalid|illegal|unknown|unrecogni[sz]ed|unsupported|undefined|undeclared|unexpected|unterminated|unbound|missing|"
            rb"exceed(?:s|ed)?|out of (?:memory|range|bounds|space|disk)|overflow|underflow|mismatch(?:ed)?|"
            rb"corrupt(?:ed)?|truncated|damaged|malformed|ambiguous|duplicate|conflict(?:s|ing)?|"
            rb"not (?:supported|permitted|allowed|available|installed|valid|defined|set|enough|a valid|complete|"
            rb"mounted|readable|writable|recogni[sz]ed|initiali[sz]ed|an?\b|in\b)|"
            rb"singular|diverge[sd]?|diverging|negative (?:volume|density|pressure)|nan|does not (?:exist|match|fit)|"
            rb"do not (?:exist|match|fit)|is empty|inconsistent|incompatible|nonconformant|impossible|"
            rb"must (?:be|not|have)|violat(?:ed|ion)|expected|lost atoms|no (?:rule|space|data|input|module|package)"
            rb"|no \w+ match(?:es|ed)?)\b"
        ),
    ),
    (  # as strerror writes it, at the end of a line
        4.0,
        re.compile(
            rb"(?i): (?:No such file or directory|Permission denied|Is a directory|Not a directory|Connection refused"
            rb"|No space left on device|Read-only file system|Input/output error|Bad file descriptor|File exists"
            rb"|Operation not permitted|Device or resource busy|Resource temporarily unavailable|Connection timed out"
            rb"|Cannot allocate memory|Invalid argument|Broken pipe|Text file busy|Stale file handle)[.)]?$"
        ),
    ),
    (
        2.0,
        re.compile(
            rb"(?i)\b(?:killed|timed out|timeout|time-out|lost|broken|too (?:many|large|small|long|few|big))\b"
        ),
    ),
    (  # what is needed, and what there is: needs level 3, the library gives 0
        3.0,
        re.compile(
            rb"(?i)\b(?:needs?|requires?|required|requested|expects?|announced)\b.{1,80}"
            rb"\b(?:but|gives?|gave|has|have|provides?|got|found|only)\b.{0,40}\d"
            rb"|\b(?:gives?|has|have|provides?|got|found)\b.{1,80}\bbut\b.{1,60}\b(?:required|needed|expected|requested)\b"
        ),
    ),
    (
        4.0,
        re.compile(
            rb"(?i)\b(?:did|could|does|has|is)? ?not converged?\b|\bno convergence\b|convergence not achieved"
        ),
    ),
    (2.0, re.compile(rb"^[\w.+/-]{1,40}(?:\[\d+\])?: [a-z]\w* \w+ \w+[^:=]*$")),  # program: a sentence
    (
        2.0,
        re.compile(
            rb"(?i)\b(?:(?:is|are|was|were|does|do) not(?! (?:set|defined|available|found|exist|match|fit|enough"
            rb"|allowed|supported|permitted|installed|valid))|(?:has|have|had) no|no longer)\b"
        ),
    ),
    (1.0, re.compile(rb"(?i)\b(?:abort(?:ed|ing)?|exception|stopp(?:ed|ing)|exit(?:ed|ing)?)\b")),
    (0.5, re.compile(rb"['\"`][^'\"`]+['\"`]|/[\w.-]+/|>[^<>]+<|[\w-]\.[a-z]\w{1,5}\b|= ?-?\d|\d")),
)
_HARMLESS_STEP = re.compile(  # what Slurm fails to clean up, after a step has ended
    rb"^slurmstepd\S*: error: (?:task_g_|[\w/]+_p_|spank|plugin|mpi/|acct_gather|jobacct|_?x?cgroup|unlink|rmdir|umount"
    rb"|[Uu]nable to (?:destroy|remove|unlink|kill)|[Ff]ailed to (?:destroy|remove|unlink))"
)
_OF_SHELL = re.compile(rb": (?:line )?\d+: [^\s:]+: (?:command )?not found$")  # the shell continues after it
_WARNING = re.compile(
    rb"(?i)^(?:\S+ ){0,6}?\W?warn(?:ing|ings)?\b|^\S{0,30} ?\[W[\]\d :]|^W\d{4} |^W\w{0,3}\[|warning: "
)
_HANDLED = re.compile(
    rb"(?i)\bretry(?:ing)?\b(?! count)|\brecovered\b|\bignor(?:ed|ing)\b|\bskipp(?:ed|ing)\b|\bfall(?:ing|s)? ?back\b"
    rb"|\bgoing on\b|\bcontinuing\b|\b(?:using|taking) (?:the |a )?(?:cpu|defaults?|local|cached)\b|\bas it should\b"
    rb"|\binstead$|\bstarting from (?:rest|scratch|zero|the beginning)\b|\bcold start\b"
)
_EVENT = re.compile(rb"\bWarning\s{2,}[A-Z]\w+\s")
_RESULT = re.compile(
    rb"^(?!Last command|.*--)[A-Za-z][\w ,()/:-]{0,60}[\w)](?:[:=|,]| [=:]?) ?"
    rb"[-+]?\d[\d.,]*(?:[eE][-+]?\d+)? ?%?$"
)
_INNOCENT = (
    (9.0, re.compile(rb"^[\w.]+\([\w./:]*\d+\)\.*:(?: P?MPI_\w+\(.{0,400}\) failed)?\s*$")),  # MPICH's stack
    (9.0, re.compile(rb"help message help-|to see all help / error messages")),
    (4.0, re.compile(rb"^\[(?:mpiexec|proxy)\S*@")),  # Hydra's own functions, after any failure
    (5.0, _OF_SHELL),
    (9.0, _HARMLESS_STEP),
    (9.0, re.compile(rb"^(?:\S+ )?(?:libgomp: Invalid value for environment variable|OMP: Warning #)")),
    (
        7.0,
        re.compile(rb"^object (?:address|refcount|type|type name|repr) *: |^lost sys\.std"),
    ),  # Python's, at its end
    (5.0, _WARNING),
    (5.0, re.compile(rb"^\s+warnings\.warn\(")),
    (4.0, re.compile(rb"\b(?:INFO|DEBUG|TRACE|NOTE|Note|note|HINT|Hint)\b|^\s*(?:hint|see|try|use)\b")),
    (
        4.0,
        re.compile(
            rb"\[(?:info|debug|notice)\s*\]|\blevel=(?:info|debug|warn)|\"level\": ?\"(?:info|debug|warn)"
        ),
    ),
    (
        6.0,
        re.compile(
            rb"(?i)\b(?:0|no|zero|without(?: any)?) (?:errors?|failures?|failed|warnings?)\b|\b(?:errors?"
            rb"|failed|failures)[ =:]+0\b"
            rb"|\berror[ :=]{1,3}[-+]?\d+\.\d+e[-+]\d"
            rb"|\berror (?:rate|norm|estimate|bound|tolerance|bars?|handler|handling)|\bretry(?:ing)?\b"
            rb"|\bignor(?:e|ed|ing)\b"
            rb"|\bdefaulting to\b|\busing (?:the )?(?:built-in )?defaults?\b|\bfall(?:ing|s)? ?back\b"
            rb"|\brecovered\b|\berrors? (?:is |are )?(?:within|below|under|less than)\b|\bnot (?:reached|triggered)\b"
            rb"|\bas expected\b|\bexpected failures?\b"
            rb"|\bdeprecated\b|non-fatal|\bharmless\b|\bresidual error\b|\bmean (?:squared"
            rb"|absolute) error\b"
        ),
    ),
    (
        3.0,
        re.compile(
            rb"^\s*(?:File \"|at |in |#\d+ |\^|~|\||\+-|from )|^\s*raise |^Traceback|^\s*\[\d+\] /|^\s*\d+: "
        ),
    ),
    (
        2.0,
        re.compile(
            rb"(?i)\b(?:please|you (?:can|should)|this (?:may|can|usually|could)|for more|consider|e\.g\.)\b"
        ),
    ),
)
_ANY_FAILURE = re.compile(  # what is said after any failure, by whoever started the program
    rb"MPI_ABORT was invoked|MPI_Abort\b|Proc: \[|[Ee]rrorcode|errors? ?code[: ]|NOTE: invoking MPI_ABORT"
    rb"|You may or may not see"
    rb"|exactly when Open MPI kills|Primary job\s+terminated|non-zero (?:status|exit)|job (?:to be|has been"
    rb"|will now) (?:terminated|abort)"
    rb"|Process name:|Exit code:|BAD TERMINATION|EXIT (?:CODE|STRING|STATUS)|CLEANING UP|CLEANUP MESSAGES|RUNNING AT"
    rb"|KILLED BY SIGNAL|exited on signal|exitcode|error_file|traceback : |ChildFailedError|Root Cause"
    rb"|SignalException|^KeyboardInterrupt|^Error termination|^(?:ERROR )?STOP [1-9]\d*$"
    rb"|[Ss]ending process"
    rb"|Exited with exit code|srun: (?:Job step aborted|forcing|Force|launch/slurm: _step_signal|error: \S+: tasks? )"
    rb"|slurmstepd\S*: error: "
    rb"\*\*\*|Terminated$|^Killed$"
    rb"|(?i:\b(?:exit(?:s|ed)?|finished|ended|failed|stopped|returned|terminated) with (?:an? )?"
    rb"(?:return |exit |error )?"
    rb"(?:code|status)(?![ :=]*0\b))|[Ee]xecution halted|application called MPI_Abort"
    rb"|^Failures:|<NO_OTHER_FAILURES>|^Root Cause \(first observed|^\[\]:?$|\.py FAILED$|ChildFailedError"
    rb"|^ *(?:time|host|rank|exitcode|error_file|traceback) +: |Signal \d* ?\(SIG[A-Z]+\) received by PID"
    rb"|Per user-direction|thus causing|Abort is in progress|The first process to do so|(?:mpirun|prterun"
    rb"|mpiexec)\S* has exited|MPI processes|local "
    rb"abort before MPI_INIT"
    rb"|Killing subprocess|subprocess\.CalledProcessError|[Cc]ommand exited"
    rb"|[Cc]hild returned status|exit status (?!0\b)\d|make(?:\[\d\])?: "
    rb"\*\*\* (?:\[|Waiting)|cleaning up"
    rb"|Fatal error in P?MPI_Abort|^\W*\*{3,}\W*$|^\[[\w.-]+:\d+\] \*{3}"
    rb"|MPI_ERRORS_ARE_FATAL|potentially your MPI job|HYD\w*_|PMIx?_Abort"
    rb"|prterun (?:noticed|detected)"
    rb"|Abort\(\d+\)(?: on node|: )|Fatal error in (?:internal_|P?MPI_)|^\S+\.py FAILED|Connection (?:reset"
    rb"|closed) by peer|ncclRemoteError|(?:ORTE|PRTE)_ERROR_LOG|PMIX "
    rb"ERROR: ERROR in file|MPI_INIT failed"
    rb"|[Ee]rror is not recoverable|Downstream from host"
    rb"|PETSC ERROR: *(?:[-\[]|Try option|or (?:see|try)|configure using|to get|Caught signal|$)"
    rb"|internal error has occurred in|error message you will|ld returned \d+ exit|FORCE-TERMINATE"
    rb"|^\s*Error(?: name)?: {2,}|There (?:was|were) \d+ errors?|incomplete, errors occurred"
    rb"|This typically refers to a problem|Please see the FAQ|Process received signal|[Ff]orwarding signal"
    rb"|^-{10,}|^={10,}\W*$|^%{10,}|job aborted|signal \d+ \(|Signal (?:code|:)|^\s*(?:Node|Host|Local host|PID):"
)
_OF_LAUNCHER = re.compile(  # MPI's own lines, and those of what starts ranks
    rb"^\[(?:mpiexec|proxy)\S*@|^\[[\w.-]+:\d{1,7}\] "
    rb"|^(?:\S*/)?(?:mpirun|mpiexec|prterun|prted|orted|srun|sbatch|salloc|slurmstepd|launch_helper)\S*"
    rb"(?:: | \()|^HYD\w+ \(|^MPI startup\(\)|\bUCX +ERROR\b|\b(?:pml|osc|btl|mtl|coll|common)_\w+\.c:\d+"
    rb"|\b(?:ORTE|PRTE|PMIX|OPAL) ERROR\b|\b(?:ORTE|PRTE)_ERROR_LOG\b"
)
_PROGRESS = re.compile(
    rb"(?i)\b(?:info|debug|trace|notice|warn(?:ing)?)\b|Warning: |\d+%\||\d+(?:\.\d+)? ?(?:it"
    rb"|s|steps?|samples?)/(?:s|it)\b"
    rb"|\b(?:step|epoch|iteration|iter|loss|elapsed|eta)\b ?[=:]? ?\d"
)
_OF_ATTEMPT = (
    re.compile(  # of a launcher that can start its ranks again: of the last attempt, it reports more
        rb"torch/distributed/elastic/|\bfailed \(exitcode: -?\d+\) local_rank"
        rb"|[Rr]estarting (?:all |the )?(?:workers?|ranks)"
    )
)
_WORDS = re.compile(rb"(?:^|[\s\"':=,(\[{])[A-Za-z]+(?:$|[\s\"':=,.;!?)\]}])")
_FATAL = re.compile(
    rb"(?i:^\W{0,8}(?:\S{1,60} ){0,3}?\W{0,3}(?:fatal|panic(?:ked)?(?!\()|uncaught|unhandled|terminating)\b)"
    rb"|^==\d+==(?:ABORTING|ERROR: )"  # sanitizers
    rb"|Undefined subroutine &|Can't locate (?:object method|\S+ in @INC)"  # Perl ends a program with these,
    rb"|^\S+:\d+:in .*\([A-Z]\w*(?:Error|Exception)\)$"  # Ruby
    rb"|^\s+while executing$|^=* ?\d+ failed\b.* in \d"  # Tcl, pytest
)
_DETAIL = re.compile(  # stack frames, and what explains an error line before it
    rb"^[\w.]+\([\w./:]*\d+\)\.*:(?: P?MPI_\w+\(.{0,400}\) failed)?\s*$"
    rb"|^[ \t]+\S|^#\d+ |^goroutine \d|^[\w./*()$]+\([^()]*\)$|^created by |^\.{3} \d+ more|^[Ss]tack ?(?:trace|back)"
    rb"|[Bb]acktrace|^[Tt]raceback|^error: called from|^note: |^[Uu]sage\b"
    rb"|^At line \d+ of file|: note: "
    rb"|(?i:^(?:see|try|use|for|to|ensure|make sure|check|set|install|add|consider|please|you) \w)|https?://"
    rb"|(?i:^(?:a|the) (?:full|complete|detailed) (?:log|output|report)\b)|^>{3} .* <{3}$"
    rb"|(?i:^run (?:it|this|with|again|the|[`'\"]|\S+ -))"
    rb"|^.{0,40}\b(?:[Ee]xiting|[Tt]erminat(?:ed|ing)|[Ss]topping|[Qq]uitting|[Hh]alted|[Ee]nd of program)\b"
    rb"|^m?\W{0,3}(?:at|from|in) \S|^\S+:\d+:in |^exit status|^The above exception|^During handling"
    rb"|^During: (?:typing of|Pass |resolving|lowering)|^No implementation of function"
    rb"|^There (?:is|are) \d+ candidate"
    rb"|^error: ignoring const execution_exception"  # Octave
    rb"|^Node\.js v\d|^Require stack:|^- /\S+$|^\d+(?:/\d+)? (?:passed|failed)\b.* in \d"
    rb"|^Last command: |^The failing test"
    rb"|^[^\w\s]*$|^\s*\xe2\x94\x82"
)


def points(text: bytes) -> float:
    """Return how much a line looks like the report of an error."""
    return _points(_numberless(text))


def _numberless(text: bytes) -> bytes:
    """Return a line with fewer kinds of digits: lines that differ in a number only are judged once."""
    return text[:600].translate(_DIGITS)


@lru_cache(maxsize=_CACHED)
def _points(line: bytes) -> float:
    if not line.strip() or _ANY_FAILURE.search(line):
        return 0.0
    gained = [worth for worth, form in _FORMS if form.search(line)]
    if not gained or max(gained) < 1.0:
        return 0.0
    strong = sorted(gained, reverse=True)
    total = strong[0] + _MORE * sum(strong[1:])
    return total - sum(worth for worth, words in _INNOCENT if words.search(line))


def follows_failure(line: bytes) -> bool:
    """Return whether a line is one that launchers and run times write after any failure."""
    return _after_any_failure(_numberless(line)) and bool(line.strip(b"-=*% "))


@lru_cache(maxsize=_CACHED)
def _after_any_failure(line: bytes) -> bool:
    return bool(_ANY_FAILURE.search(line))


def of_launcher(line: bytes) -> bool:
    """Return whether MPI or a launcher wrote a line, and not the program."""
    return bool(_OF_LAUNCHER.search(line))


def is_progress(line: bytes) -> bool:
    """Return whether a line is a log of normal work, a bar of progress or a warning."""
    return bool(_PROGRESS.search(line) or _OF_SHELL.search(line))


def is_handled(line: bytes) -> bool:
    """Return whether a line calls itself a warning, or says how the program deals with what it reports.

    A warning among the events of Kubernetes is its word for an error.
    """
    return bool((_WARNING.search(line) and not _EVENT.search(line)) or _HANDLED.search(line))


def says_remedy(line: bytes) -> bool:
    """Return whether a line says how the program deals with an error."""
    return bool(_HANDLED.search(line))


def is_result(line: bytes) -> bool:
    """Return whether a line is the value of something that a program has computed: `sum of forces: 1.2e-9`."""
    return (
        bool(_RESULT.search(line)) and points(line) < ABNORMAL and not (is_progress(line) or is_detail(line))
    )


def calls_itself_error(line: bytes) -> bool:
    """Return whether a line has the form of an error, an exception or the log level of one."""
    return (
        points(line) >= ABNORMAL
        and not is_handled(line)
        and any(worth >= EXPLICIT and form.search(line) for worth, form in _FORMS)
    )


def is_report(line: bytes) -> bool:
    """Return whether a launcher, MPI or a run time reports a failure."""
    of_mpi = of_launcher(line) and points(line) >= ABNORMAL and not is_handled(line)
    return follows_failure(line) or of_mpi


def is_of_attempt(line: bytes) -> bool:
    """Return whether a launcher reports the end of an attempt, after which it may start another one."""
    return bool(_OF_ATTEMPT.search(line))


def is_fatal(line: bytes) -> bool:
    """Return whether an error says that it ends the program."""
    return bool(_FATAL.search(line)) and not is_result(line)


def says_something(line: bytes) -> bool:
    """Return whether a line has words, and not those that are written after any failure."""
    return not _after_any_failure(_numberless(line)) and bool(_WORDS.search(line))


def is_detail(line: bytes) -> bool:
    """Return whether a line may belong to an error before it: a stack frame, an indented text, a hint."""
    return not line.strip() or _details(_numberless(line))


@lru_cache(maxsize=_CACHED)
def _details(line: bytes) -> bool:
    return bool(_DETAIL.search(line))


def looks_wrong(lines: Iterable[bytes]) -> bool:
    """Return whether any of some lines looks like a failure or like what is said after one."""
    return any(points(line) >= ABNORMAL or follows_failure(line) for line in lines)
