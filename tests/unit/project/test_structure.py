"""What a maintainer may count on: files and functions of a size to read, no cycle, errors that are not swallowed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tools import measure
from tools.measure import Module

MOST_LINES_IN_A_FILE = 800
MOST_FILES_IN_A_FOLDER = 15
MOST_LINES_IN_A_FUNCTION = 60
LARGE_FOLDERS = {  # folder → a reason that a reader would accept
    "cli/commands": "one module for each command",
}
LONG: dict[str, str] = {}  # module:function → a reason that a reader would accept
OUTERMOST = {  # where whatever comes may end, and why
    "mpijob.api.app:endpoint": "the page gets a sentence",
    "mpijob.api.live.job_index:_run_forever": "the board goes on, and logs it",
    "mpijob.api.live.websockets:serve": "the visitor gets a sentence",
    "mpijob.api.live.sse:_log_batches": "the reader of a log gets a sentence at its end",
    "mpijob.api.live.sse:_read": "a task's: raised where the lines are read",
    "mpijob.backends.kubernetes.broker.server:_answer": "the asker gets an answer",
    "mpijob.serving.server:_run": "what ends a server's thread is said",
    "mpijob.backends.kubernetes.logs.log_follower:_poll_job": "a thread's: raised where the lines are read",
    "mpijob.backends.kubernetes.recorder.log_capture:run": "a thread's: logged, the other voices are heard further",
    "mpijob.backends.kubernetes.client.concurrent:work": "a thread's: raised where the caller is",
    "mpijob.backends.kubernetes.client.informer:run": "a thread's: logged, the other listeners are served further",
    "mpijob.backends.kubernetes.controller.work_queue:_reconcile_safely": "a thread's: logged, the other jobs go on",
    "mpijob.backends.local.supervisor.usage:_load_driver": "a driver's library: a job goes on without its figures",
    "mpijob.backends.local.worker.process_tree:fork_child": "a forked child's: printed, then it ends",
    "mpijob.cli.root:_status": "the user gets a sentence",
    "mpijob.client.threads:_work": "a thread's: raised where the stream is read",
    "mpijob.cluster.operator:_guarded": "logged, the next reconciliation may succeed",
}
TESTS = [*Path(__file__).parents[3].glob("test*/**/*.py")]
pytestmark = pytest.mark.xdist_group("structure")  # all of it is measured once
LATER = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")


@pytest.fixture(scope="module")
def source() -> list[Module]:
    return measure.modules()


@pytest.mark.thorough
def test_no_file_is_too_long_to_read(source: list[Module]) -> None:
    assert not {one.name: one.lines for one in source if one.lines > MOST_LINES_IN_A_FILE}


@pytest.mark.thorough
def test_no_folder_holds_too_many_modules(source: list[Module]) -> None:
    folders = measure.folders(source)
    large = {
        str(Path(folder).relative_to(measure.SOURCE)): count
        for folder, count in folders.items()
        if count > MOST_FILES_IN_A_FOLDER
    }
    assert large.keys() == LARGE_FOLDERS.keys(), large


@pytest.mark.thorough
def test_no_test_file_is_too_long_to_read() -> None:
    sizes = {str(path): len(path.read_text().splitlines()) for path in TESTS}
    assert len(sizes) > 300
    assert {path: lines for path, lines in sizes.items() if lines > MOST_LINES_IN_A_FILE} == {}


@pytest.mark.thorough
def test_no_function_is_too_long_without_a_reason(source: list[Module]) -> None:
    parts = [part for one in source for part in measure.functions(one)]
    long = {part.place for part in parts if measure.length(part.node) > MOST_LINES_IN_A_FUNCTION}
    assert long == LONG.keys()


@pytest.mark.thorough
def test_whatever_comes_ends_only_in_outermost_places(source: list[Module]) -> None:
    assert {part.place for one in source for part in measure.broad_handlers(one)} == OUTERMOST.keys()


@pytest.mark.thorough
def test_nothing_is_left_for_later(source: list[Module]) -> None:
    assert not [one.name for one in source if LATER.search(one.text)]


@pytest.mark.thorough
def test_modules_do_not_import_each_other_in_a_circle(source: list[Module]) -> None:
    """Not within their functions either; what is imported for type checkers alone does not count."""
    assert measure.cycles(measure.import_graph(source)) == []


@pytest.mark.thorough
def test_a_circle_would_be_seen(tmp_path: Path) -> None:
    package = tmp_path / "project"
    package.mkdir()
    package.joinpath("__init__.py").touch()
    package.joinpath("a.py").write_text("from project import b\n")
    package.joinpath("b.py").write_text("from project.c import x\n")
    package.joinpath("c.py").write_text("try:\n    import project.a\nexcept ImportError:\n    x = 1\n")
    package.joinpath("d.py").write_text(
        "def f():\n    import project.d\n    from project import a\n    import project.e\n"
    )
    package.joinpath("e.py").write_text("from project import d\n")
    package.joinpath("g.py").write_text("if TYPE_CHECKING:\n    from project import h\n")
    package.joinpath("h.py").write_text("from project import g\n")
    found = measure.modules(package)
    assert measure.cycles(measure.import_graph(found)) == [
        ["project.a", "project.b", "project.c"],
        ["project.d", "project.e"],
    ]
    known = frozenset(one.name for one in found)
    assert [measure.imports(one, known, deferred=True) for one in found if one.name == "project.d"] == [
        {"project.a", "project.e"}
    ]


@pytest.mark.thorough
def test_the_row_beside_the_others_is_about_true(source: list[Module]) -> None:
    """Within a fifth: it is written anew when the project has changed, not with each commit."""
    written = next(line for line in measure.PAGE.read_text().splitlines() if line.startswith(measure.BEGIN))
    told, now = (
        [float(number) for number in re.findall(r"\d+(?:\.\d+)?", row)]
        for row in (written, measure.measure().written())
    )
    assert len(told) == len(now)
    wrong = [(old, new) for old, new in zip(told, now, strict=True) if abs(old - new) > max(2, 0.2 * new)]
    assert not wrong, "python -m tools.measure --write"
