"""The file operations behind workers' cgroups, against a directory tree that stands in for a delegated one.

No kernel stands behind this tree: what is shown is what would be written where, and in which order it
is refused. That a kernel then limits, counts and kills cannot be shown on a machine without a delegated
cgroup v2 directory, and the hierarchies of the machine that runs these tests are left as they are.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from mpijob.backends.local.worker import cgroups
from mpijob.errors import InvalidJob, Unsupported
from mpijob.settings import Settings, load


def stand_in(folder: Path, controllers: str = "cpuset cpu io memory pids") -> Path:
    folder.mkdir()
    (folder / "cgroup.controllers").write_text(f"{controllers}\n")
    return folder


@pytest.mark.parametrize("word", ["off", "auto"])
def test_nothing_is_made_unless_the_settings_name_a_directory_and_allow_it(tmp_path: Path, word: str) -> None:
    place = stand_in(tmp_path / "mine")
    named = str(place) if word == "off" else ""
    assert cgroups.choose_directory(Settings(cgroups=word, cgroup=named)) == ""
    assert [path.name for path in place.iterdir()] == ["cgroup.controllers"]


@pytest.mark.parametrize("word", ["auto", "on"])
def test_a_directory_that_can_be_used_is_used(tmp_path: Path, word: str) -> None:
    place = stand_in(tmp_path / "mine")
    assert cgroups.choose_directory(Settings(cgroups=word, cgroup=str(place))) == str(place)


@pytest.mark.parametrize(
    ("controllers", "trouble"),
    [
        (None, "is not a cgroup v2 directory"),
        ("cpu pids", "has no memory controller"),
        ("", "no cpu and no memory"),
    ],
)
def test_a_directory_that_cannot_be_used_is_left_alone_or_refused(
    tmp_path: Path, controllers: str | None, trouble: str
) -> None:
    place = tmp_path / "mine" if controllers is None else stand_in(tmp_path / "mine", controllers)
    assert cgroups.choose_directory(Settings(cgroups="auto", cgroup=str(place))) == ""
    with pytest.raises(Unsupported, match=trouble):
        cgroups.choose_directory(Settings(cgroups="on", cgroup=str(place)))


def test_a_directory_into_which_nothing_may_be_written_is_found_out_by_trying(tmp_path: Path) -> None:
    place = stand_in(tmp_path / "mine")
    (place / "cgroup.subtree_control").mkdir()  # writing fails for everybody, root included
    with pytest.raises(Unsupported, match="Is a directory"):
        cgroups.choose_directory(Settings(cgroups="on", cgroup=str(place)))


def test_on_without_a_directory_and_other_words_are_refused() -> None:
    with pytest.raises(Unsupported, match="names no directory"):
        cgroups.choose_directory(Settings(cgroups="on"))
    with pytest.raises(InvalidJob, match="it can be off, auto, on"):
        cgroups.choose_directory(Settings(cgroups="yes"))


def test_the_settings_come_from_the_environment_too() -> None:
    found = load({"MPIJOB_CGROUPS": "auto", "MPIJOB_CGROUP": "/sys/fs/cgroup/me", "HOME": "/nonexistent"})
    assert (found.cgroups, found.cgroup) == ("auto", "/sys/fs/cgroup/me")


def test_each_worker_gets_its_memory_and_its_cores(tmp_path: Path) -> None:
    place = stand_in(tmp_path / "mine")
    group = cgroups.attempt_cgroup(str(place), "abc", 2)
    assert group == place / "mpijob-abc-2"
    cgroups.prepare(group, range(2), 512 << 20, 1.5)
    assert (place / "cgroup.subtree_control").read_text() == "+memory +cpu"
    assert (group / "cgroup.subtree_control").read_text() == "+memory +cpu"
    for index in range(2):
        worker = cgroups.worker_cgroup(group, index)
        assert (worker / "memory.max").read_text() == "536870912"
        assert (worker / "cpu.max").read_text() == "150000 100000"
    (cgroups.worker_cgroup(group, 0) / "memory.swap.max").write_text("max")
    cgroups.prepare(group, range(2), 512 << 20, 1.5)  # twice is no error
    assert (cgroups.worker_cgroup(group, 0) / "memory.swap.max").read_text() == "0"


def test_a_process_enters_by_writing_0(tmp_path: Path) -> None:
    cgroups.enter(tmp_path)
    assert (tmp_path / "cgroup.procs").read_text() == "0"


@pytest.mark.parametrize(
    ("events", "count"),
    [("low 0\nhigh 0\nmax 9\noom 3\noom_kill 2\noom_group_kill 0\n", 2), ("", 0), (None, 0)],
)
def test_what_the_kernel_killed_for_memory_is_counted(tmp_path: Path, events: str | None, count: int) -> None:
    if events is not None:
        (tmp_path / "memory.events").write_text(events)
    assert cgroups.oom_kills(tmp_path) == count


def test_what_is_left_is_killed_at_once(tmp_path: Path) -> None:
    (tmp_path / "cgroup.events").write_text("populated 1\nfrozen 0\n")
    assert not cgroups.kill_and_remove(tmp_path, seconds=0.02)  # nobody dies in a stand-in
    assert (tmp_path / "cgroup.kill").read_text() == "1"


def test_an_empty_group_is_removed_and_one_that_is_gone_is_no_error(tmp_path: Path) -> None:
    group = tmp_path / "mpijob-abc-1"
    cgroups.worker_cgroup(group, 0).mkdir(parents=True)
    assert cgroups.kill_and_remove(group)
    assert not group.exists()
    assert cgroups.kill_and_remove(group)
    assert cgroups.attempt_cgroup("", "abc", 1) is None
