"""A job's code from a repository: which commit, where it lies, and what is refused. Run with a real git."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from mpijob import checks
from mpijob.backends import code_upload
from mpijob.backends.git import checkout
from mpijob.errors import BackendError, InvalidJob, Unsupported
from mpijob.model import Code, GitSource, MPIJob

pytestmark = pytest.mark.req("FR-008")


def git(folder: Path, *words: str) -> str:
    names = {f"GIT_{who}_{what}": "ann" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    done = subprocess.run(
        ["git", *words], cwd=folder, env=os.environ | names, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    return tmp_path / "cache" / "mpijob" / "git"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "origin"
    (folder / "train").mkdir(parents=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    commit(folder, "1")
    return folder


def commit(folder: Path, text: str) -> str:
    """Write the text into a file of the repository and return the commit."""
    (folder / "train" / "main.py").write_text(text)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", text)
    return git(folder, "rev-parse", "HEAD")


def resolved(source: GitSource, directory: Path = Path("/"), path: str = "") -> Code:
    job = MPIJob(name="j", command=("python", "main.py"), code=Code(git=source, path=path))
    return code_upload.resolve(job, directory, ()).code


def text(code: Code) -> str:
    """Return what the file of the repository says where the job would get it from."""
    ((source, place),) = code_upload.select_files(code)
    assert place.name == "main.py"
    return source.read_text()


def test_the_default_branch_goes_along_and_its_commit_is_kept(repository: Path) -> None:
    first = git(repository, "rev-parse", "HEAD")
    code = resolved(GitSource(url=str(repository)))
    assert code.git == GitSource(url=str(repository), commit=first)
    commit(repository, "2")
    assert text(code) == "1"
    assert text(code_upload.resolve(MPIJob(name="j", code=code), Path("/"), ()).code) == "1"
    assert text(resolved(GitSource(url=str(repository)))) == "2"


@pytest.mark.parametrize("annotated", [False, True])
def test_a_branch_a_tag_and_a_commit_are_each_what_they_name(repository: Path, annotated: bool) -> None:
    first = git(repository, "rev-parse", "HEAD")
    git(repository, "tag", "v1", *(("--annotate", "--message", "x") if annotated else ()))
    git(repository, "checkout", "--quiet", "-b", "feature/x")
    second = commit(repository, "2")
    git(repository, "checkout", "--quiet", "main")
    commit(repository, "3")
    url = str(repository)
    for source, expected, said in (
        (GitSource(url=url, ref="v1"), first, "1"),
        (GitSource(url=url, ref="feature/x"), second, "2"),
        (GitSource(url=url, ref="refs/heads/feature/x"), second, "2"),
        (GitSource(url=url, commit=first), first, "1"),
    ):
        code = resolved(source)
        assert (code.git.commit, text(code)) == (expected, said)


def test_path_is_a_directory_of_the_repository_wherever_its_checkout_was(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = resolved(GitSource(url=str(repository)), path="train")
    assert [str(place) for _, place in code_upload.select_files(code)] == ["main.py"]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other machine"))
    again = code_upload.resolve(MPIJob(name="j", code=code), Path("/"), ()).code
    assert again.path.startswith(str(tmp_path / "other machine"))
    assert [str(place) for _, place in code_upload.select_files(again)] == ["main.py"]
    with pytest.raises(InvalidJob, match="has no directory nothing at commit"):
        resolved(GitSource(url=str(repository)), path="nothing")


def test_a_repository_that_is_named_by_a_path_is_seen_from_the_job_file(repository: Path) -> None:
    assert text(resolved(GitSource(url="../origin"), repository.parent / "jobs")) == "1"
    assert text(resolved(GitSource(url=f"file://{repository}"))) == "1"


def test_a_server_that_hands_out_branches_alone_is_asked_for_those(repository: Path) -> None:
    first = git(repository, "rev-parse", "HEAD")
    commit(repository, "2")
    git(repository, "config", "uploadpack.allowAnySHA1InWant", "false")
    git(repository, "config", "uploadpack.allowReachableSHA1InWant", "false")
    git(repository, "config", "protocol.version", "0")
    assert text(resolved(GitSource(url=f"file://{repository}", commit=first))) == "1"


def test_a_checkout_is_fetched_once_and_few_are_kept(
    repository: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = resolved(GitSource(url=str(repository)))
    asked: list[str] = []
    monkeypatch.setattr(checkout, "_check_out", lambda *_: asked.append("again"))
    assert resolved(code.git) == code
    assert asked == []
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache.parents[1]))
    monkeypatch.setattr(checkout, "_MAX_CHECKOUTS", 3)
    for at in range(5):
        commit(repository, f"more {at}")
        resolved(GitSource(url=str(repository)))
    assert len(list(cache.iterdir())) == 3
    assert not Path(code.path).exists()


def test_a_ref_that_is_not_there_is_named(repository: Path) -> None:
    with pytest.raises(InvalidJob, match=r"code.git.ref: .* has no branch or tag 'nothing'"):
        resolved(GitSource(url=str(repository), ref="nothing"))


def test_a_commit_that_is_not_there_leaves_nothing(repository: Path, cache: Path) -> None:
    with pytest.raises(BackendError, match="git checkout ended with"):
        resolved(GitSource(url=str(repository), commit="f" * 40))
    assert list(cache.iterdir()) == []


def test_a_repository_that_is_not_there_is_told_in_gits_own_words(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="git ls-remote ended with 128: fatal: ") as told:
        resolved(GitSource(url=str(tmp_path / "nothing")))
    assert "your credentials and settings" in told.value.hint


def test_without_git_the_way_out_is_named(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unsupported, match="needs git on this machine") as told:
        resolved(GitSource(url=str(repository)))
    assert "code.path" in told.value.hint


@pytest.mark.security
@pytest.mark.parametrize("target", ["/etc/passwd", "../../outside"])
def test_a_link_that_leads_out_of_the_repository_is_refused(
    repository: Path, cache: Path, target: str
) -> None:
    (repository / "train" / "data").symlink_to(target)
    commit(repository, "2")
    with pytest.raises(InvalidJob, match="has a link that leads out of it: train/data"):
        resolved(GitSource(url=str(repository)))
    assert list(cache.iterdir()) == []


def test_a_link_within_the_repository_goes_along(repository: Path) -> None:
    (repository / "train" / "same.py").symlink_to("main.py")
    commit(repository, "2")
    code = resolved(GitSource(url=str(repository)))
    assert [str(place) for _, place in code_upload.select_files(code)] == ["train/main.py", "train/same.py"]


@pytest.mark.security
def test_no_hook_and_no_setting_of_the_repository_runs_anything(repository: Path, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    (repository / ".gitattributes").write_text("* filter=evil\n")
    git(repository, "config", "filter.evil.smudge", f"touch {mark}")
    hook = repository / ".git" / "hooks" / "post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {mark}\n")
    hook.chmod(0o755)
    commit(repository, "2")
    resolved(GitSource(url=str(repository)))
    assert not mark.exists()


# -- what is refused before git is asked ----------------------------------------------------------------
def fields(**code: object) -> list[str]:
    job = MPIJob(name="j", command=("true",), code=Code(**code))  # type: ignore[arg-type]  # of many kinds
    return [one.field for one in checks.run(job) if one.code == "BAD_CODE"]


@pytest.mark.security
@pytest.mark.parametrize(
    "url", [" ", "-oProxyCommand=x", "--upload-pack=x", "ext::sh -c x", "fd::3", "gopher://x/y", "a\nb",
            "https://ann:secret@git.example.org/x.git", "https://ghp_16C7e42F292c6912E7@github.com/a/b",
            "https://glpat-x@gitlab.example.org/a", "https://0123456789abcdef0123@git.example.org/a"],
)  # fmt: skip
def test_an_address_that_runs_something_or_has_a_password_is_refused(url: str) -> None:
    assert fields(git=GitSource(url=url)) == ["code.git.url"]


@pytest.mark.parametrize(
    "url", ["https://git.example.org/x.git", "https://ann@git.example.org/x", "https://ann.maria.winter-2@git.example.org/x",
            "ssh://git@host:22/x",
            "git@github.com:a/b.git", "../x", "/data/x", "file:///data/x"],
)  # fmt: skip
def test_an_address_as_git_takes_it_is_taken(url: str) -> None:
    assert fields(git=GitSource(url=url, ref="v1.2", commit="a" * 40), path="src") == []


def test_refs_commits_and_paths_are_judged() -> None:
    url = "https://git.example.org/x.git"
    assert fields(git=GitSource(ref="main")) == ["code.git.url"]
    for ref in ("-x", "a b", "a..b", "a:b", "^a"):
        assert fields(git=GitSource(url=url, ref=ref)) == ["code.git.ref"]
    for sha in ("abc1234", "A" * 40, "main"):
        assert fields(git=GitSource(url=url, commit=sha)) == ["code.git.commit"]
    for path in ("/etc", "../x", "~/x"):
        assert fields(git=GitSource(url=url), path=path) == ["code.path"]
    pinned = GitSource(url=url, commit="a" * 40)
    assert fields(git=pinned, path=f"/cache/x-{'a' * 40}/train") == []
    assert fields(git=pinned, path=f"/cache/x-{'a' * 40}/../../etc") == ["code.path"]


@pytest.mark.security
def test_no_path_leads_out_of_a_checkout(repository: Path) -> None:
    code = resolved(GitSource(url=str(repository)))
    for path in ("../..", f"/cache/x-{code.git.commit}/../.."):
        with pytest.raises(InvalidJob, match="has no directory"):
            resolved(code.git, path=path)
