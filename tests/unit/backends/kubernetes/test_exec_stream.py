"""Commands inside a pod: bytes both ways over a real WebSocket on loopback, and how they end."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import pty
import socket
import struct
import termios
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.backends.kubernetes.test_connection import Relay
from tests.unit.kube_support import FakeApi, Handler, doing, make_certificates, refusing

from mpijob.backends.kubernetes.client import exec_stream
from mpijob.backends.kubernetes.client.api import ApiError

EXEC = "/api/v1/namespaces/team-a/pods/p/exec"
STDIN, STDOUT, STDERR, ENDED, SIZE, CLOSE = 0, 1, 2, 3, 4, 255
SUCCESS = {"status": "Success"}


class Pod:
    """The server's side of one exec."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        key = handler.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        handler.send_response(101)
        handler.send_header("Upgrade", "websocket")
        handler.send_header("Connection", "Upgrade")
        handler.send_header(
            "Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        )
        handler.send_header("Sec-WebSocket-Protocol", "v5.channel.k8s.io")
        handler.end_headers()

    def hear(self) -> tuple[int, bytes]:
        """Return the next message as channel and data; pings are passed over."""
        while True:
            first, second = self.handler.rfile.read(2)
            size = second & 0x7F
            if size == 126:
                (size,) = struct.unpack("!H", self.handler.rfile.read(2))
            mask = self.handler.rfile.read(4)
            data = bytes(byte ^ mask[at % 4] for at, byte in enumerate(self.handler.rfile.read(size)))
            if first & 0x0F == 2:
                return data[0], data[1:]

    def say(self, channel: int, data: bytes) -> None:
        self._frame(0x82, bytes([channel]) + data)

    def end(self, status: dict[str, Any]) -> None:
        self.say(ENDED, json.dumps(status).encode())
        self.close()

    def close(self) -> None:
        self._frame(0x88, struct.pack("!H", 1000))
        self.handler.close_connection = True

    def _frame(self, first: int, data: bytes) -> None:
        size = bytes([len(data)]) if len(data) < 126 else b"\x7e" + struct.pack("!H", len(data))
        self.handler.wfile.write(bytes([first]) + size + data)
        self.handler.wfile.flush()


def pod(script: Callable[[Pod], None]) -> Callable[[Handler], None]:
    return lambda handler: script(Pod(handler))


def failing(code: int) -> dict[str, Any]:
    causes = [{"reason": "ExitCode", "message": str(code)}]
    return {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}}


def test_output_and_exit_status_come_back(server: FakeApi) -> None:
    def script(pod: Pod) -> None:
        pod.say(STDOUT, b"out" * 20000)
        pod.say(STDERR, b"err")
        pod.end(failing(3))

    server.says(pod(script))
    access = server.access(token="t")
    status, stdout, stderr = exec_stream.capture(access, EXEC, ("echo", "a b", ""), container="main")
    assert (status, stdout, stderr) == (3, b"out" * 20000, b"err")
    seen = server.requests[0]
    assert (seen.method, seen.path, seen.token) == ("GET", EXEC, "t")
    assert seen.headers["sec-websocket-protocol"] == "v5.channel.k8s.io,v4.channel.k8s.io"


def test_output_is_read_while_the_command_runs(server: FakeApi) -> None:
    read = threading.Event()

    def script(pod: Pod) -> None:
        pod.say(STDOUT, b"first")
        assert read.wait(10)
        for _ in range(5):
            pod.say(STDERR, b"why" * 20_000)
            pod.say(STDOUT, b"x" * 60_000)
        pod.end(failing(3))

    server.says(pod(script))
    output = exec_stream.Output(server.access(), EXEC, ("tar",), container="main")
    assert output.stdout.read(5) == b"first"
    read.set()
    assert len(output.stdout.read()) == 300_000
    status, told = output.finish()
    assert (status, len(told)) == (3, 64 << 10)  # of what it says of itself the beginning is kept


def test_output_that_nobody_reads_any_more_ends_the_line(server: FakeApi) -> None:
    ended = threading.Event()

    def script(pod: Pod) -> None:
        try:
            while True:
                pod.say(STDOUT, b"x" * 60_000)
        except OSError:
            ended.set()

    server.says(pod(script))
    output = exec_stream.Output(server.access(), EXEC, ("yes",))
    assert output.stdout.read(1) == b"x"
    output.abandon()
    assert ended.wait(10)


def test_a_refused_command_is_told_where_its_output_is_finished(server: FakeApi) -> None:
    server.says(refusing(403, message="no exec for you"))
    output = exec_stream.Output(server.access(), EXEC, ("tar",))
    assert output.stdout.read() == b""
    with pytest.raises(ApiError, match="no exec for you"):
        output.finish()


def test_the_command_arrives_word_by_word(server: FakeApi) -> None:
    lines: list[str] = []
    server.says(doing(lambda handler: lines.append(handler.path), pod(lambda pod: pod.end(SUCCESS))))
    assert exec_stream.capture(server.access(), EXEC, ("echo", "a b", "", "&x"), container="main")[0] == 0
    assert lines[0] == (
        f"{EXEC}?command=echo&command=a%20b&command=&command=%26x&container=main&stdout=true&stderr=true"
    )


def test_input_goes_in_and_its_end_is_told(server: FakeApi) -> None:
    heard: list[bytes] = []

    def script(pod: Pod) -> None:
        while True:
            channel, data = pod.hear()
            if channel == CLOSE:
                assert data == bytes([STDIN])
                break
            heard.append(data)
        pod.say(STDOUT, b"%d bytes" % sum(map(len, heard)))
        pod.end(SUCCESS)

    server.says(pod(script))
    given = os.urandom(100_000)
    assert exec_stream.capture(server.access(), EXEC, ("wc",), given=given) == (0, b"100000 bytes", b"")
    assert b"".join(heard) == given


def test_output_that_comes_after_the_end_is_not_lost(server: FakeApi) -> None:
    def script(pod: Pod) -> None:
        pod.say(ENDED, json.dumps(SUCCESS).encode())
        pod.say(STDOUT, b"late")
        pod.close()

    server.says(pod(script))
    assert exec_stream.capture(server.access(), EXEC, ("x",)) == (0, b"late", b"")


def test_a_line_that_is_cut_is_told(server: FakeApi) -> None:
    def script(pod: Pod) -> None:
        pod.say(STDOUT, b"x")
        pod.handler.hang_up()

    server.says(pod(script))
    with pytest.raises(ApiError, match="lost before the command ended"):
        exec_stream.capture(server.access(), EXEC, ("x",))


@pytest.mark.parametrize(
    ("message", "code", "told"),
    [
        (
            'exec: "nope": executable file not found in $PATH: unknown',
            127,
            b"mpijob: 'nope' is not in the container\n",
        ),
        ('exec: "nope": permission denied: unknown', 126, b"mpijob: 'nope' may not be executed\n"),
    ],
)
def test_a_program_that_does_not_start_ends_as_in_a_shell(
    server: FakeApi, message: str, code: int, told: bytes
) -> None:
    status = {"status": "Failure", "message": message, "reason": "InternalError", "code": 500}
    server.says(pod(lambda pod: pod.end(status)))
    assert exec_stream.capture(server.access(), EXEC, ("nope",)) == (code, b"", told)


def test_a_refusal_keeps_the_servers_words(server: FakeApi) -> None:
    server.says(refusing(403, "Forbidden", 'User "bob" cannot get resource "pods/exec"'))
    with pytest.raises(ApiError) as caught:
        exec_stream.capture(server.access(), EXEC, ("x",))
    assert (caught.value.status, caught.value.reason) == (403, "Forbidden")
    assert 'User "bob"' in caught.value.message


@pytest.mark.security
def test_a_refused_line_shows_no_token(server: FakeApi) -> None:
    hush = "hush-" + "hush"
    server.says(refusing(401, "Unauthorized"))
    with pytest.raises(ApiError) as caught:
        exec_stream.capture(server.access(token=hush), EXEC, ("x",))
    assert hush not in "".join(traceback.format_exception(caught.value))


