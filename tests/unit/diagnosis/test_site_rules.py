"""A site's own rules: read from a file, checked with line and column, tried, and used."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests import pages
from tests.unit.cli_support import Cli

from mpijob.backends import site_rule_loader
from mpijob.client.observe import diagnose
from mpijob.errors import InvalidJob, NotFound

GOOD = r"""
rules:
  - id: SITE_LICENCE
    title: The licence server does not answer
    literal: licence server
    pattern: 'cannot reach licence server (?P<server>\S+)'
    cause: "{who} got no licence from {server}."
    fixes:
      - text: use the second server
        patch: {env: {LICENCE_FILE: "27000@licence-2"}}
    examples:
      - "solver: cannot reach licence server lic1"
    innocent:
      - "licence server lic1 gave 4 tokens"
"""


def a_file(folder: Path, text: str = GOOD) -> str:
    path = folder / "rules.yaml"
    path.write_text(text)
    return str(path)


def faults(folder: Path, *changes: tuple[str, str]) -> list[str]:
    text = GOOD
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    try:
        _, found = site_rule_loader.check(a_file(folder, text))
    except InvalidJob as error:
        found = error.findings
    return [str(finding).partition("rules.yaml:")[2] for finding in found]


def test_a_rule_of_the_site_is_told_with_its_names_and_its_fix(tmp_path: Path) -> None:
    site = site_rule_loader.load(a_file(tmp_path))
    told = diagnose.of_logs(
        {"log": iter((b"[Rank-3] solver: cannot reach licence server lic9\n",))}, site=site
    )
    assert told.first is not None
    assert (told.first.code, told.first.message) == ("SITE_LICENCE", "Rank 3 got no licence from lic9.")
    assert told.fixes[0].patch == {"env": {"LICENCE_FILE": "27000@licence-2"}}


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("literal:", "literl:", "5:5: rules[0].literl: unknown field 'literl' in rules[0]; did you mean 'literal'?"),
        ("(?P<server>", "(?P<server", "6:14: rules[0].pattern: the pattern is not a regular expression"),
        ("SITE_LICENCE", "MEMORY_LIMIT", "3:9: rules[0].id: MEMORY_LIMIT is the ID of a built-in rule"),
        ("SITE_LICENCE", "licence", "3:9: rules[0].id: 'licence' is not a valid rule ID"),
        ("{server}.", "{srver}.", "7:12: rules[0].cause: {srver} is neither a group of the pattern nor known"),
        ("env: {L", "evn: {L", "10:16: rules[0].fixes[0].patch: the patch is not valid for a job"),
        ("reach licence server lic1", "find licence server lic1", "12:9: rules[0].examples[0]: the pattern"),
        ("lic1 gave", "cannot reach licence server x", "14:9: rules[0].innocent[0]: the pattern matches this text"),
        (r"(?P<server>\S+)'", r"(?P<server>(\S+)+)$'", "6:14: rules[0].pattern: the pattern"),
        ("literal: licence server", "literal: a", "5:14: rules[0].literal: the literal is too short"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_line_and_column(tmp_path: Path, old: str, new: str, told: str) -> None:
    found = faults(tmp_path, (old, new))
    assert any(one.startswith(told) for one in found), found


def test_a_rule_without_an_example_is_not_in_order(tmp_path: Path) -> None:
    (only,) = faults(tmp_path, ('    examples:\n      - "solver: cannot reach licence server lic1"\n', ""))
    assert "no example" in only


def test_two_rules_of_one_name_are_refused(tmp_path: Path) -> None:
    found = faults(tmp_path, (GOOD, GOOD + GOOD.partition("rules:\n")[2]))
    assert "SITE_LICENCE is already the ID of rule 1" in found[0]


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="does not exist"):
        site_rule_loader.load(str(tmp_path / "none.yaml"))


@pytest.mark.parametrize("text", ["", "- a", "rules: 3", "rules: [1]", "a: b"])
def test_a_file_of_something_else_is_refused_with_its_place(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidJob) as caught:
        site_rule_loader.load(a_file(tmp_path, text))
    assert caught.value.findings
    assert all(finding.line for finding in caught.value.findings)


def test_the_file_in_the_guide_is_in_order(tmp_path: Path) -> None:
    guide = pages.read("why")
    text = guide.partition("```\nrules:")[2].partition("```")[0]
    rules, wrong = site_rule_loader.check(a_file(tmp_path, "rules:" + text))
    assert (len(rules), wrong) == (1, ())


def test_the_command_tries_a_file(tmp_path: Path) -> None:
    cli = Cli()
    assert "1 rules, 2 examples, all in order" in cli.ok("rules", "test", a_file(tmp_path))
    bad = cli("rules", "test", a_file(tmp_path, GOOD.replace("SITE_LICENCE", "lower")))
    assert (bad.exit_code, "3:9" in bad.stdout) == (2, True)


def test_the_list_names_the_sites_rules_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPIJOB_RULES", a_file(tmp_path))
    names = Cli().ok("rules", "list", "-o", "name").split()
    assert names[0] == "SITE_LICENCE"
    assert "MEMORY_LIMIT" in names
    assert Cli().json("rules", "list")[0]["from"] == "site"


def test_on_a_cluster_the_rules_of_the_site_are_part_of_a_jobs_state(tmp_path: Path) -> None:
    from tests.unit.formats.test_cluster_fixtures import objects

    from mpijob.backends.kubernetes.status import derive_state

    told, seen = objects("trainjob-rank-exit")
    log = told["launcher_log"].replace(
        "mpijob-exit", "solver: cannot reach licence server lic9\nmpijob-exit", 1
    )
    plain = derive_state.derive(seen, now=told["now"], launcher_log=log)
    known = derive_state.derive(seen, now=told["now"], launcher_log=log, rules=a_file(tmp_path))
    broken = derive_state.derive(seen, now=told["now"], launcher_log=log, rules=str(tmp_path / "none.yaml"))
    assert plain.findings[0].code == broken.findings[0].code == "PROGRAM_ERROR"
    assert known.findings[0].code == "SITE_LICENCE"
    assert known.message == known.findings[0].message
