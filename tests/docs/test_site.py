"""The documentation site: every page is in its navigation, links are made for it, and nothing is fetched."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from tools import matrix, site
from tools.requirements import Shown

ROOT = Path(__file__).resolve().parents[2]
CONFIG = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))


@pytest.mark.req("C-docs")
def test_every_page_of_the_navigation_exists_and_stands_there_once() -> None:
    told = list(site.named(CONFIG["nav"]))
    made = {*site.LISTS, *(site.outside(path) for path in site.ALWAYS)}
    assert len(told) == len(set(told))
    assert [name for name in told if name not in made and not (site.DOCS / name).is_file()] == []


def test_a_page_that_nobody_named_comes_last() -> None:
    missing = site.unnamed([{"Start": ["README.md"]}])
    assert "tutorials/first-job.md" in missing
    assert "reference/cli.md" in missing
    assert "README.md" not in missing


@pytest.mark.req("C-docs")
def test_the_pages_are_arranged_by_what_a_reader_wants() -> None:
    sections = [next(iter(section)) for section in CONFIG["nav"]]
    assert sections[1:5] == ["Tutorials", "How-to guides", "Reference", "Explanation"]
    assert CONFIG["strict"] is True


@pytest.mark.req("C-docs")
def test_the_first_screen_sends_each_kind_of_reader_to_a_page() -> None:
    first_screen = (site.DOCS / "README.md").read_text(encoding="utf-8").splitlines()[:30]
    for page in (
        "tutorials/first-job.md",
        "for-data-scientists.md",
        "for-mlops-engineers.md",
        "for-administrators.md",
    ):
        assert f"({page})" in "\n".join(first_screen)


def test_links_out_of_the_docs_are_made_for_the_site() -> None:
    text = "[a](../ARCHITECTURE.md) [r](../deploy/base/audit/policy.yaml) [e](../examples/hello/) [d](decisions/)"
    assert site.rewritten(text, site.DOCS / "audit.md", "audit.md") == (
        "[a](project/architecture.md) [r](files/deploy/base/audit/policy.yaml.txt) "
        "[e](examples/README.md) [d](decisions/README.md)"
    )


def test_what_stands_in_a_code_block_is_left_alone() -> None:
    text = "```text\n[a](../ARCHITECTURE.md)\n```\n"
    assert site.rewritten(text, site.DOCS / "audit.md", "audit.md") == text


def test_a_page_that_fetches_from_elsewhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "good.html").write_text('<a href="https://example.org">x</a><script src="a.js">')
    assert site.fetched(tmp_path) == []
    (tmp_path / "bad.html").write_text('<script src="https://example.org/x.js">')
    assert site.fetched(tmp_path) == ["bad.html: https://example.org/x.js"]


@pytest.mark.req("NFR-004")
def test_the_matrix_says_what_the_last_run_showed() -> None:
    row = matrix.ROWS[0]
    assert matrix.verdict(row, [Shown(row.test, "passed", ())]) == "verified"
    assert matrix.verdict(row, [Shown(row.test, "failed", ())]) == "FAILED"
    assert matrix.verdict(row, []) == "not run lately"
    assert matrix.verdict(matrix.Row("X", "1", "any"), []) == "not run here"


def test_the_matrix_is_not_written_from_half_of_the_results(tmp_path: Path) -> None:
    page, runs = tmp_path / "page.md", [tmp_path / "local.json", tmp_path / "cluster.json"]
    page.write_text("as it was")
    runs[0].write_text('{"tests": []}')
    assert "cluster.json not there" in matrix.main(page, runs)
    assert page.read_text() == "as it was"
    runs[1].write_text('{"tests": []}')
    assert matrix.main(page, runs) == ""
    assert "not run lately" in page.read_text()


@pytest.mark.req("NFR-004")
def test_every_test_that_the_matrix_names_exists() -> None:
    for row in matrix.ROWS:
        if row.test:
            file, _, name = row.test.partition("[")[0].partition("::")
            assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8")


@pytest.mark.req("NFR-004")
def test_the_page_of_the_matrix_has_every_row_and_only_the_verdicts_may_have_aged() -> None:
    written = matrix.PAGE.read_text(encoding="utf-8").splitlines()
    due = matrix.page([]).splitlines()
    assert len(written) == len(due), f"to write it anew: {matrix.COMMAND}"
    for old, new in zip(written, due, strict=True):
        assert old == new or new.replace("not run lately", "verified") == old
