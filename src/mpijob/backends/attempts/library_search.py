"""Looks for shared libraries that a program misses among the job's own files and beside the program."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from mpijob.model import LogLine

_MISSING = re.compile(
    rb"(?:shared libraries|ImportError): ([\w.+-]{1,100}\.so[\d.]{0,20}): cannot open shared"
)
_MOST_DIRECTORIES = 500
_BESIDE_THE_PROGRAM = (".", "lib", "../lib", "../lib64")


def directories(work: Path, program: str, lines: Iterable[LogLine]) -> dict[str, str]:
    """Return in which directory each library is that the lines report as missing, if it is in one.

    Directories within `work`, in which the ranks start, are relative to it: another run has its own copy.
    """
    names = {os.fsdecode(match[1]) for line in lines if (match := _MISSING.search(line.text))}
    if not names:
        return {}
    found: dict[str, str] = {}
    for place, files in (*_within(work), *_beside(program)):
        for name in names & files:
            found.setdefault(name, place)
    return found


def _within(work: Path) -> Iterator[tuple[str, set[str]]]:
    for place, _, files in islice(os.walk(work), _MOST_DIRECTORIES):
        yield os.path.relpath(place, work), set(files)


def _beside(program: str) -> Iterator[tuple[str, set[str]]]:
    if not os.path.isabs(program):
        return
    for place in _BESIDE_THE_PROGRAM:
        directory = os.path.normpath(os.path.join(os.path.dirname(program), place))
        if os.path.isdir(directory):
            yield directory, set(os.listdir(directory))
