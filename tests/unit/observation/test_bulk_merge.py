"""Stored files merged as bytes: in order, whole, and the same in parts."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpijob.backends.local.logs import parallel_merge
from mpijob.observation.logs import bulk_merge, cri, merge_runs

numbers = st.lists(st.lists(st.integers(0, 50), max_size=20), max_size=6)


def in_blocks(keys: list[int], source: int, size: int) -> list[merge_runs.Block[int, tuple[int, int]]]:
    items = [(source, number) for number in range(len(keys))]
    return [(keys[at : at + size], items[at : at + size]) for at in range(0, len(keys), size)]


@pytest.mark.thorough
@given(numbers, st.integers(1, 7))
def test_runs_lose_nothing_and_keep_their_order_whatever_the_keys(
    all_keys: list[list[int]], size: int
) -> None:
    sources = [iter(in_blocks(keys, source, size)) for source, keys in enumerate(all_keys)]
    out = [item for window in merge_runs.merged(sources) for item in window]
    for source, keys in enumerate(all_keys):
        assert [number for of, number in out if of == source] == [*range(len(keys))]


@pytest.mark.thorough
@given(numbers, st.integers(1, 7))
def test_sorted_runs_come_out_sorted(all_keys: list[list[int]], size: int) -> None:
    ordered = [sorted(keys) for keys in all_keys]
    sources = [iter(in_blocks(keys, source, size)) for source, keys in enumerate(ordered)]
    out = [ordered[of][number] for window in merge_runs.merged(sources) for of, number in window]
    assert out == sorted(key for keys in ordered for key in keys)


@pytest.mark.thorough
@given(numbers, st.integers(1, 7))
def test_items_that_are_compared_themselves_keep_the_order_of_their_run(
    all_keys: list[list[int]], size: int
) -> None:
    """Their text would sort the other way round where a key comes twice."""
    said = [
        [f"{key:03} [{source}] {1000 - number}" for number, key in enumerate(keys)]
        for source, keys in enumerate(all_keys)
    ]
    sources = [
        iter([([text[:3] for text in run[at : at + size]], run[at : at + size])
              for at in range(0, len(run), size)])
        for run in said
    ]  # fmt: skip
    out = [item for window in merge_runs.merged(sources, key_prefixed=True) for item in window]
    for source, run in enumerate(said):
        assert [item for item in out if f"[{source}]" in item] == run


texts = st.binary(max_size=40).map(lambda text: text.replace(b"\n", b"?"))


@pytest.mark.thorough
@given(
    st.lists(st.lists(st.tuples(st.integers(0, 10**12), texts), max_size=12), max_size=4), st.integers(1, 200)
)
def test_of_the_text_not_one_byte_is_changed(files: list[list[tuple[int, bytes]]], size: int) -> None:
    stored = {
        f"Rank-{rank}": b"".join(cri.format_line(time, "stderr", text, False) for time, text in sorted(lines))
        for rank, lines in enumerate(files)
    }
    chunks = {
        name: [data[at : at + size] for at in range(0, len(data), size)] for name, data in stored.items()
    }
    merged = b"".join(bulk_merge.merged(chunks)).split(b"\n")[:-1]
    for rank, lines in enumerate(files):
        mine = [line.partition(b"] ")[2] for line in merged if line[31:].startswith(b"[Rank-%d] " % rank)]
        assert mine == [text for _, text in sorted(lines)]
    assert [line[:30] for line in merged] == sorted(line[:30] for line in merged)


@given(st.lists(st.binary(max_size=60), max_size=10))
def test_damaged_files_are_merged_too(lines: list[bytes]) -> None:
    data = b"\n".join(lines)
    out = b"".join(bulk_merge.merged({"Rank-0": [data]}))
    assert out.count(b"\n") == len(data.split(b"\n")) - (not data or data.endswith(b"\n"))


def test_pieces_and_last_lines_without_newline_are_lines_of_their_own() -> None:
    stamper = cri.CriWriter("stdout")
    data = b"".join([*stamper.feed(b"x" * 20_000, 1), *stamper.feed(b"y\nend", 2), *stamper.flush(3)])
    merged = b"".join(bulk_merge.merged({"Launcher": [data]})).splitlines()
    assert [line.partition(b"] ")[2] for line in merged] == [b"x" * 16384, b"x" * 3616 + b"y", b"end"]


def files(tmp_path: Path, count: int = 5, lines: int = 3000) -> list[tuple[str, Path]]:
    found = []
    for rank in range(count):
        path = tmp_path / f"rank-{rank}.log"
        stored = (
            cri.format_line((at * 7 + rank) * 10**7, "stdout", b"%d " % at + b"x" * (at % 90), False)
            for at in range(lines * (rank + 1) // count)
        )
        path.write_bytes(b"".join(stored))
        found.append((f"Rank-{rank}", path))
    return found


@pytest.mark.thorough
@pytest.mark.parametrize("parts", [2, 3, 7])
def test_a_merge_in_parts_by_several_processes_gives_the_same_bytes(tmp_path: Path, parts: int) -> None:
    found, one, many = files(tmp_path), io.BytesIO(), io.BytesIO()
    parallel_merge.merge(found, one, compress=False, parts=1)
    parallel_merge.merge(found, many, compress=False, parts=parts)
    assert many.getvalue() == one.getvalue()
    assert one.getvalue().count(b"\n") == sum(path.read_bytes().count(b"\n") for _, path in found)


def test_packed_parts_are_one_file(tmp_path: Path) -> None:
    found, plain, packed = files(tmp_path, 2, 500), io.BytesIO(), io.BytesIO()
    parallel_merge.merge(found, plain, compress=False)
    parallel_merge.merge(found, packed, compress=True, parts=2)
    assert gzip.decompress(packed.getvalue()) == plain.getvalue()
    assert len(packed.getvalue()) < len(plain.getvalue()) // 3
