"""The line of a log that most likely names the cause, for failures that no rule knows.

Each line gets points: for words of failure, as programs, compilers and libraries write them; for being among the first
that look wrong; for being said by few. It loses points for words of warnings, of progress and of help, for what
launchers say of any failure, and for being repeated, because what healthy ranks say as well names no cause.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from mpijob.diagnosis.evidence import Evidence
from mpijob.diagnosis.logs.log_index import Stream, shown, streams
from mpijob.errors import Place

STRONG = 4.0  # points from which a line is taken for the program's own last words
EXPLICIT = 6.0  # points from which a line calls itself an error
ABNORMAL = 2.5  # points from which a line looks wrong at all
LITERALS = (
    *(
        "ERROR",
        "Error",
        "error:",
        "FATAL",
        "Fatal",
        "fatal",
        "Exception",
        "failed",
        "Failed",
        "annot ",
        "nable to ",
    ),
    *("not found", "bort"),
)
_AFTER_LINES = 3
_SHORT = 24  # a line that only announces: what it announces follows
_WORDS = (
    (6.0, re.compile(rb"\bFATAL\b|\bfatal: |\b[Ff]atal (?:[Ee]rror|[Ii][Oo])\b|^\s*fatal:|\bPANIC\b")),
    (6.0, re.compile(rb"^\W{0,8}(?:\S{1,40} ){0,2}?\[?(?:ERROR|Error|error)\b\]?[:! ]")),
    (
        6.0,
        re.compile(
            rb"^\s*(?:[\w.\[\]-]{1,60}: )?[A-Za-z_][\w.:]{0,80}(?:Error|Exception|Interrupt|Exit)\b(?:: |$)"
        ),
    ),
    (4.0, re.compile(rb"\b(?:ERROR|Error|error)\b")),
    (
        4.0,
        re.compile(
            rb"(?i)\b(?:panic|assertion|terminate called|uncaught|core dumped|stack smashing|double free)\b"
        ),
    ),
    (
        3.0,
        re.compile(
            rb"(?i)\b(?:fail(?:ed|ure|s)?|cannot|can't|can not|could(?: not|n't)|unable to|not found|no "
            rb"such|denied|refused|"
            rb"invalid|illegal|unknown|unrecogni[sz]ed|unsupported|undefined|unexpected|missing|exceed(?:s|ed)?|"
            rb"out of (?:memory|range|bounds|space|disk)|overflow|mismatch(?:ed)?|corrupt(?:ed)?|truncated|damaged|"
            rb"not (?:supported|permitted|allowed|available|installed|valid|defined|set|enough|a valid|complete)|"
            rb"singular|diverge[sd]?|diverging|negative (?:volume|density|pressure)|nan|does not (?:exist|match|fit)|"
            rb"is empty|inconsistent|incompatible|impossible|must (?:be|not)|violat(?:ed|ion)|expected|lost atoms)\b"
        ),
    ),
    (  # as strerror writes it, at the end of a line
        4.0,
        re.compile(
            rb": (?:No such file or directory|Permission denied|Is a directory|Not a directory|Connection refused"
            rb"|No space left on device|Read-only file system|Input/output error|Bad file descriptor)\.?$"
        ),
    ),
    (
        2.0,
        re.compile(
            rb"(?i)\b(?:killed|timed out|timeout|time-out|lost|broken|too (?:many|large|small|long|few|big))\b"
        ),
    ),
    (1.0, re.compile(rb"(?i)\b(?:abort(?:ed|ing)?|exception|stopp(?:ed|ing)|exit(?:ed|ing)?)\b")),
    (0.5, re.compile(rb"['\"`][^'\"`]+['\"`]|/[\w.-]+/|\w+\.\w{1,4}:\d+|= ?-?\d|\d")),
)
_INNOCENT = (
    (4.0, re.compile(rb"^\[(?:mpiexec|proxy)\S*@")),  # Hydra's own functions, after any failure
    (5.0, re.compile(rb": (?:line )?\d+: [^\s:]+: (?:command )?not found$")),  # a shell goes on after it
    (5.0, re.compile(rb"(?i)\bwarn(?:ing|ings)?\b|\[W\]|^W\d{4} |^W\w{0,3}\[")),
    (4.0, re.compile(rb"\b(?:INFO|DEBUG|TRACE|NOTE|Note|note|HINT|Hint)\b|^\s*(?:hint|see|try|use)\b")),
    (
        6.0,
        re.compile(
            rb"(?i)\b(?:0|no|zero|without(?: any)?) (?:errors?|failures?|failed|warnings?)\b|\b(?:errors?"
            rb"|failed|failures)[ =:]+0\b"
            rb"|\berror (?:rate|norm|estimate|bound|tolerance|bars?|handler|handling)|\bretry(?:ing)?\b"
            rb"|\bignor(?:e|ed|ing)\b"
            rb"|\brecovered\b|\bas expected\b"
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
            rb"(?i)\b(?:please|you (?:may|can|should)|this (?:may|can|usually|is|could)|for more|consider|e\.g\.)\b"
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
    rb"|[Ss]ending process"
    rb"|Exited with exit code|srun: (?:Job step aborted|forcing|error: \S+: tasks? )|slurmstepd: error: "
    rb"\*\*\*|Terminated$|^Killed$"
    rb"|exit(?:s|ed)? with (?:return |exit |status )*(?:code|status)|[Ee]xecution halted|application called MPI_Abort"
    rb"|Per user-direction|thus causing|The first process to do so|mpirun has exited|MPI processes|local "
    rb"abort before MPI_INIT"
    rb"|Killing subprocess|subprocess\.CalledProcessError|[Cc]ommand exited"
    rb"|[Cc]hild returned status|exit status \d|make(?:\[\d\])?: "
    rb"\*\*\*|cleaning up"
    rb"|Fatal error in P?MPI_Abort|\*{3,}|MPI_ERRORS_ARE_FATAL|potentially your MPI job|HYD\w*_|PMIx?_Abort"
    rb"|prterun (?:noticed|detected)"
    rb"|Abort\(\d+\)(?: on node|: )|Fatal error in (?:internal_|P?MPI_)|^\S+\.py FAILED|Connection (?:reset"
    rb"|closed) by peer|ncclRemoteError|(?:ORTE|PRTE)_ERROR_LOG|PMIX "
    rb"ERROR: ERROR in file|MPI_INIT failed"
    rb"|[Ee]rror is not recoverable|Downstream from host"
    rb"|internal error has occurred in|error message you will|ld returned \d+ exit|FORCE-TERMINATE"
    rb"|^\s*Error(?: name)?: {2,}|There (?:was|were) \d+ errors?"
    rb"|^-{10,}|^={10,}|^%{10,}|job aborted|signal \d+ \(|Signal (?:code|:)|^\s*(?:Node|Host|Local host|PID):"
)


class Telling(msgspec.Struct, frozen=True):
    """A line that stands out: its text with what it announces, where it is, and its points.

    `alone` says that no other line, but those that belong to it, calls itself an error; `last`, that nothing was
    said after it but its like and what follows any failure.
    """

    text: str
    points: float
    evidence: tuple[str, ...]
    place: Place
    time: float
    rank: int | None = None
    worker: int | None = None
    alone: bool = False
    last: bool = False


def find(seen: Evidence, *, before: float = math.inf, known: frozenset[str] = frozenset()) -> Telling | None:
    """Return the most telling line of everything that was said, if any line looks wrong.

    With `before`, of what was said until then; lines that `known` quotes are left out.
    """
    said = streams(seen)
    lines = [
        (time, place, at)
        for place, stream in enumerate(said)
        for at in range(stream.count)
        if (time := stream.time(at)) < before
    ]
    texts = [said[place].window.lines[at] for _, place, at in lines]
    often = Counter(map(_shape, texts))
    points = [_points(text) for text in texts]
    order = sorted(
        (index for index, one in enumerate(points) if one >= ABNORMAL), key=lambda index: lines[index][0]
    )
    best: tuple[float, int] | None = None
    for number, index in enumerate(order):
        _, place, at = lines[index]
        if known and not known.isdisjoint(said[place].quote(at, at)):
            continue
        rarity = math.log2(often[_shape(texts[index])])
        score = points[index] + 2.0 / (1 + number / 2) - min(3.0, max(0.0, rarity - 1))
        if best is None or score > best[0] + 1e-9:
            best = score, index
    if best is None:
        return None
    time, place, at = lines[best[1]]
    told = _told(said[place], at, best[0], time)
    own = {_shape(line) for line in _block(said[place].window.lines, at)}
    others = (_shape(texts[index]) for index in order if points[index] >= STRONG)
    later = (text for (when, _, _), text in zip(lines, texts, strict=True) if when > time)
    return msgspec.structs.replace(
        told,
        alone=own.issuperset(others),
        last=all(_shape(text) in own or not _says_something(text) for text in later),
    )


def _block(lines: tuple[bytes, ...], at: int) -> Iterator[bytes]:
    """Yield an error and what belongs to it: the next lines that are indented, or look wrong themselves."""
    yield lines[at]
    for line in lines[at + 1 : at + 1 + _AFTER_LINES]:
        if line[:1].isspace() or line.startswith("│".encode()) or _points(line) >= ABNORMAL:
            yield line


def last_before(seen: Evidence, time: float) -> tuple[str, ...]:
    """Return what was said last before an end, where no line looks wrong: it may be the reason, and proves nothing."""
    said = [
        (when, stream, at)
        for stream in streams(seen)
        for at in range(stream.count)
        if (when := stream.time(at)) < time and _says_something(stream.window.lines[at])
    ]
    if not said:
        return ()
    _, stream, at = max(said, key=lambda line: line[0])
    return stream.quote(at, at)


def _says_something(line: bytes) -> bool:
    return not _ANY_FAILURE.search(line) and any(map(bytes.isalpha, line.split()))


def looks_wrong(lines: Iterable[bytes]) -> bool:
    """Return whether any of some lines looks like a failure or like what is said after one."""
    return any(
        _points(line) >= ABNORMAL or _ANY_FAILURE.search(line) for line in lines if line.strip(b"-=* ")
    )


def _told(stream: Stream, at: int, score: float, time: float) -> Telling:
    line = shown(stream.window.lines[at])
    following = (shown(text) for text in stream.window.lines[at + 1 : at + 1 + _AFTER_LINES])
    announces = line.endswith(":") or (len(line) < _SHORT and ":" not in line)
    if announces and (more := next((text for text in following if _says(text)), "")):
        line = f"{line} {more}"
    quotes = stream.quote(at, at + _AFTER_LINES)
    return Telling(line, score, quotes, stream.place(at), time, stream.rank, stream.worker)


def _says(text: str) -> bool:
    return any(char.isalnum() for char in text)


def _shape(text: bytes) -> bytes:
    """Return a line without what differs between ranks and steps."""
    return re.sub(rb"\d+", b"#", text.strip()[:200])


def _points(text: bytes) -> float:
    line = text[:600]
    if not line.strip() or _ANY_FAILURE.search(line):
        return 0.0
    gained = [worth for worth, words in _WORDS if words.search(line)]
    if not gained or max(gained) < 1.0:
        return 0.0
    strong = sorted(gained, reverse=True)
    total = strong[0] + 0.4 * sum(strong[1:])
    return total - sum(worth for worth, words in _INNOCENT if words.search(line))
