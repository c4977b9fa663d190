"""What the commands that go on until they are ended share: a log on stderr, and a word that says stop."""

from __future__ import annotations

import logging
import signal
import threading


def until_ended() -> threading.Event:
    """Return what is set when somebody ends this process (SIGTERM, Ctrl-C); warnings are logged with their time."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop
