"""What a process sends and receives, by the kernel's own counters, looked at seldom enough."""

from __future__ import annotations

import os
import socket

import pytest

from mpijob.backends.local.supervisor import network_usage
from mpijob.backends.local.supervisor.network_usage import Traffic


def talk(here: socket.socket, there: socket.socket, size: int) -> None:
    here.sendall(b"x" * size)
    while size:
        size -= len(there.recv(size))
    there.sendall(b"!")  # an answer: what was received is acknowledged with it
    here.recv(1)


@pytest.mark.req("C-metrics")
def test_what_is_sent_and_received_is_counted_once() -> None:
    now = [100.0]
    seen = Traffic(clock=lambda: now[0])
    mine = {3: [os.getpid()], 4: []}
    server = socket.create_server(("127.0.0.1", 0))
    with server, socket.create_connection(server.getsockname()) as here, server.accept()[0] as there:
        now[0] += 1.0
        seen.rates(mine)
        talk(here, there, 100_000)
        now[0] += 2.0
        assert seen.rates(mine)[3] == pytest.approx(100_000, rel=0.05)  # sent and received, in two seconds
        now[0] += 1.0
        assert seen.rates(mine)[3] < 1000


def test_a_slow_kernel_is_asked_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    now, asked = [100.0], []

    def slow() -> object:
        asked.append(now[0])
        now[0] += 0.5
        return iter(())

    monkeypatch.setattr(network_usage, "connections", slow)
    monkeypatch.setattr(network_usage, "_sockets", lambda pid: iter((1,)))
    seen = Traffic(clock=lambda: now[0])
    for _ in range(60):
        seen.rates({0: [1]})
        now[0] += 1.0
    assert len(asked) == 2


def test_a_kernel_that_does_not_tell_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def silent() -> object:
        asked.append(1)
        raise PermissionError("no")

    monkeypatch.setattr(network_usage, "connections", silent)
    monkeypatch.setattr(network_usage, "_sockets", lambda pid: iter((1,)))
    seen = Traffic()
    assert [seen.rates({0: [1]}) for _ in range(3)] == [{}, {}, {}]
    assert len(asked) == 1
