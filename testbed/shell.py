"""Running programs, waiting, and saying what went wrong: used by every other module here."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

Result = TypeVar("Result")


class TestBedError(Exception):
    """The test bed could not do what was asked; the message says what and why."""

    __test__ = False  # not a test class, whatever its name begins with
    exit_status = 1


class CannotRunHere(TestBedError):
    """This machine lacks something that the test bed needs."""

    exit_status = 2


_began = time.monotonic()


def say(text: str) -> None:
    """Tell progress on stderr, with the seconds since the start."""
    print(f"[{time.monotonic() - _began:6.1f} s] {text}", file=sys.stderr, flush=True)


def run(
    *argv: str | Path,
    stdin: str | None = None,
    timeout_seconds: float = 120,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
) -> str:
    """Run a program to its end and return its output; a failure is told with what it said."""
    words = [str(word) for word in argv]
    try:
        done = subprocess.run(
            words,
            input=stdin,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_seconds,
            check=False,
            cwd=cwd,
            env=env,
        )
    except FileNotFoundError as error:
        raise TestBedError(f"{words[0]} is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise TestBedError(f"{_line(words)} did not end within {timeout_seconds:.0f} s") from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()[-2000:]
        raise TestBedError(f"{_line(words)} ended with {done.returncode}: {said}")
    return done.stdout


def succeeds(*argv: str | Path, timeout_seconds: float = 30) -> bool:
    """Return whether a program ends with 0."""
    try:
        run(*argv, timeout_seconds=timeout_seconds)
    except TestBedError:
        return False
    return True


def wait_for(what: str, ready: Callable[[], bool], *, seconds: float, pause: float = 0.2) -> None:
    """Wait until `ready` says so; give up with one sentence that names what did not come."""
    end = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > end:
            raise TestBedError(f"{what} did not come within {seconds:.0f} s")
        time.sleep(pause)


def retry(what: str, action: Callable[[], Result], *, seconds: float, pause: float = 0.5) -> Result:
    """Repeat an action until it works; after the time the last failure is told."""
    end = time.monotonic() + seconds
    while True:
        try:
            return action()
        except TestBedError as error:
            if time.monotonic() > end:
                raise TestBedError(f"{what} failed for {seconds:.0f} s; last: {error}") from error
        time.sleep(pause)


def _line(words: Sequence[str]) -> str:
    line = " ".join(words)
    return line if len(line) < 200 else f"{line[:200]} …"
