"""A repository's files for a job, at one commit: fetched by the user's own git when the job is planned.

The user's git has the user's credentials and settings, so private repositories work, and no job or pod gets a
password. The commit is stored in the spec, so a clone of the job runs the same files. A few checkouts are cached.
From there, the files are uploaded like any directory (`code_upload`); addresses are checked in `checks/volumes`.
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

# No repository here: the settings of one in the current directory must not apply.
_NO_REPOSITORY = Path("/")
_TIMEOUT_SECONDS = 600.0
_MAX_CHECKOUTS = 10
# SHA-1 or SHA-256.
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
# git must not ask for a password: nobody could answer. Messages are parsed, hence in English.
_ENVIRONMENT = {"GIT_TERMINAL_PROMPT": "0", "GIT_ADVICE": "0", "LC_ALL": "C"}
# Set if mpijob is called by a git hook: they would redirect our commands to the repository of the hook.
_HOOK_VARIABLES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY")


def resolve(code: Code, directory: Path) -> Code:
    """Return code with the commit pinned and `path` set to the directory of its checkout.

    A repository that is given by a relative path is relative to `directory`. Raise InvalidJob if repository,
    commit or directory do not exist, BackendError if git fails.
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
    """Return a directory relative to the repository."""
    # The spec of a cloned job has the absolute path of an earlier checkout, maybe on another machine.
    marker = f"-{git.commit}"
    return path.partition(marker)[2].lstrip("/") if marker in path else path


def _checkouts() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "mpijob" / "git"


def _commit(git: GitSource, directory: Path) -> str:
    """Return the current commit of a branch or tag, or of the default branch."""
    # `^{}` is the commit of an annotated tag, whose own object is not a commit.
    names = [f"refs/tags/{git.ref}^{{}}", f"refs/tags/{git.ref}", f"refs/heads/{git.ref}", git.ref]
    wanted = names if git.ref else ["HEAD"]
    listed = _git(_NO_REPOSITORY, "ls-remote", "--", _address(git.url, directory), *wanted)
    found = {name: commit for commit, _, name in (line.partition("\t") for line in listed.splitlines())}
    commit = next((found[name] for name in wanted if name in found), "")
    if not _COMMIT.fullmatch(commit):
        missing = f"no branch or tag '{git.ref}'" if git.ref else "no commit"
        raise InvalidJob.of((Finding(
            code="CODE_NOT_FOUND", field="code.git.ref", message=f"{git.url} has {missing}",
            hint=f"git ls-remote {git.url} lists branches and tags; for a commit set code.git.commit",
        ),))  # fmt: skip
    return commit


def _fetch(git: GitSource, directory: Path, checkout: Path) -> None:
    """Create the checkout of a commit, completely or not at all."""
    try:
        checkout.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _prune(checkout.parent)
        # Renamed when it is complete: another process may look for the same checkout.
        with tempfile.TemporaryDirectory(dir=checkout.parent, prefix=".fetch-") as name:
            tree = Path(name, "tree")
            _check_out(git, directory, tree)
            _refuse_links_outside(git, tree)
            os.replace(tree, checkout)
    except FileExistsError:
        # Another process was faster.
        return
    except OSError as error:
        # As above, with another error code (ENOTEMPTY).
        if not checkout.is_dir():
            raise BackendError(f"cannot keep a checkout in {checkout.parent}: {error.strerror}") from error


def _check_out(git: GitSource, directory: Path, tree: Path) -> None:
    tree.mkdir()
    address = _address(git.url, directory)
    _git(tree, "init", "--quiet")
    try:
        _git(tree, "fetch", "--quiet", "--depth=1", "--", address, git.commit)
    except BackendError:
        # Some servers return branches and tags only (uploadpack.allowReachableSHA1InWant).
        refs = ("+refs/heads/*:refs/remotes/o/*", "+refs/tags/*:refs/tags/*")
        _git(tree, "fetch", "--quiet", "--", address, *refs)
    # A repository must not run anything on this machine.
    _git(tree, "-c", "core.hooksPath=/dev/null", "checkout", "--quiet", "--detach", git.commit)


def _address(url: str, directory: Path) -> str:
    """Return a repository's URL, or its absolute path."""
    # `host:path` is git's short form for ssh.
    is_path = "://" not in url and not re.match(r"[^/]+:", url)
    return str((directory / Path(url).expanduser()).resolve()) if is_path else url


def _refuse_links_outside(git: GitSource, tree: Path) -> None:
    """Raise InvalidJob for a repository with a link to files of this machine: they would be uploaded."""
    root = tree.resolve()
    for folder, names, files in os.walk(tree):
        for path in (Path(folder, name) for name in (*names, *files)):
            if path.is_symlink() and not path.resolve().is_relative_to(root):
                link = path.relative_to(tree)
                raise InvalidJob.of((Finding(
                    code="CODE_NOT_FOUND", field="code.git",
                    message=f"{git.url} has a link that leads out of it: {link} → {os.readlink(path)}",
                    hint="remove the link, or clone the repository yourself and name its directory in code.path",
                ),))  # fmt: skip


def _prune(checkouts: Path) -> None:
    """Remove all but the newest checkouts, with room for one more."""
    newest_first = sorted(checkouts.glob("[0-9a-f]*"), key=lambda path: path.stat().st_mtime, reverse=True)
    for checkout in newest_first[_MAX_CHECKOUTS - 1 :]:
        shutil.rmtree(checkout, ignore_errors=True)


def _git(directory: Path, *arguments: str) -> str:
    """Run git and return its output; raise BackendError with its own message."""
    environ = {
        name: value for name, value in os.environ.items() if name not in _HOOK_VARIABLES
    } | _ENVIRONMENT
    environ.setdefault("GIT_SSH_COMMAND", "ssh -oBatchMode=yes")
    command = _git_command(arguments)
    try:
        process = subprocess.run(
            ["git", *arguments], cwd=directory, env=environ, stdin=subprocess.DEVNULL, capture_output=True,
            timeout=_TIMEOUT_SECONDS, check=False,
        )  # fmt: skip
    except FileNotFoundError as error:
        raise Unsupported(
            "code.git needs git on this machine, which is not installed",
            hint="install git, or clone the repository and name its directory in code.path",
        ) from error
    except subprocess.TimeoutExpired as error:
        raise BackendError(f"git {command} has not ended after {_TIMEOUT_SECONDS:g} s") from error
    if process.returncode:
        raise BackendError(
            f"git {command} ended with {process.returncode}: {_error_message(process.stderr)}",
            hint="try the same with git yourself: it uses your credentials and settings",
        )
    return process.stdout.decode(errors="replace")


def _git_command(arguments: Sequence[str]) -> str:
    return next(word for word in arguments if word in ("ls-remote", "init", "fetch", "checkout"))


def _error_message(stderr: bytes) -> str:
    lines = [line.strip() for line in stderr.decode(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("fatal:", "error:", "remote:"))] or lines
    # Without the user and password of a URL.
    return re.sub(r"//[^/@\s]+@", "//", errors[0])[:300] if errors else "no output"
