"""The files that go along: a bounded copy of the user's directory into the job's own.

A copy, so that the job sees what was there when it was submitted, on a laptop as on a cluster. What is mpijob's own
never goes along, wherever it lies: it would grow with each job, and reading our open database takes its locks away.
"""

from __future__ import annotations

import contextlib
import fnmatch
import glob
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from mpijob.errors import BackendError, Finding, InvalidJob
from mpijob.model import Code, MPIJob
from mpijob.model.spec import quantity

Stamp = tuple[int, int]
MAX_FILES = 5_000
MAX_BYTES = 256 << 20
_SKIPPED = (".git", ".hg", ".svn", "__pycache__", ".venv", "venv", "node_modules", ".mypy_cache", ".pytest_cache",
            ".ipynb_checkpoints", ".tox", "*.egg-info")  # fmt: skip


def resolve(job: MPIJob, directory: Path, own: tuple[str, ...]) -> MPIJob:
    """Return the job with the directory that goes along made explicit and absolute, without our `own` places.

    A repository is fetched, and its commit pinned. Without either, the current directory goes along when the command
    names a file in it, or a module with `python -m`; only what is named when the directory is too large, or our own.
    """
    if job.code.git.url:
        return job.replace(code=_checked_out(job.code, directory))
    code = job.code
    if code.path or code.include:
        path = directory / (code.path or ".")
        if not path.is_dir():
            raise InvalidJob.of((_missing(path),))
        return job.replace(code=_without(own, code.replace(path=str(path.resolve()))))
    named = tuple(dict.fromkeys(_named((*job.words, job.launch.stdin), directory)))
    if not named:
        return job
    whole = code.replace(path=str(directory.resolve()))
    try:
        whole = _without(own, whole)
        select_files(whole)
    except InvalidJob:  # nobody asked for the whole directory: what the command names is enough
        whole = whole.replace(include=named)
    return job.replace(code=whole)


def _checked_out(code: Code, directory: Path) -> Code:
    from mpijob.backends.git import checkout  # few jobs have a repository

    return checkout.resolve(code, directory)


def _without(own: tuple[str, ...], code: Code) -> Code:
    """Exclude what is ours and lies in the directory; refuse the directory itself when it is ours."""
    root = Path(code.path)
    found = [place for place in (Path(one).resolve() for one in own) if place.is_relative_to(root)]
    if root in found and not code.include:
        raise InvalidJob.of((_ours(root),))
    patterns = [f"./{glob.escape(str(place.relative_to(root)))}" for place in found if place != root]
    new = tuple(one for one in patterns if one not in code.exclude)
    return code.replace(exclude=(*code.exclude, *new)) if new else code


def _ours(root: Path) -> Finding:
    return Finding(
        code="CODE_NOT_FOUND", field="code.path", message=f"{root} is the directory of mpijob's own state",
        hint="name what is needed in code.include, or set MPIJOB_HOME to another directory",
    )  # fmt: skip


def _named(words: tuple[str, ...], directory: Path) -> Iterator[str]:
    """Yield what of a directory the words of a command name: files, and the module behind `-m`."""
    for before, word in zip(["", *words], words, strict=False):
        if _is_file_here(word, directory):
            yield os.path.normpath(word)
        elif before == "-m" and (module := word.partition(".")[0]).isidentifier():
            if _is_file_here(f"{module}.py", directory):
                yield f"{module}.py"
            elif (directory / module).is_dir():
                yield module


def _is_file_here(word: str, directory: Path) -> bool:
    try:
        return bool(word) and not word.startswith(("/", "-", "..")) and (directory / word).is_file()
    except (OSError, ValueError):
        return False


def _missing(path: Path) -> Finding:
    return Finding(
        code="CODE_NOT_FOUND", field="code.path", message=f"there is no directory {path}",
        hint="give the directory that holds the program, relative to the job file",
    )  # fmt: skip


def select_files(code: Code) -> list[tuple[Path, Path]]:
    """Return (file, place in the working directory) for all that goes along; refuse too much of it."""
    if not code.path:
        return []
    root = Path(code.path)
    found: list[tuple[Path, Path]] = []
    total = 0
    for path in _walk(root, code):
        total += path.lstat().st_size
        found.append((path, path.relative_to(root)))
        if len(found) > MAX_FILES or total > MAX_BYTES:
            raise _too_much(root)
    return found


def _walk(root: Path, code: Code) -> Iterator[Path]:
    skipped = (*_SKIPPED, *code.exclude)
    for directory, names, files in os.walk(root):
        below = os.path.relpath(directory, root)
        names[:] = sorted(name for name in names if not _left_out(os.path.join(below, name), skipped))
        for name in sorted(files):
            path = Path(directory, name)
            relative = str(path.relative_to(root))
            if _left_out(relative, skipped) or not path.is_file():
                continue
            if not code.include or _included(relative, code.include):
                yield path


def _left_out(relative: str, patterns: tuple[str, ...]) -> bool:
    """Match a name anywhere, or a path from the top, with or without `./` before it."""
    path = os.path.normpath(relative)
    return any(_matches(one, patterns) for one in (os.path.basename(path), path, f"./{path}"))


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _included(relative: str, patterns: tuple[str, ...]) -> bool:
    return any(
        fnmatch.fnmatchcase(relative, pattern) or relative.startswith(pattern.rstrip("/") + "/")
        for pattern in patterns
    )


def _too_much(root: Path) -> InvalidJob:
    limit = quantity.as_bytes(MAX_BYTES)
    return InvalidJob.of((Finding(
        code="CODE_TOO_LARGE", field="code.path",
        message=f"{root} holds more than {MAX_FILES} files or {limit}: too large to upload with a job",
        hint="name what is needed in code.include, or leave data out with code.exclude and use a volume",
    ),))  # fmt: skip


def inline(code: Code) -> Code:
    """Return what goes along as texts in the job itself, for a place that sees no directory of this machine."""
    files = dict(code.files)
    for source, place in select_files(code):
        try:
            files[str(place)] = source.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidJob.of((Finding(
                code="CODE_NOT_TEXT", field="code.path",
                message=f"{source} is a binary file; only text files can be embedded in a job",
                hint="leave it out with code.exclude, build it into the image, or put it on a volume",
            ),)) from error  # fmt: skip
    return Code(files=files)


def copy_into(code: Code, work: Path) -> dict[str, Stamp]:
    """Copy what goes along into the job's working directory; return how each file lies there."""
    laid: dict[str, Stamp] = {}
    try:
        for source, place in select_files(code):
            target = work / place
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
            laid[str(place)] = stamp(target.stat())
        for name, text in code.files.items():
            target = work / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
            laid[os.path.normpath(name)] = stamp(target.stat())
    except OSError as error:
        raise BackendError(f"cannot copy the job's files: {error.strerror} ({error.filename})") from error
    return laid


def stamp(status: os.stat_result) -> Stamp:
    """Return what changes when a file is written."""
    return status.st_size, status.st_mtime_ns


def stamps(folder: Path) -> dict[str, Stamp]:
    """Return how the files of a directory are before a job runs in it; nothing of one that is too large to tell."""
    found: dict[str, Stamp] = {}
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # it was removed since we looked
            if path.is_file():
                found[str(path.relative_to(folder))] = stamp(path.stat())
        if len(found) > MAX_FILES:
            return {}
    return found
