"""How serious a line is, by the words of common loggers."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpijob.model import Level, LogLine, LogQuery, Role
from mpijob.model.status.log_level import find
from mpijob.observation.logs.pipeline import select

SAID = [
    ("WARNING:root:low memory", "warning"),
    ("2026-11-15 10:00:00,123 - trainer.loop - ERROR - no gradient", "error"),
    ("2026-11-15 10:00:00,123 INFO trainer: step 1", "info"),
    ("2026-11-15 10:00:00.123 | DEBUG    | train:main:12 - batch", "debug"),
    (
        "[2026-11-15 10:00:00,123] [INFO] [logging.py:96:log_dist] [Rank 0] DeepSpeed info: version=0.17",
        "info",
    ),
    ("[2026-11-15 10:00:00,123] [WARNING] [runner.py:202:fetch_hostfile] Unable to find hostfile", "warning"),
    ("[2026-11-15 10:00:00. 12345: W horovod/common/stall_inspector.cc:107] One or more tensors", "warning"),
    ("[2026-11-15 10:00:00.12345: E horovod/common/operations.cc:697] Horovod has failed", "error"),
    ("2026-11-15 10:00:00.123456: I tensorflow/core/platform/cpu_feature_guard.cc:210] This", "info"),
    ("2026-11-15 10:00:00.123456: F tensorflow/core/framework/tensor.cc:776] Check failed", "fatal"),
    ("W1115 10:00:00.123456 1234 server.cc:12] slow", "warning"),
    ("E20261115 10:00:00.123456 1234 server.cc:12] broken", "error"),
    ("[W socket.cpp:558] [c10d] The client socket has failed to connect", "warning"),
    ("[rank3]:[E1115 10:00:00.123456789 ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught", "error"),
    ("[rank0]: Traceback (most recent call last):", "error"),
    ("node-1:2211:2299 [0] NCCL INFO Bootstrap : Using eth0", "info"),
    ("node-1:2211:2299 [0] misc/socket.cc:484 NCCL WARN socketStartConnect", "warning"),
    ('{"time": "2026", "level": "error", "msg": "no"}', "error"),
    ('{"level":30,"msg":"pino"}', "info"),
    ('{"severity": "CRITICAL", "message": "no"}', "fatal"),
    ("time=2026-11-15T10:00:00Z level=warning msg=slow", "warning"),
    ("train.py:12: UserWarning: deprecated", "warning"),
    ("main.c:3:5: error: unknown type name", "error"),
    ("fatal error: out of memory", "fatal"),
    ("ERROR: cannot open file", "error"),
    ("RuntimeError: CUDA out of memory", "error"),
    ("torch.distributed.DistBackendError: NCCL error", "error"),
    ("Abort(1) on node 0 (rank 0 in comm 0): application called MPI_Abort", "fatal"),
    ("hello world", None),
    ("No ERROR was found in 12 files", None),
    ("the level of the INFO desk", None),
    ("step 12 loss 0.5", None),
    ("", None),
]


@pytest.mark.req("AC2")
@pytest.mark.parametrize(("text", "level"), SAID)
def test_the_level_is_found_in_common_formats(text: str, level: str | None) -> None:
    assert find(text.encode()) == (Level(level) if level else None)


@given(st.binary(max_size=300))
def test_any_bytes_have_a_level_or_none(text: bytes) -> None:
    level = find(text)
    assert level is None or level.weight >= 0


@pytest.mark.security
@pytest.mark.parametrize(
    "piece", [b"[", b"[1", b"a.", b"1:", b"- ", b"x:1:", b" ", b'{"level"', b"[rank1]: "]
)
def test_a_hostile_line_takes_no_time(piece: bytes) -> None:
    begin = time.perf_counter()
    for _ in range(100):
        find(piece * 100_000)
    assert time.perf_counter() - begin < 1.0


def said(text: str, rank: int = 0) -> LogLine:
    return LogLine(time=1, text=text.encode(), role=Role.RANK, rank=rank, worker=rank)


@pytest.mark.req("AC2")
def test_lines_that_go_on_with_a_serious_one_are_shown_with_it() -> None:
    lines = [
        said("ERROR: bad", 0),
        said("INFO: fine", 1),
        said("  because of this", 0),
        said("  and that", 1),
        said("a print", 0),
        said("  indented print", 0),
        said("Traceback (most recent call last):", 1),
        said('  File "a.py", line 1', 1),
        said("ValueError: x", 1),
    ]
    shown = [*select(lines, LogQuery(level=Level.WARNING))]
    assert [lines.index(line) for line in shown] == [0, 2, 6, 7, 8]
