"""Reading plain data into types, by several threads at once."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from mpijob import codec

SOURCE = Path(__file__).resolve().parents[3] / "src" / "mpijob"
READERS = ("msgspec.json.Decoder(", "msgspec.convert(", "msgspec.json.decode(", "type=")
RACE = """
import sys, threading
sys.setswitchinterval(1e-6)  # let every step of one thread be seen by the others
from mpijob import codec
from mpijob.model.spec.job import MPIJob
together = threading.Barrier(8)
def read():
    together.wait()
    codec.convert({"name": "a", "command": ["x"]}, MPIJob)
threads = [threading.Thread(target=read) for _ in range(8)]
[one.start() for one in threads]
[one.join() for one in threads]
"""


class Point(msgspec.Struct):
    """Something to read."""

    x: int
    y: int = 0


@pytest.mark.thorough
def test_a_type_that_several_threads_read_first_crashes_nobody() -> None:
    for _ in range(3):
        ended = subprocess.run([sys.executable, "-c", RACE], check=False, capture_output=True)
        assert ended.returncode == 0, ended.stderr.decode()


def test_a_type_is_worked_out_once() -> None:
    with ThreadPoolExecutor(8) as pool:
        made = {id(one) for one in pool.map(codec.decoder, [Point] * 50)}
    assert len(made) == 1


def test_values_are_read_and_wrong_ones_refused() -> None:
    assert codec.decode(b'{"x": 1}', Point) == Point(1)
    assert codec.convert({"x": "2"}, Point, strict=False) == Point(2)
    with pytest.raises(msgspec.ValidationError, match="Expected `int`"):
        codec.convert({"x": "2"}, Point)


@pytest.mark.thorough
def test_nobody_else_works_types_out() -> None:
    found = [
        f"{path.relative_to(SOURCE)}:{number}"
        for path in SOURCE.rglob("*.py")
        if path.name != "codec.py"
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if any(word in line for word in READERS[:2]) or all(word in line for word in READERS[2:])
    ]
    assert not found, f"read through mpijob.codec: {found}"
