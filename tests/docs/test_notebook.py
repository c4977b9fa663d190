"""A notebook with a real kernel: blocking calls in its running loop, a job that shows itself, a live widget."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from tests.docs.readers import ROOT, an_environment

pytestmark = pytest.mark.engine

SUBMIT = """
import asyncio
assert asyncio.get_running_loop().is_running()
from mpijob import Client, MPIJob
client = Client()
job = client.run(MPIJob(name="hello", workers=2, command=["python", "-c", "print('hello')"]), timeout=60)
print(sorted(line.source for line in job.logs()))
"""
FAIL = """
from mpijob import JobFailed
try:
    client.run(MPIJob(name="broken", workers=2, command=["python", "-c", "raise SystemExit(3)"]), timeout=60)
except JobFailed as error:
    print(error.code, error.findings[0].code)
"""
ASYNC = """
from mpijob import AsyncClient
async with AsyncClient() as loop_client:
    print((await loop_client.state("hello")).phase.value)
"""
FIRST_JOB = ROOT / "examples" / "notebook" / "first_job.ipynb"
HIDE_WIDGETS = "import sys; sys.modules['ipywidgets'] = None"


@pytest.fixture(autouse=True)
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Describe the kernel in a directory of the test's own, and leave the user's alone."""
    spec = tmp_path / "jupyter" / "kernels" / "mpijob-test"
    spec.mkdir(parents=True)
    environ = {**an_environment(tmp_path), "IPYTHONDIR": str(tmp_path / "ipython")}
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    described = {"argv": argv, "display_name": "test", "language": "python", "env": environ}
    (spec / "kernel.json").write_text(json.dumps(described))
    for name, folder in (("JUPYTER_PATH", "jupyter"), ("JUPYTER_RUNTIME_DIR", "run"), ("HOME", "home")):
        monkeypatch.setenv(name, str(tmp_path / folder))
    for name in [name for name in os.environ if name.startswith("MPIJOB_")]:
        monkeypatch.delenv(name)


def outputs(folder: Path, *cells: str) -> list[list[Any]]:
    """Run the cells in order in one kernel and return what each of them put out."""
    make: Any = nbformat.v4  # it has no types
    book = make.new_notebook(cells=[make.new_code_cell(text) for text in cells])
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(book, kernel_name="mpijob-test", timeout=120, resources=resources).execute()
    return [cell.outputs for cell in book.cells]


def text(shown: list[Any]) -> str:
    return "".join(output.get("text", "") for output in shown)


@pytest.mark.req("E-sdk", "FR-SDK-001")
def test_a_job_runs_shows_itself_and_explains_its_failure_in_a_notebook(tmp_path: Path) -> None:
    ran, shown, widget, failed, awaited = outputs(tmp_path, SUBMIT, "job", "job.widget()", FAIL, ASYNC)
    assert text(ran) == "['Rank-0', 'Rank-1']\n"
    assert "hello <b" in shown[0]["data"]["text/html"]
    assert "Succeeded" in shown[0]["data"]["text/html"]
    assert "application/vnd.jupyter.widget-view+json" in widget[0]["data"]
    assert text(failed).split() == ["JOB_FAILED", "RANK_EXIT"]
    assert text(awaited) == "Succeeded\n"


def test_without_ipywidgets_a_line_of_text_takes_the_widgets_place(tmp_path: Path) -> None:
    *_, shown = outputs(tmp_path, HIDE_WIDGETS, SUBMIT, "job.widget()")
    assert "default/hello Succeeded, workers 2/2 Succeeded" in shown[0]["data"]["text/plain"]
    assert "application/vnd.jupyter.widget-view+json" not in shown[0]["data"]


@pytest.mark.req("C-docs", "FR-014", "SC-001", "AC9")
def test_the_getting_started_notebook_works_from_the_first_cell_to_the_last(tmp_path: Path) -> None:
    book = json.loads(FIRST_JOB.read_text(encoding="utf-8"))
    cells = ["".join(cell["source"]) for cell in book["cells"] if cell["cell_type"] == "code"]
    hello, shown, function, broken, why, curve, widget, ended, _ = outputs(tmp_path, *cells)
    assert sorted(text(hello).split("\n")) == ["", "Rank-0 hello", "Rank-1 hello"]
    assert "Succeeded" in shown[0]["data"]["text/html"]
    assert text(function).startswith("pi is about 3.1")
    assert text(broken).startswith("PYTHON_EXCEPTION - Rank 1")
    assert "ValueError: the data is not there" in text(why)
    assert text(curve) == "['loss'] 100%\n"
    assert "application/vnd.jupyter.widget-view+json" in widget[0]["data"]
    assert text(ended) == "Succeeded\n"


@pytest.mark.parametrize("book", sorted(FIRST_JOB.parent.glob("*.ipynb")), ids=lambda book: book.stem)
def test_a_notebook_holds_no_output_of_an_earlier_run(book: Path) -> None:
    cells = json.loads(book.read_text(encoding="utf-8"))["cells"]
    assert [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")] == []
