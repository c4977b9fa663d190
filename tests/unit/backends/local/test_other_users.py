"""What belongs to another user, or can be changed by one, is neither believed nor run, nor taken away."""

from __future__ import annotations

import ast
import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.other_user import NOBODY, SOMEBODY, give, result_as

from mpijob import ownership, settings
from mpijob.backends import site_rule_loader
from mpijob.backends.local.queue import runner
from mpijob.backends.local.storage import private_dirs
from mpijob.backends.local.storage.paths import Home
from mpijob.backends.local.storage.private_dirs import PrivateDirs
from mpijob.backends.local.supervisor.attempt_spec import PRIVATE, AttemptSpec
from mpijob.backends.local.worker import isolation
from mpijob.errors import UnsafePath
from mpijob.model import Family, MPIJob, Plan

pytestmark = [pytest.mark.security, pytest.mark.hostile]


@pytest.fixture
def short(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory of ours with a path that is short enough for sockets."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as place:
        yield Path(place)


@pytest.fixture
def attempt(tmp_path: Path) -> Path:
    place = tmp_path / "home" / "jobs" / "u1" / "a1"
    place.mkdir(parents=True)
    return place


def created(attempt: Path, **environ: str) -> PrivateDirs:
    return private_dirs.create(attempt, private_dirs.parents(Home(attempt.parents[2]), environ))


def check_refused(act: Callable[[], object]) -> None:
    with pytest.raises(UnsafePath) as caught:
        act()
    assert (caught.value.code, bool(caught.value.hint)) == ("UNSAFE_PATH", True)


# -- the private directories of an attempt ----------------------------------------------------------
def test_every_attempt_has_new_directories_that_are_closed_to_others(attempt: Path, short: Path) -> None:
    first, second = created(attempt, TMPDIR=str(short)), created(attempt, TMPDIR=str(short))
    paths = [one.path for made in (first, second) for one in (made.run, made.temporary)]
    assert len(set(paths)) == 4
    assert {stat.S_IMODE(os.lstat(path).st_mode) for path in paths} == {0o700}
    assert all(len(os.path.basename(path).removeprefix("mpijob-")) == 16 for path in paths)


def test_the_agent_is_in_the_users_runtime_directory_and_large_files_are_not(
    attempt: Path, short: Path
) -> None:
    runtime, temporary = short / "runtime", short / "tmp"
    runtime.mkdir(mode=0o700)
    temporary.mkdir()
    made = created(attempt, XDG_RUNTIME_DIR=str(runtime), TMPDIR=str(temporary))
    assert os.path.dirname(made.run.path) == str(runtime)
    assert os.path.dirname(made.temporary.path) == str(temporary)


def _of_another(place: Path) -> Path:
    place.mkdir(mode=0o700)
    give(place, NOBODY)
    return place


def _open_to_all(place: Path) -> Path:
    place.mkdir()
    place.chmod(0o755)
    return place


def _link(place: Path) -> Path:
    (target := place.with_name("target")).mkdir(mode=0o700)
    place.symlink_to(target)
    return place


def _long(place: Path) -> Path:
    (place := place / ("x" * 50)).mkdir(mode=0o700, parents=True)
    return place


def _odd(place: Path) -> Path:
    (place := place.with_name("a b")).mkdir(mode=0o700)
    return place


@pytest.mark.parametrize("make", [_of_another, _open_to_all, _link, _long, _odd, Path])
def test_a_runtime_directory_that_is_not_one_is_not_used(
    attempt: Path, short: Path, make: Callable[[Path], Path]
) -> None:
    made = created(attempt, XDG_RUNTIME_DIR=str(make(short / "runtime")), TMPDIR=str(short))
    assert os.path.dirname(made.run.path) == str(short)


def _not_sticky(place: Path) -> Path:
    place.mkdir()
    place.chmod(0o777)
    return place


def _sticky_of_another(place: Path) -> Path:
    place.mkdir()
    place.chmod(0o1777)
    give(place, NOBODY)
    return place


@pytest.mark.parametrize("make", [_not_sticky, _sticky_of_another, _of_another, _long, _odd])
def test_a_directory_in_which_others_could_exchange_ours_is_not_used(
    attempt: Path, short: Path, make: Callable[[Path], Path]
) -> None:
    bad = make(short / "tmp")
    made = created(attempt, TMPDIR=str(bad))
    assert str(bad) not in (os.path.dirname(made.run.path), os.path.dirname(made.temporary.path))
    private_dirs.remove(attempt)


def test_a_directory_that_hides_behind_another_in_the_jobs_namespace_is_not_used(
    attempt: Path, short: Path
) -> None:
    found = private_dirs.parents(Home(attempt.parents[2]), {"TMPDIR": str(short)})
    short.rename(moved := short.with_name(short.name + "-moved"))
    short.mkdir(mode=0o700)  # as a volume of the job would lie over it
    try:
        made = private_dirs.create(attempt, found)
        assert os.path.dirname(made.run.path) == "/tmp"
    finally:
        moved.rmdir()
        private_dirs.remove(attempt)


def _replaced_by_another(path: Path) -> None:
    path.rmdir()
    path.mkdir(mode=0o777)
    give(path, NOBODY)


def _replaced_by_ours(path: Path) -> None:
    path.rename(path.with_name("before"))
    path.mkdir(mode=0o700)


def _replaced_by_link(path: Path) -> None:
    path.rename(target := path.with_name("before"))
    path.symlink_to(target)


@pytest.mark.parametrize(
    "change",
    [_replaced_by_another, _replaced_by_ours, _replaced_by_link, lambda path: path.chmod(0o755), Path.rmdir],
    ids=["another", "ours", "link", "mode", "gone"],
)
@pytest.mark.parametrize("which", ["run", "temporary"])
def test_a_private_directory_that_was_changed_is_not_used(
    attempt: Path, short: Path, which: str, change: Callable[[Path], None]
) -> None:
    made = created(attempt, TMPDIR=str(short))
    made.check()
    change(Path(getattr(made, which).path))
    check_refused(made.check)


def test_only_what_is_there_can_have_been_exchanged(attempt: Path, short: Path) -> None:
    made = created(attempt, TMPDIR=str(short))
    Path(made.run.path).rmdir()
    made.check(missing_ok=True)
    _replaced_by_another(Path(made.temporary.path))
    check_refused(lambda: made.check(missing_ok=True))


def test_a_cleaner_that_heeds_locks_leaves_the_directories_of_a_job_alone(attempt: Path, short: Path) -> None:
    made = created(attempt, TMPDIR=str(short))
    held = made.lock()
    cleaner = os.open(made.run.path, os.O_RDONLY)
    with pytest.raises(BlockingIOError):
        fcntl.flock(cleaner, fcntl.LOCK_EX | fcntl.LOCK_NB)
    for fd in (*held, cleaner):
        os.close(fd)


def test_what_was_made_is_taken_away_with_all_that_is_in_it_and_no_link_is_followed(
    attempt: Path, short: Path, tmp_path: Path
) -> None:
    (precious := tmp_path / "precious").write_text("mine")
    made = created(attempt, TMPDIR=str(short))
    (Path(made.run.path) / "agent").symlink_to(precious)
    (Path(made.temporary.path) / "data").symlink_to(tmp_path)
    private_dirs.remove(attempt)
    assert list(short.iterdir()) == []
    assert precious.read_text() == "mine"


@pytest.mark.parametrize("change", [_replaced_by_another, _replaced_by_ours, _replaced_by_link])
def test_what_is_not_ours_any_more_is_not_taken_away(
    attempt: Path, short: Path, change: Callable[[Path], None]
) -> None:
    made = created(attempt, TMPDIR=str(short))
    change(place := Path(made.run.path))
    private_dirs.remove(attempt)
    assert os.path.lexists(place)
    assert not os.path.lexists(made.temporary.path)


def test_directories_that_were_planned_when_their_maker_was_killed_are_taken_away(
    attempt: Path, short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = private_dirs.parents(Home(attempt.parents[2]), {"TMPDIR": str(short)})
    with monkeypatch.context() as killed:
        killed.setattr(private_dirs.PrivateDirs, "check", lambda self, **_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            private_dirs.create(attempt, found)
    private_dirs.remove(attempt)
    assert list(short.iterdir()) == []


def test_without_its_namespaces_an_attempt_has_no_pipe_where_others_can_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """/dev/shm is the job's own only inside its mount namespace; here leaving for one fails when the job starts."""
    plan = Plan(
        job=MPIJob(name="j", command=("true",)), uid="u1", engine="local", family=Family.MPICH, family_version="",
        workers=(), world=1, hostfile="", launch=(), env={}, isolation="namespaces",
    )  # fmt: skip
    orders = AttemptSpec(Home(tmp_path), "u1", 1, plan, ())
    assert orders.pipes == PRIVATE

    def refuse() -> None:
        raise PermissionError

    told = tmp_path / "told"
    monkeypatch.setattr(isolation, "unshare_namespaces", refuse)
    monkeypatch.setattr(
        runner, "_supervise", lambda home, orders, prepare: told.write_text(str(orders.pipes))
    )
    pid = runner._fork_supervisor(Home(tmp_path), orders)
    os.waitpid(pid, 0)
    assert told.read_text() == str(orders.directory / "pipes")
    assert orders.isolation is isolation.Isolation.GROUPS


def test_the_name_in_a_plan_is_never_used(tmp_path: Path) -> None:
    """It is known from the job's uid, so anybody could make it."""
    named = private_dirs.placeholder("0123456789abcdef")
    plan = Plan(
        job=MPIJob(name="j", command=("true",)), uid="0123456789abcdef", engine="local", family=Family.MPICH,
        family_version="", workers=(), world=1, hostfile="", launch=("mpiexec", "-f", f"{named}/hostfile"),
        census_launch=("mpiexec", f"--agent={named}/agent"), env={"HYDRA_LAUNCHER_EXEC": f"{named}/agent"},
        isolation="process-groups",
    )  # fmt: skip
    orders = AttemptSpec(Home(tmp_path), plan.uid, 1, plan, ())
    orders.prepare()
    run_dir = orders.private.run.path
    assert orders.launch == ("mpiexec", "-f", f"{run_dir}/hostfile")
    assert orders.census_launch == ("mpiexec", f"--agent={run_dir}/agent")
    assert orders.environ()["HYDRA_LAUNCHER_EXEC"] == f"{run_dir}/agent"
    assert named not in " ".join(orders.environ().values())
    assert not os.path.lexists(named)
    private_dirs.remove(orders.directory)


def test_only_the_planner_and_an_attempts_orders_read_the_line_and_the_variables_of_a_plan() -> None:
    """The orders alone put the run directory in the place of its name; the planner keeps that name."""
    source = Path(private_dirs.__file__).parents[1]
    readers = {
        path.name
        for path in source.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and node.attr in ("launch", "census_launch", "env")
        and ast.unparse(node.value).endswith("plan")
    }
    assert readers == {"attempt_spec.py", "planner.py"}


# -- the engine's home ------------------------------------------------------------------------------
def test_a_home_of_another_user_is_refused(tmp_path: Path) -> None:
    give(_open_to_all(tmp_path / "home"), NOBODY)
    check_refused(Home(tmp_path / "home").ensure)


def _ensured(place: Path) -> str:
    Home(place).ensure()
    return "fine"


def test_a_home_of_roots_is_refused_to_a_user(short: Path) -> None:
    short.chmod(0o755)
    _open_to_all(short / "home")
    assert result_as(SOMEBODY, lambda: _ensured(short / "home")).startswith("UnsafePath")


@pytest.mark.parametrize("make", [_not_sticky, _sticky_of_another])
def test_a_home_that_others_could_exchange_is_refused(short: Path, make: Callable[[Path], Path]) -> None:
    home = make(short / "shared") / "deep" / "home"
    check_refused(Home(home).ensure)
    assert not home.exists()


def test_a_home_behind_a_link_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    give(tmp_path / "link", NOBODY)
    check_refused(Home(tmp_path / "link" / "home").ensure)


def test_a_home_in_a_sticky_directory_or_behind_a_link_of_ones_own_is_fine(short: Path) -> None:
    (shared := short / "shared").mkdir()
    shared.chmod(0o1777)
    (short / "link").symlink_to("shared")
    Home(short / "link" / "home").ensure()
    assert stat.S_IMODE((shared / "home").stat().st_mode) == 0o700


def test_a_home_of_ones_own_that_is_open_to_others_is_closed(tmp_path: Path) -> None:
    _not_sticky(tmp_path / "home")
    Home(tmp_path / "home").ensure()
    assert stat.S_IMODE((tmp_path / "home").stat().st_mode) == 0o700


def test_a_home_behind_links_in_a_circle_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    check_refused(Home(tmp_path / "a" / "home").ensure)


# -- files that are believed ------------------------------------------------------------------------
@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "settings.toml"
    path.write_text('namespace = "evil"\n')
    path.chmod(0o644)
    return path


def loaded(path: Path) -> str:
    return settings.load({"MPIJOB_SETTINGS": str(path), "HOME": "/nowhere"}).namespace


def test_a_settings_file_of_another_user_is_not_believed(written: Path) -> None:
    assert loaded(written) == "evil"
    give(written, NOBODY)
    check_refused(lambda: loaded(written))


@pytest.mark.parametrize("mode", [0o646, 0o666])
def test_a_settings_file_that_everybody_may_write_is_not_believed(written: Path, mode: int) -> None:
    written.chmod(mode)
    check_refused(lambda: loaded(written))


def test_a_settings_file_that_a_group_of_others_may_write_is_not_believed(written: Path) -> None:
    os.chown(written, -1, os.getgid())
    written.chmod(0o664)
    assert loaded(written) == "evil", "the group is one's own"
    os.chown(written, -1, SOMEBODY)
    check_refused(lambda: loaded(written))


def test_a_settings_file_of_roots_is_believed_by_everybody(short: Path) -> None:
    short.chmod(0o755)
    (path := short / "settings.toml").write_text('namespace = "site"\n')
    path.chmod(0o644)
    assert result_as(SOMEBODY, lambda: loaded(path)) == "site"


def test_rules_that_everybody_may_write_are_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text("rules: []\n")
    path.chmod(0o666)
    check_refused(lambda: site_rule_loader.load(str(path)))
    assert site_rule_loader.load_if_valid(str(path)) == ()


def test_users_that_a_namespace_does_not_know_are_told_apart_only_outside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert not ownership.trusted(NOBODY)
    monkeypatch.setattr(ownership, "_in_user_namespace", lambda: True)
    assert ownership.trusted(NOBODY)
    assert not ownership.trusted(SOMEBODY)
