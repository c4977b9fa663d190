"""Whatever a hunt learnt or found (`make fuzz`) is given to every reader again, and breaks no promise."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.fuzz import corpus
from tests.fuzz.targets import TARGETS


@pytest.mark.thorough
@pytest.mark.security
@pytest.mark.parametrize("target", TARGETS)
def test_what_is_kept_of_the_hunts_breaks_no_promise(target: str) -> None:
    inputs = [data for _, data in corpus.kept(target)]
    assert inputs
    for data in (*inputs, *TARGETS[target].begin()):
        TARGETS[target].read(data)


def test_finds_stay_and_the_shortest_inputs_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "FOLDER", tmp_path)
    monkeypatch.setattr(corpus, "MOST", 2)
    assert corpus.keep("any", [b"longest", b"long", b"s", b"", b"x" * 5000], [b"broke it"]) == 3
    again = corpus.archive("any").read_bytes()
    assert corpus.keep("any", [b"long", b"s"], []) == 3
    assert corpus.archive("any").read_bytes() == again
    assert {data for _, data in corpus.kept("any")} == {b"s", b"long", b"broke it"}
