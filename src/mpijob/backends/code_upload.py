"""Uploaded code: a bounded copy of the user's directory in the job's working directory.

A copy, so that the job sees the files as they were when it was submitted, on one machine as on a cluster.
mpijob's own state is never part of it. How the copy reaches a cluster is decided by each engine.
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

# Size and modification time in nanoseconds: both change when a file is written.
Stamp = tuple[int, int]
MAX_FILES = 5_000
MAX_BYTES = 256 << 20
_SKIPPED = (".git", ".hg", ".svn", "__pycache__", ".venv", "venv", "node_modules", ".mypy_cache", ".pytest_cache",
            ".ipynb_checkpoints", ".tox", "*.egg-info")  # fmt: skip


def resolve(job: MPIJob, directory: Path, state_directories: tuple[str, ...]) -> MPIJob:
    """Return the job with the directory to upload made explicit and absolute, without mpijob's own state.

    A repository is fetched, and its commit pinned. If the job sets no code, the current directory is uploaded if
    the command names a file in it, or a module with `python -m`; only what is named if the directory is too large
    or holds our own state. Raise InvalidJob if the code does not exist or is too large.
    """
    if job.code.git.url:
        # Imported here because few jobs have a repository.
        from mpijob.backends.git import checkout

        return job.replace(code=checkout.resolve(job.code, directory))
    code = job.code
    if code.path or code.include:
        path = directory / (code.path or ".")
        if not path.is_dir():
            raise InvalidJob.of((Finding(
                code="CODE_NOT_FOUND", field="code.path", message=f"there is no directory {path}",
                hint="set the directory that contains the program, relative to the job file",
            ),))  # fmt: skip
        return job.replace(code=_exclude_state(code.replace(path=str(path.resolve())), state_directories))
    named = tuple(dict.fromkeys(_named_files((*job.words, job.launch.stdin), directory)))
    if not named:
        return job
    whole = code.replace(path=str(directory.resolve()))
    try:
        whole = _exclude_state(whole, state_directories)
        select_files(whole)
    except InvalidJob:
        # The user did not request the whole directory: what the command names is enough.
        whole = whole.replace(include=named)
    return job.replace(code=whole)


def _exclude_state(code: Code, state_directories: tuple[str, ...]) -> Code:
    """Exclude the directories of mpijob's state; raise InvalidJob if the code's directory is one of them."""
    # They would grow with each job. And closing a copied database file releases SQLite's locks of this process,
    # so another process could damage the database (decision 0007).
    root = Path(code.path)
    resolved = (Path(directory).resolve() for directory in state_directories)
    inside = [directory for directory in resolved if directory.is_relative_to(root)]
    if root in inside and not code.include:
        raise InvalidJob.of((Finding(
            code="CODE_NOT_FOUND", field="code.path", message=f"{root} is the directory of mpijob's own state",
            hint="name what is needed in code.include, or set MPIJOB_HOME to another directory",
        ),))  # fmt: skip
    patterns = [f"./{glob.escape(str(path.relative_to(root)))}" for path in inside if path != root]
    new = tuple(pattern for pattern in patterns if pattern not in code.exclude)
    return code.replace(exclude=(*code.exclude, *new)) if new else code


def _named_files(words: tuple[str, ...], directory: Path) -> Iterator[str]:
    """Yield what the words of a command name in a directory: files, and the module after `-m`."""
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


def select_files(code: Code) -> list[tuple[Path, Path]]:
    """Return each file to upload with its path in the working directory; raise InvalidJob if it is too much."""
    if not code.path:
        return []
    root = Path(code.path)
    found: list[tuple[Path, Path]] = []
    total = 0
    for path in _walk(root, code):
        total += path.lstat().st_size
        found.append((path, path.relative_to(root)))
        if len(found) > MAX_FILES or total > MAX_BYTES:
            limit = quantity.as_bytes(MAX_BYTES)
            raise InvalidJob.of((Finding(
                code="CODE_TOO_LARGE", field="code.path",
                message=f"{root} holds more than {MAX_FILES} files or {limit}: too large to upload with a job",
                hint="name what is needed in code.include, or leave data out with code.exclude and use a volume",
            ),))  # fmt: skip
    return found


def _walk(root: Path, code: Code) -> Iterator[Path]:
    skipped = (*_SKIPPED, *code.exclude)
    for directory, names, files in os.walk(root):
        below = os.path.relpath(directory, root)
        # In place: `os.walk` does not descend into the names that are removed.
        names[:] = sorted(name for name in names if not _is_excluded(os.path.join(below, name), skipped))
        for name in sorted(files):
            path = Path(directory, name)
            relative = str(path.relative_to(root))
            # Sockets and named pipes cannot be copied.
            if _is_excluded(relative, skipped) or not path.is_file():
                continue
            if not code.include or _is_included(relative, code.include):
                yield path


def _is_excluded(relative: str, patterns: tuple[str, ...]) -> bool:
    """Match a name anywhere, or a path from the top, with or without `./` before it."""
    path = os.path.normpath(relative)
    candidates = (os.path.basename(path), path, f"./{path}")
    return any(fnmatch.fnmatchcase(candidate, pattern) for candidate in candidates for pattern in patterns)


def _is_included(relative: str, patterns: tuple[str, ...]) -> bool:
    return any(
        fnmatch.fnmatchcase(relative, pattern) or relative.startswith(pattern.rstrip("/") + "/")
        for pattern in patterns
    )


def inline(code: Code) -> Code:
    """Return the code as texts in the job itself, for engines that cannot read this machine's directories."""
    files = dict(code.files)
    for source, target in select_files(code):
        try:
            files[str(target)] = source.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidJob.of((Finding(
                code="CODE_NOT_TEXT", field="code.path",
                message=f"{source} is a binary file; only text files can be embedded in a job",
                hint="leave it out with code.exclude, build it into the image, or put it on a volume",
            ),)) from error  # fmt: skip
    return Code(files=files)


def copy_into(code: Code, work: Path) -> dict[str, Stamp]:
    """Copy the code into the job's working directory; return the copied files with their stamps."""
    copied: dict[str, Stamp] = {}
    try:
        for source, relative in select_files(code):
            target = work / relative
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
            copied[str(relative)] = stamp(target.stat())
        # After the directory: a text of `code.files` replaces a file of the same name.
        for name, text in code.files.items():
            target = work / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
            copied[os.path.normpath(name)] = stamp(target.stat())
    except OSError as error:
        raise BackendError(f"cannot copy the job's files: {error.strerror} ({error.filename})") from error
    return copied


def stamp(status: os.stat_result) -> Stamp:
    return status.st_size, status.st_mtime_ns


def stamps(directory: Path) -> dict[str, Stamp]:
    """Return the stamps of all files in a directory before a job runs in it; {} for more than `MAX_FILES`."""
    found: dict[str, Stamp] = {}
    for path in directory.rglob("*"):
        # Other programs of the user may remove it between the listing and `stat`.
        with contextlib.suppress(FileNotFoundError):
            if path.is_file():
                found[str(path.relative_to(directory))] = stamp(path.stat())
        if len(found) > MAX_FILES:
            return {}
    return found
