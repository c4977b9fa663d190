"""The files that go along with a job, and those that it leaves."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mpijob.backends import code_upload
from mpijob.backends.attempts import artifacts
from mpijob.backends.mpi import command_check
from mpijob.client.submit.templates import load_job
from mpijob.errors import BackendError, InvalidJob, NotFound
from mpijob.model import Code, MPIJob


def a_tree(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    return root


def taken(chosen: Code) -> list[str]:
    return [str(place) for _, place in code_upload.select_files(chosen)]


def test_the_directory_goes_along_when_the_command_names_a_file_in_it(tmp_path: Path) -> None:
    a_tree(tmp_path, "train.py", "lib/model.py")
    job = code_upload.resolve(MPIJob(name="j", command=("python", "train.py")), tmp_path, ())
    assert taken(job.code) == ["train.py", "lib/model.py"]


def test_nothing_goes_along_when_the_command_names_no_file(tmp_path: Path) -> None:
    a_tree(tmp_path, "train.py")
    job = code_upload.resolve(MPIJob(name="j", command=("hostname",)), tmp_path, ())
    assert taken(job.code) == []


def test_version_control_environments_and_excluded_files_stay_behind(tmp_path: Path) -> None:
    a_tree(tmp_path, "a.py", ".git/config", ".venv/bin/python", "__pycache__/a.pyc", "data/big.bin")
    assert taken(Code(path=str(tmp_path), exclude=("data",))) == ["a.py"]


def test_only_what_is_included_goes_along(tmp_path: Path) -> None:
    a_tree(tmp_path, "a.py", "b.py", "lib/c.py", "lib/d.txt")
    assert taken(Code(path=str(tmp_path), include=("a.py", "lib"))) == ["a.py", "lib/c.py", "lib/d.txt"]


def test_a_directory_that_is_too_large_is_refused_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code_upload, "MAX_FILES", 2)
    a_tree(tmp_path, "a.py", "b.py", "c.py")
    with pytest.raises(InvalidJob, match=r"more than 2 files.*\nhint: name what is needed in code.include"):
        code_upload.select_files(Code(path=str(tmp_path)))


def test_of_a_large_directory_that_nobody_named_only_the_named_files_go_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code_upload, "MAX_FILES", 2)
    a_tree(tmp_path, "a.py", "b.py", "c.py")
    job = code_upload.resolve(MPIJob(name="j", command=("python", "./b.py")), tmp_path, ())
    assert taken(job.code) == ["b.py"]


def test_a_directory_that_is_not_there_is_an_error_at_its_field(tmp_path: Path) -> None:
    job = MPIJob(name="j", command=("true",), code=Code(path="nowhere"))
    with pytest.raises(InvalidJob, match=r"code\.path: there is no directory"):
        code_upload.resolve(job, tmp_path, ())


def test_inline_files_are_laid_out_too(tmp_path: Path) -> None:
    code_upload.copy_into(Code(files={"sub/x.py": "print()"}), tmp_path)
    assert (tmp_path / "sub/x.py").read_text() == "print()"


def test_a_job_file_finds_its_code_beside_itself(tmp_path: Path) -> None:
    a_tree(tmp_path, "train.py")
    (tmp_path / "job.yaml").write_text("name: j\ncommand: [python, train.py]\n")
    assert load_job(tmp_path / "job.yaml").code.path == str(tmp_path.resolve())
    with pytest.raises(BackendError, match="cannot read"):
        load_job(tmp_path / "missing.yaml")


# -- what is mpijob's own -----------------------------------------------------------------------------
def test_our_own_state_stays_behind_wherever_it_lies(tmp_path: Path) -> None:
    a_tree(
        tmp_path,
        "a.py",
        "st[a]te/state.db",
        "st[a]te/jobs/x/work/a.py",
        "lib/st[a]te/x.py",
        "deep/record/h.db",
    )
    own = (str(tmp_path / "st[a]te"), str(tmp_path / "deep" / "record"), "/somewhere/else")
    for job in (MPIJob(name="j", command=("python", "a.py")), MPIJob(name="j", code=Code(path="."))):
        resolved = code_upload.resolve(job, tmp_path, own)
        assert taken(resolved.code) == ["a.py", "lib/st[a]te/x.py"]
        assert code_upload.resolve(resolved, tmp_path, own) == resolved


def test_of_a_directory_that_is_our_own_only_what_is_named_goes_along(tmp_path: Path) -> None:
    a_tree(tmp_path, "a.py", "state.db")
    own = (str(tmp_path),)
    job = code_upload.resolve(MPIJob(name="j", command=("python", "a.py")), tmp_path, own)
    assert taken(job.code) == ["a.py"]
    with pytest.raises(
        InvalidJob, match=r"code\.path: .* is the directory of mpijob's own state\nhint: name what"
    ):
        code_upload.resolve(MPIJob(name="j", code=Code(path=".")), tmp_path, own)


def test_a_path_from_the_top_is_excluded_and_another_of_its_name_is_not(tmp_path: Path) -> None:
    a_tree(tmp_path, "data/x", "lib/data/y", "lib/raw/z", "top.txt", "lib/top.txt")
    assert taken(Code(path=str(tmp_path), exclude=("./data", "lib/raw", "./top.txt"))) == [
        "lib/top.txt",
        "lib/data/y",
    ]


# -- what a job leaves --------------------------------------------------------------------------------
@pytest.mark.req("B-artifacts")
def test_what_the_job_wrote_is_listed_and_what_went_along_is_not(tmp_path: Path) -> None:
    source = a_tree(tmp_path / "source", "train.py", "config.txt")
    work = tmp_path / "work"
    work.mkdir()
    chosen = Code(path=str(source), files={"inline.py": "1"})
    along = code_upload.copy_into(chosen, work)
    (work / "model.bin").write_bytes(b"12345")
    (work / "config.txt").write_text("changed by the job")
    for folder in ("attempt-2", "attempt-x"):
        (work / folder).mkdir()
        (work / folder / "out").write_text("1")
    (source / "train.py").write_text("changed by the user since")
    (source / "config.txt").unlink()
    listed = artifacts.list_written(work, along)
    assert [(file.path, file.size, file.attempt) for file in listed] == [
        ("attempt-2/out", 1, 2), ("attempt-x/out", 1, 0), ("config.txt", 18, 0), ("model.bin", 5, 0)]  # fmt: skip


@pytest.mark.req("B-artifacts")
def test_a_file_is_fetched_byte_for_byte(tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(b"\0\xff\n")
    artifacts.fetch(tmp_path, "out", tmp_path / "deep" / "copy")
    assert (tmp_path / "deep" / "copy").read_bytes() == b"\0\xff\n"


@pytest.mark.security
@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "link", "sub/../../secret", "a\0b", ""])
def test_nothing_outside_the_working_directory_is_fetched(tmp_path: Path, path: str) -> None:
    work = tmp_path / "work"
    (work / "sub").mkdir(parents=True)
    (tmp_path / "secret").write_text("hush")
    (work / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(NotFound):
        artifacts.fetch(work, path, tmp_path / "stolen")
    assert not (tmp_path / "stolen").exists()


@pytest.mark.security
def test_a_link_that_leads_out_is_not_listed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    assert artifacts.list_written(tmp_path, {}) == ()


@pytest.mark.req("B-artifacts")
def test_an_inline_file_that_the_job_wrote_anew_is_listed_although_it_has_the_same_size(
    tmp_path: Path,
) -> None:
    along = code_upload.copy_into(Code(files={"./a.txt": "1", "b.txt": "1"}), tmp_path)
    (tmp_path / "a.txt").write_text("2")
    os.utime(tmp_path / "a.txt", ns=(0, 0))
    assert [file.path for file in artifacts.list_written(tmp_path, along)] == ["a.txt"]


@pytest.mark.parametrize(("module", "named"), [("mypkg.train", "mypkg"), ("tool", "tool.py")])
def test_a_module_counts_as_a_file_of_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, named: str
) -> None:
    a_tree(tmp_path, "tool.py", "mypkg/train.py")
    job = MPIJob(name="j", command=("python", "-m", module))
    assert code_upload.resolve(job, tmp_path, ()).code.path == str(tmp_path)
    assert code_upload.resolve(job.replace(command=("python", "-m", "mpi4py")), tmp_path, ()).code.path == ""
    monkeypatch.setattr(code_upload, "MAX_FILES", 1)
    assert code_upload.resolve(job, tmp_path, ()).code.include == (named,), (
        "of a large directory only what is named"
    )


def test_a_file_that_an_earlier_job_makes_is_missed_with_the_volume_that_brings_it(tmp_path: Path) -> None:
    (tmp_path / "heat.c").write_text("")
    job = code_upload.resolve(
        MPIJob(name="run", command=("./heat",), after=("build",), code=Code(path=".")), tmp_path, ()
    )
    with pytest.raises(InvalidJob) as caught:
        command_check.refuse_missing(job, "/bin", tmp_path)
    assert (
        "if build makes it, give both jobs volumes: [{mount: /shared, kind: claim, source: build}]"
        in caught.value.hint
    )
    assert "/shared/heat" in caught.value.hint
