"""A repository's files for a job, at one commit: found and fetched by the user's own git when the job is planned.

The user's git has the user's credentials and settings, so private repositories work and no job or pod gets a password.
The commit is written into the spec, which every engine keeps: a clone of the job runs the same files. Checkouts are
kept in the user's cache directory, a few of them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from mpijob.errors import BackendError, Finding, InvalidJob, Unsupported
from mpijob.model import Code, GitSource

_NOWHERE = Path("/")  # no repository of the current directory has a say
_SECONDS = 600.0
_MOST_CHECKOUTS = 10
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_QUIET = {"GIT_TERMINAL_PROMPT": "0", "GIT_ADVICE": "0", "LC_ALL": "C"}  # nobody is there who could answer
_OURS = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY")  # of a hook that calls us


def resolve(code: Code, directory: Path) -> Code:
    """Return code with its repository at hand: the commit pinned, and `path` the directory of the checkout.

    `directory` is where a repository that is named by a path is looked for.
    """
    git = code.git if code.git.commit else code.git.replace(commit=_commit(code.git, directory))
    checkout = _checkouts() / f"{sha256(git.url.encode()).hexdigest()[:12]}-{git.commit}"
    if not checkout.is_dir():
        _fetch(git, directory, checkout)
    path = checkout / _inside(code.path, git)
    if not path.is_dir() or not path.resolve().is_relative_to(checkout.resolve()):
        raise InvalidJob.of((Finding(
            code="CODE_NOT_FOUND", field="code.path",
            message=f"{git.url} has no directory {_inside(code.path, git)} at commit {git.commit[:12]}",
            hint="with code.git, code.path is a directory of the repository",
        ),))  # fmt: skip
    return code.replace(path=str(path), git=git)


def _inside(path: str, git: GitSource) -> str:
    """Return a directory of the repository, also of a spec whose checkout was somewhere else."""
    marker = f"-{git.commit}"
    return path.partition(marker)[2].lstrip("/") if marker in path else path


def _checkouts() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "mpijob" / "git"


def _commit(git: GitSource, directory: Path) -> str:
    """Return the commit of a branch or tag, or of the default branch, as the repository has it now."""
    names = [f"refs/tags/{git.ref}^{{}}", f"refs/tags/{git.ref}", f"refs/heads/{git.ref}", git.ref]
    wanted = names if git.ref else ["HEAD"]
    listed = _git(_NOWHERE, "ls-remote", "--", _address(git.url, directory), *wanted)
    found = {name: commit for commit, _, name in (line.partition("\t") for line in listed.splitlines())}
    commit = next((found[name] for name in wanted if name in found), "")
    if not _COMMIT.fullmatch(commit):
        what = f"no branch or tag '{git.ref}'" if git.ref else "no commit"
        raise InvalidJob.of((Finding(
            code="CODE_NOT_FOUND", field="code.git.ref", message=f"{git.url} has {what}",
            hint=f"git ls-remote {git.url} lists branches and tags; for a commit set code.git.commit",
        ),))  # fmt: skip
    return commit


def _fetch(git: GitSource, directory: Path, checkout: Path) -> None:
    """Put the files of a commit into place, whole or not at all."""
    try:
        checkout.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _prune(checkout.parent)
        with tempfile.TemporaryDirectory(dir=checkout.parent, prefix=".fetch-") as name:
            tree = Path(name, "tree")
            _check_out(git, directory, tree)
            _refuse_links_outside(git, tree)
            os.replace(tree, checkout)
    except FileExistsError:
        return  # another process was faster
    except OSError as error:
        if not checkout.is_dir():
            raise BackendError(f"cannot keep a checkout in {checkout.parent}: {error.strerror}") from error


def _check_out(git: GitSource, directory: Path, tree: Path) -> None:
    tree.mkdir()
    where = _address(git.url, directory)
    _git(tree, "init", "--quiet")
    try:
        _git(tree, "fetch", "--quiet", "--depth=1", "--", where, git.commit)
    except BackendError:  # some servers hand out branches and tags alone
        _git(
            tree,
            "fetch",
            "--quiet",
            "--",
            where,
            "+refs/heads/*:refs/remotes/o/*",
            "+refs/tags/*:refs/tags/*",
        )
    _git(tree, "-c", "core.hooksPath=/dev/null", "checkout", "--quiet", "--detach", git.commit)


def _address(url: str, directory: Path) -> str:
    """Return a repository's address as seen from anywhere."""
    is_path = "://" not in url and not re.match(r"[^/]+:", url)
    return str((directory / Path(url).expanduser()).resolve()) if is_path else url


def _refuse_links_outside(git: GitSource, tree: Path) -> None:
    """Refuse a repository with a link to files of this machine: they would go along."""
    root = tree.resolve()
    for folder, names, files in os.walk(tree):
        for path in (Path(folder, name) for name in (*names, *files)):
            if path.is_symlink() and not path.resolve().is_relative_to(root):
                place = path.relative_to(tree)
                raise InvalidJob.of((Finding(
                    code="CODE_NOT_FOUND", field="code.git",
                    message=f"{git.url} has a link that leads out of it: {place} → {os.readlink(path)}",
                    hint="remove the link, or clone the repository yourself and name its directory in code.path",
                ),))  # fmt: skip


def _prune(checkouts: Path) -> None:
    """Remove all but the newest checkouts."""
    kept = sorted(checkouts.glob("[0-9a-f]*"), key=lambda one: one.stat().st_mtime, reverse=True)
    for old in kept[_MOST_CHECKOUTS - 1 :]:
        shutil.rmtree(old, ignore_errors=True)


def _git(directory: Path, *words: str) -> str:
    """Run git and return what it prints; raise BackendError with its own last words."""
    environ = {name: value for name, value in os.environ.items() if name not in _OURS} | _QUIET
    environ.setdefault("GIT_SSH_COMMAND", "ssh -oBatchMode=yes")
    try:
        done = subprocess.run(
            ["git", *words], cwd=directory, env=environ, stdin=subprocess.DEVNULL, capture_output=True,
            timeout=_SECONDS, check=False,
        )  # fmt: skip
    except FileNotFoundError as error:
        raise Unsupported(
            "code.git needs git on this machine, which is not installed",
            hint="install git, or clone the repository and name its directory in code.path",
        ) from error
    except subprocess.TimeoutExpired as error:
        raise BackendError(f"git {_verb(words)} has not ended after {_SECONDS:g} s") from error
    if done.returncode:
        raise BackendError(
            f"git {_verb(words)} ended with {done.returncode}: {_last_words(done.stderr)}",
            hint="try the same with git yourself: it uses your credentials and settings",
        )
    return done.stdout.decode(errors="replace")


def _verb(words: Sequence[str]) -> str:
    return next(word for word in words if word in ("ls-remote", "init", "fetch", "checkout"))


def _last_words(stderr: bytes) -> str:
    lines = [line.strip() for line in stderr.decode(errors="replace").splitlines() if line.strip()]
    told = [line for line in lines if line.startswith(("fatal:", "error:", "remote:"))] or lines
    return re.sub(r"//[^/@\s]+@", "//", told[0])[:300] if told else "no output"
