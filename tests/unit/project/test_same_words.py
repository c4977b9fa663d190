"""One mistake, three doors: SDK, command line and the page's server say the same sentence and the same way out."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from tests.unit.api_support import Browser, served
from tests.unit.cli_support import Cli

from mpijob import Client, MPIJob, Phase
from mpijob.backends.memory import MemoryBackend
from mpijob.diagnosis.rules import RULES
from mpijob.errors import MpiJobError

HANGS = {"memory.mpijob/outcome": "hangs"}
GOOD: dict[str, Any] = {"name": "busy", "workers": 2, "command": ["true"], "labels": HANGS}


class Mistake(NamedTuple):
    """The same wrong wish in the words of each face."""

    sdk: Callable[[Client], object]
    words: tuple[str, ...]
    ask: Callable[[Browser], Any]


def made(**changes: Any) -> dict[str, Any]:
    return {**GOOD, "name": "new", **changes}


MISTAKES = {
    "unknown": Mistake(
        lambda client: client.state("nobody"),
        ("get", "nobody"),
        lambda browser: browser.get("/trainjobs/default/nobody"),
    ),
    "same name twice": Mistake(
        lambda client: client.submit(MPIJob(name="busy", workers=2, command=("true",), labels=HANGS)),
        ("run", "busy", "--workers", "2", "--label", "memory.mpijob/outcome=hangs", "--", "true"),
        lambda browser: browser.post("/trainjobs", {"job": GOOD}),
    ),
    "no workers": Mistake(
        lambda client: client.submit(MPIJob(name="new", workers=0, command=("true",))),
        ("run", "new", "--workers", "0", "--", "true"),
        lambda browser: browser.post("/trainjobs", {"job": made(workers=0, labels={})}),
    ),
    "no such quantity": Mistake(
        lambda client: client.submit(
            MPIJob(name="new", workers=1, command=("true",)).replace(**{"resources": _memory("much")})
        ),
        ("run", "new", "--workers", "1", "--memory", "much", "--", "true"),
        lambda browser: browser.post(
            "/trainjobs", {"job": made(workers=1, labels={}, resources={"memory": "much"})}
        ),
    ),
    "retry of a running job": Mistake(
        lambda client: client.retry("busy"),
        ("retry", "busy"),
        lambda browser: browser.post("/trainjobs/default/busy/retry", {}),
    ),
}


def _memory(text: str) -> Any:
    from mpijob import Resources

    return Resources(memory=text)


@pytest.mark.thorough
@pytest.mark.req("B-10", "FR-UX-001")
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told_in_the_same_words_everywhere(name: str) -> None:
    mistake = MISTAKES[name]
    backend = MemoryBackend()
    client = Client(backend)
    client.submit(MPIJob(name="busy", workers=2, command=("true",), labels=HANGS)).wait(10, {Phase.RUNNING})
    with pytest.raises(MpiJobError) as refused:
        mistake.sdk(client)
    error = refused.value
    told = json.loads(Cli(backend)(*_as_json(mistake.words)).stderr.strip().splitlines()[-1])
    with served(backend) as browser:
        problem = mistake.ask(browser.sign_in()).json()
    said = (error.code, error.message, error.hint)
    assert (told["code"], told["message"], told["hint"]) == said
    assert (problem["code"], problem["message"], problem["hint"]) == said
    assert error.message
    assert error.hint or all(finding.hint for finding in error.findings), "what would mend it is said"
    sentences = [(finding.code, finding.message, finding.hint) for finding in error.findings]
    for other in (told["findings"], problem["findings"]):
        assert [(one["code"], one["message"], one.get("hint", "")) for one in other] == sentences


def _as_json(words: tuple[str, ...]) -> tuple[str, ...]:
    at = words.index("--") if "--" in words else len(words)
    return (*words[:at], "-o", "json", *words[at:])


@pytest.mark.req("FR-UX-001")
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_every_cause_is_explained_and_has_a_way_out(rule: Any) -> None:
    assert rule.why.endswith((".", "!"))
    assert rule.causes
    assert rule.remedies
    assert any("{" not in remedy.text for remedy in rule.remedies), "one that needs nothing to be known"
