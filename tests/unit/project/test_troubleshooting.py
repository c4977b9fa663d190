"""Every code that a user can see has its page, and the page says what the code says.

Pages of rules are written from the rules. The others are written by hand; what they quote is compared
with what is really said.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.docs.blocks import matches
from tests.docs.codes import all_codes, error_codes, in_module, rule_codes, written

from mpijob import Client, admission, checks
from mpijob.backends import code_upload as code_files
from mpijob.backends.memory import MemoryBackend
from mpijob.diagnosis import rule_docs
from mpijob.diagnosis.rule import Rule
from mpijob.diagnosis.rules import RULES, UNKNOWN
from mpijob.errors import Finding, InvalidJob, MpiJobError
from mpijob.formats.jobfile import jobfile_reader
from mpijob.model import Amounts, Code, Facts, Identity, MPIJob, Quota, Resources

DOCS = Path(__file__).parents[3] / "docs" / "troubleshooting"
ALL_RULES = (*RULES, UNKNOWN)
WITH_JOBS = sorted(path.stem.upper() for path in DOCS.glob("*.md") if "```yaml" in path.read_text())
ANEW = "PYTHONPATH=. python -c 'from tests.unit.project.test_troubleshooting import write; write()'"
_YAML = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def write() -> None:
    for rule in ALL_RULES:
        (DOCS / rule.page).write_text(rule_docs.page(rule))
    (DOCS / "README.md").write_text(index())


def index() -> str:
    """Return the index: causes of failure and refused commands first, then what is told about a job."""
    rest = all_codes() - rule_codes() - error_codes()
    machine = frozenset(code for code in rest if code.startswith("DOCTOR_"))
    runtimes = frozenset(code for code in rest if code.startswith("RUNTIME_"))
    images = frozenset(code for code in rest if code.startswith("IMAGE_"))
    files = frozenset(code for code, where in written().items() if where.startswith("formats/")) - runtimes
    files, told = files - checks.codes(), rest - files - machine - runtimes - images - checks.codes()
    parts = {
        "A job file cannot be read": files,
        "A job contradicts itself": checks.codes(),
        "Other messages about a job or a command": told,
        "`mpijob doctor` says": machine,
        "`mpijob runtimes` says": runtimes,
        "`mpijob image inspect` and the check of a job's image say": images,
    }
    return rule_docs.index(titles(error_codes())) + "".join(
        f"\n## {heading}\n| code | meaning |\n| --- | --- |\n{_rows(codes)}"
        for heading, codes in parts.items()
    )


def _rows(codes: frozenset[str]) -> str:
    return "".join(
        f"| [{code}]({code.lower()}.md) | {title} |\n" for code, title in sorted(titles(codes).items())
    )


def titles(codes: frozenset[str]) -> Mapping[str, str]:
    return {code: page_of(code).partition("\n")[0].removeprefix(f"# {code}: ") for code in codes}


def page_of(code: str) -> str:
    return (DOCS / f"{code.lower()}.md").read_text(encoding="utf-8")


def quoted(page: str) -> str:
    """Return the sentence that a page says the user sees."""
    return page.partition("\n> ")[2].partition("\n")[0]


@pytest.mark.thorough
@pytest.mark.req("FR-033", "FR-UX-005", "AC9")
@pytest.mark.parametrize("code", sorted(all_codes()))
def test_every_code_has_a_troubleshooting_page(code: str) -> None:
    page = page_of(code)
    assert page.startswith(f"# {code}: ")
    assert re.findall(r"^## (.*)$", page, re.MULTILINE) == ["What you see", "Why", "What to do"]
    assert quoted(page)


@pytest.mark.parametrize("code", sorted(all_codes()))
def test_a_code_is_one_word_in_capitals(code: str) -> None:
    assert re.fullmatch(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*", code)


def test_a_code_is_found_wherever_the_source_says_it() -> None:
    source = """
class Broken(Error):
    code: str = "ONE"
found = [Finding("TWO", text), Finding(message=text, code="THREE"), structs.replace(last, code="FOUR")]
table = (rule("FIVE", "name", check), place.finding("SIX", node), Finding(code=problem.code))
"""
    assert sorted(in_module(source)) == sorted(["ONE", "TWO", "THREE", "FOUR", "FIVE", "SIX"])


def test_the_source_says_every_code_of_the_checks() -> None:
    assert checks.codes() <= written().keys()


@pytest.mark.parametrize("rule", ALL_RULES, ids=lambda rule: rule.id)
def test_the_page_of_a_rule_is_in_step_with_the_rule(rule: Rule) -> None:
    assert (DOCS / rule.page).read_text() == rule_docs.page(rule), f"to write it anew: {ANEW}"


def test_the_index_names_every_page_once_and_nothing_else() -> None:
    text = (DOCS / "README.md").read_text()
    linked = re.findall(r"\(([\w-]+\.md)\)", text)
    assert sorted(linked) == sorted(path.name for path in DOCS.glob("*.md") if path.name != "README.md")
    assert text == index(), f"to write it anew: {ANEW}"


def told_about(text: str | bytes) -> tuple[Finding, ...]:
    """Return everything that is told about a job file."""
    try:
        return checks.run(jobfile_reader.read(text))
    except InvalidJob as error:
        return error.findings


@pytest.mark.req("FR-033", "FR-UX-005")
@pytest.mark.parametrize("code", WITH_JOBS)
def test_the_job_on_a_page_is_told_what_the_page_quotes_and_the_mended_one_is_not(code: str) -> None:
    broken, mended = _YAML.findall(page_of(code))
    said = [finding for finding in told_about(broken) if finding.code == code]
    assert str(said[0]) == quoted(page_of(code))
    assert f"> hint: {said[0].hint}" in page_of(code) or not said[0].hint
    assert [finding for finding in told_about(mended) if finding.code == code] == []


@pytest.mark.req("FR-033", "FR-UX-005")
def test_every_check_has_a_job_on_its_page() -> None:
    assert [code for code in sorted(checks.codes()) if len(_YAML.findall(page_of(code))) != 2] == []


FACTS = Facts(
    place="this machine", capacity=Amounts(2, 64 << 30), free=Amounts(2, 64 << 30), oversubscribe=True
)


def admitted(workers: int, **facts: object) -> tuple[Finding, ...]:
    job = MPIJob(name="train", workers=workers, command=("true",))
    return admission.admit(job, Identity("me"), msgspec.structs.replace(FACTS, **facts))


def refusal(act: Callable[[], object]) -> tuple[Finding, ...]:
    with pytest.raises(InvalidJob) as caught:
        act()
    return caught.value.findings


def missing_code() -> tuple[Finding, ...]:
    job = MPIJob(name="train", command=("true",), code=Code(path="nowhere"))
    return refusal(lambda: code_files.resolve(job, Path("/nonexistent"), ()))


def played_failure() -> tuple[Finding, ...]:
    labels = {"memory.mpijob/outcome": "fails-3-on-1"}
    with Client(MemoryBackend()) as client:
        job = client.submit(MPIJob(name="train", workers=2, command=("true",), labels=labels))
        job.wait()
        return job.why()


TELLERS: dict[str, Callable[[], tuple[Finding, ...]]] = {
    "TOO_DEEP": lambda: told_about("[" * 60),
    "TOO_LARGE": lambda: told_about("#" * (2 << 20)),
    "TOO_MANY_ERRORS": lambda: told_about("name: a\n" * 100),
    "NOT_TEXT": lambda: told_about(b"name: \xff"),
    "SHARED_CORES": lambda: admitted(8),
    "WILL_WAIT": lambda: admitted(
        4, oversubscribe=False, capacity=Amounts(8, 64 << 30), free=Amounts(1, 64 << 30), wait_estimate_seconds=30.0
    ),
    "CODE_NOT_FOUND": missing_code,
    "WORKER_FAILED": played_failure,
}  # fmt: skip


@pytest.mark.parametrize("code", sorted(TELLERS))
def test_what_a_page_quotes_is_what_is_said(code: str) -> None:
    said = [str(finding) for finding in TELLERS[code]() if finding.code == code]
    assert said, f"{code} is not told"
    assert matches((quoted(page_of(code)),), said[0]), said[0]


def a_job(**fields: Any) -> MPIJob:
    return MPIJob(**{"name": "bert", "workers": 2, "command": ("true",), **fields})


def judged(facts: Facts, **fields: Any) -> Callable[[Client], object]:
    return lambda _: admission.admit(a_job(**fields), Identity("jane"), facts)


ERRORS: dict[str, Callable[[Client], object]] = {
    "INVALID_JOB": lambda client: client.run(a_job(workers=0)),
    "CONFLICT": judged(msgspec.structs.replace(FACTS, taken_names=frozenset({"bert"}))),
    "NOT_ALLOWED": judged(msgspec.structs.replace(FACTS, may=frozenset())),
    "QUOTA_EXCEEDED": judged(
        msgspec.structs.replace(FACTS, quota=Quota("default", gpus=4)), resources=Resources(gpu=4)
    ),
    "NOT_FOUND": lambda client: client.get("bert"),
    "WAIT_TIMEOUT": lambda client: client.run(a_job(labels={"memory.mpijob/outcome": "hangs"}), timeout=5),
    "JOB_FAILED": lambda client: client.run(a_job(labels={"memory.mpijob/outcome": "fails-3-on-1"})),
}


@pytest.mark.parametrize("code", sorted(ERRORS))
def test_what_the_page_of_an_error_quotes_is_what_the_error_says(code: str) -> None:
    with Client(MemoryBackend()) as client, pytest.raises(MpiJobError) as caught:
        ERRORS[code](client)
    assert caught.value.code == code
    assert matches((quoted(page_of(code)),), " ".join(caught.value.message.split()))