@pytest.mark.security
def test_a_token_of_two_lines_opens_no_line(server: FakeApi) -> None:
    with pytest.raises(ApiError, match="line break"):
        exec_stream.capture(server.access(token="t\r\nX-Evil: 1"), EXEC, ("x",))
    assert server.requests == []


@pytest.mark.thorough
def test_a_terminal_is_raw_tells_its_size_and_is_restored(server: FakeApi) -> None:
    near, far = pty.openpty()
    before = termios.tcgetattr(far)
    termios.tcsetwinsize(far, (33, 99))
    sizes: list[dict[str, int]] = []
    raw: list[bool] = []
    typed: list[bytes] = []

    def script(pod: Pod) -> None:
        channel, data = pod.hear()
        assert channel == SIZE
        sizes.append(json.loads(data))
        raw.append(not termios.tcgetattr(far)[3] & termios.ICANON)
        os.write(near, b"\x03")
        typed.append(pod.hear()[1])
        termios.tcsetwinsize(far, (40, 120))
        sizes.append(json.loads(pod.hear()[1]))
        pod.say(STDOUT, b"bye")
        pod.end(SUCCESS)

    server.says(pod(script))
    with os.fdopen(far, "rb", 0, closefd=False) as stdin, os.fdopen(far, "wb", 0, closefd=False) as stdout:
        status = exec_stream.execute(
            server.access(), EXEC, ("sh",), stdin=stdin, stdout=stdout, stderr=stdout
        )
    assert status == 0
    assert sizes == [{"Width": 99, "Height": 33}, {"Width": 120, "Height": 40}]
    assert (raw, typed) == ([True], [b"\x03"])
    assert termios.tcgetattr(far) == before
    query = server.requests[0].query
    assert (query["tty"], query["stdin"], "stderr" in query) == ("true", "true", False)
    for fd in (near, far):
        os.close(fd)


def test_without_a_terminal_nothing_is_raw(server: FakeApi) -> None:
    server.says(pod(lambda pod: pod.end(SUCCESS)))
    out = io.BytesIO()
    assert exec_stream.execute(server.access(), EXEC, ("x",), stdin=io.BytesIO(), stdout=out, stderr=out) == 0
    assert "tty" not in server.requests[0].query


def test_a_command_runs_through_a_proxy(server: FakeApi) -> None:
    heads: list[bytes] = []

    def greet(line: socket.socket) -> None:
        heads.append(line.recv(4096))
        line.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")

    relay = Relay(0, server.port, greet=greet)
    server.says(pod(lambda pod: pod.end(SUCCESS)))
    access = server.access(proxy=f"http://127.0.0.1:{relay.port}")
    assert exec_stream.capture(access, EXEC, ("x",))[0] == 0
    relay.close()
    assert heads[0].startswith(f"CONNECT 127.0.0.1:{server.port} ".encode())


@pytest.mark.thorough
@pytest.mark.security
def test_a_command_is_not_sent_to_a_server_with_another_authority(server: FakeApi, tmp_path: Path) -> None:
    other = make_certificates(tmp_path).text("ca.crt")
    with pytest.raises(ApiError, match="presents a certificate that the kubeconfig does not trust"):
        exec_stream.capture(server.access(ca=other, token="t"), EXEC, ("x",))
    assert server.requests == []


@pytest.mark.thorough
def test_a_server_that_floods_while_it_is_fed_does_not_block(server: FakeApi) -> None:
    """Both sides write more than the line holds: whoever only writes would wait for ever."""
    size = 2_000_000

    def script(pod: Pod) -> None:
        for _ in range(size // 50_000):
            pod.say(STDOUT, b"x" * 50_000)
        while pod.hear()[0] != CLOSE:
            pass
        pod.end(SUCCESS)

    server.says(pod(script))
    status, stdout, _ = exec_stream.capture(server.access(), EXEC, ("cat",), given=b"y" * size)
    assert (status, len(stdout)) == (0, size)
