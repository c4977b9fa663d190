"""The table of features: 93 rows, each with an answer and with tests that are there."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from tests import pages

ROOT = Path(__file__).resolve().parents[2]
TEXT = pages.read("features")
ROWS = re.findall(r"^\| (\d+) \| (.+?) \| (\w+) \| (.*?) \| `(.+?)` \|$", TEXT, re.MULTILINE)


def test_each_of_93_features_has_an_answer_and_the_counts_are_those_of_the_table() -> None:
    assert [int(number) for number, *_ in ROWS] == list(range(1, 94))
    assert len({name for _, name, *_ in ROWS}) == 93
    answers = Counter(answer for _, _, answer, *_ in ROWS)
    assert {*answers} == {"yes", "partly", "no"}
    told = re.search(r"it has (\d+), (\d+) partly, (\d+) not", TEXT)
    assert told is not None
    assert [int(one) for one in told.groups()] == [answers["yes"], answers["partly"], answers["no"]]


def test_what_shows_a_feature_is_there_and_what_is_not_whole_says_why() -> None:
    assert [path for *_, path in ROWS if not (ROOT / path).is_file()] == []
    assert [name for _, name, answer, remark, _ in ROWS if answer != "yes" and not remark] == []
