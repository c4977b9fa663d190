"""The tests are held to rules themselves: each one can fail, none is skipped, hostile input is covered."""

from __future__ import annotations

import ast
import functools
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools import second_tries

TESTS = Path(__file__).resolve().parents[2]
FILES = sorted(TESTS.rglob("test_*.py"))
Function = ast.FunctionDef | ast.AsyncFunctionDef
pytestmark = pytest.mark.xdist_group("tests of the tests")  # every file is parsed once


@functools.cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def functions(scope: ast.Module | ast.ClassDef) -> Iterator[Function]:
    for node in scope.body:
        if isinstance(node, Function) and node.name.startswith("test_"):
            yield node
        elif isinstance(node, ast.ClassDef):
            yield from functions(node)


_JUDGES = ("raises", "warns", "fail", "expect", "eventually")  # `expect` is Playwright's


def can_fail(function: Function) -> bool:
    """Return whether a test asserts something itself, or through check_…, expect_… or pytest.raises."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assert):
            return True
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func).rpartition(".")[2]
            if name in _JUDGES or name.startswith(("check_", "expect_")):
                return True
    return False


def toothless(tree: ast.Module) -> list[str]:
    helpers = {node.name for node in tree.body if isinstance(node, Function) and can_fail(node)}
    return [one.name for one in functions(tree) if not can_fail(one) and helpers.isdisjoint(_called(one))]


def _called(function: Function) -> Iterator[str]:
    return (ast.unparse(node.func) for node in ast.walk(function) if isinstance(node, ast.Call))


def marked(tree: ast.Module, mark: str) -> list[str]:
    """Return the tests of a module that carry a mark, on themselves, their class or the module."""
    names = {function.name for function in functions(tree) if _decorated(function, mark)}
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and _decorated(node, mark):
            names |= {function.name for function in functions(node)}
        if isinstance(node, ast.Assign) and re.match(rf"pytestmark = .*mark\.{mark}\b", ast.unparse(node)):
            names |= {function.name for function in functions(tree)}
    return sorted(names)


def _decorated(node: Function | ast.ClassDef, mark: str) -> bool:
    return any(f"mark.{mark}" in ast.unparse(decorator) for decorator in node.decorator_list)


@pytest.mark.parametrize(
    ("body", "fails"),
    [
        ("assert x", True),
        ("with pytest.raises(ValueError): f()", True),
        ("check_order(x)", True),
        ("helpers.expect_lines(x)", True),
        ("f()", False),
        ("checked = f()", False),
    ],
)
def test_a_test_that_asserts_nothing_is_recognised(body: str, fails: bool) -> None:
    assert toothless(ast.parse(f"def test_it(): \n    {body}")) == ([] if fails else ["test_it"])


def test_marks_are_found_on_functions_classes_and_modules() -> None:
    function = "@pytest.mark.security\ndef test_a(): assert 1\ndef test_b(): assert 1"
    group = "@pytest.mark.security\nclass TestIt:\n    def test_c(self): assert 1"
    module = "pytestmark = [pytest.mark.security]\ndef test_d(): assert 1"
    found = [marked(ast.parse(source), "security") for source in (function, group, module)]
    assert found == [["test_a"], ["test_c"], ["test_d"]]


@pytest.mark.thorough
def test_every_test_can_fail() -> None:
    assert {str(path): names for path in FILES if (names := toothless(parse(path)))} == {}


@pytest.mark.thorough
def test_no_test_is_skipped_by_a_mark() -> None:
    assert {str(path): names for path in FILES if (names := marked(parse(path), "skip"))} == {}


@pytest.mark.thorough
def test_only_quarantined_tests_have_a_second_try_and_each_of_them_exists_with_a_reason() -> None:
    assert {str(path): names for path in FILES if (names := marked(parse(path), "flaky"))} == {}
    known = {
        f"{path.relative_to(TESTS.parent)}::{function.name}"
        for path in FILES
        for function in functions(parse(path))
    }
    listed = second_tries.quarantined(TESTS.parent)
    assert listed.keys() <= known
    assert all(len(reason.split()) > 4 for reason in listed.values())


@pytest.mark.req("D-tests")
def test_at_least_25_tests_are_marked_security() -> None:
    assert sum(len(marked(parse(path), "security")) for path in FILES) >= 25


IN_GROUPS = """
import pytest

@pytest.mark.parametrize("number", range(6))
@pytest.mark.xdist_group("{name}")
def test_alone(number: int) -> None:
    assert number >= 0
"""


def spread(directory: Path, *flags: str) -> str:
    """Run the tests of a directory in two processes by groups; return what was printed."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    words = ("-v", "--numprocesses", "2", "--dist", "loadgroup", "-p", "no:cacheprovider", *flags)
    argv = [sys.executable, "-m", "pytest", *words, str(directory)]
    environ["PYTHONPATH"] = str(TESTS.parent)
    done = subprocess.run(argv, cwd=directory, env=environ, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.thorough
def test_a_group_of_tests_has_one_process_for_all(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"test_{name}.py").write_text(IN_GROUPS.format(name=name))
    said = spread(tmp_path)
    who = re.findall(r"^\[(gw\d)\].* PASSED .*test_(one|two)\.py", said, re.MULTILINE)
    assert (len(who), len(set(who))) == (12, 2), said


ALONE = """
import os, pytest

def note(word):
    with open("{log}", "a") as log:
        log.write(word + "\\n")

@pytest.mark.parametrize("number", range(5))
def test_beside(number: int) -> None:
    note("beside")
    note("beside")

@pytest.mark.alone
@pytest.mark.parametrize("number", range(3))
def test_alone(number: int) -> None:
    note("alone")
    note("alone")
"""


@pytest.mark.thorough
def test_cluster_tests_that_run_alone_follow_each_other_and_nobody_runs_beside_them(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = alone: has the cluster to itself\n")
    for name in ("one", "two", "three"):
        (tmp_path / f"test_{name}.py").write_text(ALONE.format(log=tmp_path / "log"))
    said = spread(tmp_path, "-p", "tests.e2e.cluster.turns")
    order = (tmp_path / "log").read_text().split()
    first = order.index("alone")
    assert order[first : first + 18] == ["alone"] * 18, said
    assert order.count("beside") == 30
