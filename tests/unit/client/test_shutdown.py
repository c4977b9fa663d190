"""A service is ended by a signal, whatever its main thread does at that moment."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time

import pytest

from mpijob.client.services.shutdown import StopEvent

BUSY = """
from mpijob.client.services import shutdown as ending
stop = ending.until_ended()
print("ready", flush=True)
while not stop.wait(0.0):
    pass
print("ended", flush=True)
"""


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_in_the_middle_of_a_wait_ends_it(number: signal.Signals) -> None:
    """Waits without a pause, one after the other: a plain Event would hang here every few times."""
    for _ in range(5):
        process = subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.communicate(timeout=60)[0] == "ended\n"


def test_everybody_who_waits_hears_the_word() -> None:
    word, heard = StopEvent(), list[bool]()
    threads = [threading.Thread(target=lambda: heard.append(word.wait(60))) for _ in range(3)]
    for thread in threads:
        thread.start()
    begun = time.monotonic()
    assert not word.wait(0.05)
    assert time.monotonic() - begun >= 0.04
    word.set()
    for thread in threads:
        thread.join(60)
    assert heard == [True] * 3
    assert word.is_set()
    assert word.wait(0.0)
