"""What is remembered of late is bounded."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from mpijob.backends.bounded_dict import BoundedDict


def test_the_oldest_goes_when_there_is_no_room() -> None:
    kept = BoundedDict[str, int](2)
    kept["a"], kept["b"], kept["c"] = 1, 2, 3
    assert list(kept.items()) == [("b", 2), ("c", 3)]


def test_what_is_set_again_counts_as_new() -> None:
    kept = BoundedDict[str, int](2)
    kept["a"], kept["b"], kept["a"], kept["c"] = 1, 2, 4, 3
    assert list(kept.items()) == [("a", 4), ("c", 3)]


def test_several_threads_may_remember_at_once() -> None:
    kept = BoundedDict[int, int](10)

    def remember(number: int) -> None:
        kept[number] = number
        kept.pop(number - 5, None)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(remember, range(5000)))
    assert len(kept) <= 10
