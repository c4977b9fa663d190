"""A long-lived process with many threads stays small."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading

import pytest

from mpijob.client.services import memory_trim

# Threads that live at once and hold something: each would get a heap of its own, a mapping of 64 MiB.
HEAPS = """
import sys, threading
from mpijob.client.services import memory_trim
if sys.argv[1] == "shared":
    assert memory_trim.keep_small(threading.Event())
together = threading.Barrier(13)
def hold():
    kept = [bytes(2000) for _ in range(200)]
    together.wait()
    together.wait()
threads = [threading.Thread(target=hold) for _ in range(12)]
[one.start() for one in threads]
together.wait()
sizes = [line.split()[0].split("-") for line in open("/proc/self/maps")]
whole = [int(end, 16) // (64 << 20) for begin, end in sizes if int(begin, 16) % (64 << 20) == 0]
print(len(set(whole)))
together.wait()
"""


def heaps(how: str) -> int:
    done = subprocess.run([sys.executable, "-c", HEAPS, how], check=True, capture_output=True, text=True)
    return int(done.stdout)


@pytest.mark.thorough
def test_threads_share_heaps() -> None:
    assert heaps("shared") < heaps("own")


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    assert not memory_trim.keep_small(threading.Event())


def test_what_was_freed_is_given_back_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    stop, asked = threading.Event(), list[int]()

    class Library:
        def mallopt(self, which: int, value: int) -> int:
            return 1

        def malloc_trim(self, left: int) -> int:
            asked.append(left)
            if len(asked) == 3:
                stop.set()
            return 1

    monkeypatch.setattr(memory_trim, "_EVERY_SECONDS", 0.001)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Library())
    assert memory_trim.keep_small(stop)
    assert stop.wait(10.0)
    assert asked == [0, 0, 0]
