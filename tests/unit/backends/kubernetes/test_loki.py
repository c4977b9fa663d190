"""Logs of deleted pods, read from a Loki in memory; the real one: tests/e2e/cluster/test_collected.py."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.logs import loki_client
from mpijob.backends.kubernetes.logs.http_service import HttpService, configured_service
from mpijob.backends.kubernetes.logs.loki_client import Loki, Span
from mpijob.backends.kubernetes.logs.pod_logs import Position
from mpijob.backends.kubernetes.status.job_objects import Found
from mpijob.model import Family, JobRef, Role
from mpijob.observation.logs import cri
from mpijob.settings import Settings

NOW = 1_700_000_000 * cri.SECOND_NS
MINUTE = 60 * cri.SECOND_NS
WHOLE = Span(NOW - 1000 * MINUTE, NOW)
Entry = tuple[str, int, str]


class Memory(HttpService):
    """What a Loki answers, from entries of pod, moment and line, all of the namespace `team`."""

    def __init__(self, *entries: Entry, names: tuple[str, str] = ("namespace", "pod")) -> None:
        super().__init__("http://loki:3100")
        self._entries, self._names = entries, names
        self.asked: list[str] = []

    def get(self, path: str, words: Any) -> Any:
        self.asked.append(path.rpartition("/")[2])
        if path.endswith("/labels"):
            return [*self._names, "stream"]
        select = words.get("query") or words["match[]"]
        of_namespace, of_pod = map(re.escape, self._names)
        namespace, sign, text = re.fullmatch(
            rf'{{{of_namespace}="([^"]*)", {of_pod}(=~|=)("[^"]*")}}', select
        ).groups()  # type: ignore[union-attr]
        pod = json.loads(text)
        wanted = [
            entry
            for entry in self._entries
            if namespace == "team"
            and (re.fullmatch(pod, entry[0]) if sign == "=~" else entry[0] == pod)
            and int(words["start"]) <= entry[1] < int(words["end"])
        ]
        if path.endswith("/series"):
            return [{self._names[1]: name} for name in {entry[0] for entry in wanted}]
        wanted.sort(key=lambda entry: entry[1], reverse=words["direction"] == "backward")
        return {"result": [{"values": [[str(at), line]]} for _, at, line in wanted[: int(words["limit"])]]}


def texts(loki: Loki, pod: str) -> list[str]:
    return [line.decode().rstrip("\n").partition(" ")[2] for line in loki.lines("team", pod, WHOLE)]


def test_more_lines_than_a_page_holds_come_once_each_and_in_order() -> None:
    page = loki_client._PAGE
    moments = [NOW - MINUTE + number // 3 for number in range(page * 2 + 5)]  # three of each moment
    entries = [("p", moment, f"line {number}") for number, moment in enumerate(moments)]
    assert texts(Loki(Memory(*entries)), "p") == [line for _, _, line in entries]


def test_a_moment_with_more_lines_than_a_page_does_not_stop_the_rest() -> None:
    page = loki_client._PAGE
    entries = [("p", NOW - MINUTE, f"burst {number}") for number in range(page + 10)] + [
        ("p", NOW - 1, "end")
    ]
    found = texts(Loki(Memory(*entries)), "p")
    assert found[:page] == [f"burst {number}" for number in range(page)]
    assert found[-1] == "end"


@pytest.mark.parametrize("names", loki_client._NAMES)
def test_each_collector_names_pods_in_its_own_way(names: tuple[str, str]) -> None:
    memory = Memory(("p", NOW - 1, "hello"), names=names)
    assert texts(Loki(memory), "p") == ["hello"]


def test_the_text_of_a_record_of_openshift_is_taken_out_and_a_programs_own_json_is_left() -> None:
    record = json.dumps({"message": "hello", "kubernetes": {"pod_name": "p"}, "@timestamp": "…"})
    own = '{"kubernetes": 3}'
    broken = '{"kubernetes" '
    lines = [("p", NOW - 9 + at, line) for at, line in enumerate((record, own, broken))]
    assert texts(Loki(Memory(*lines)), "p") == ["hello", own, broken]


def found(name: str = "train", namespace: str = "team") -> Found:
    job = {"kind": "TrainJob", "apiVersion": "trainer.kubeflow.org/v1alpha1", "metadata": {
        "name": name, "namespace": namespace, "uid": "u", "creationTimestamp": "2023-11-14T20:00:00Z"}, "spec": {},
    }  # fmt: skip
    return Found(resources.TRAINJOB, job)


MEMBERS = {
    "train-launcher-0-0-abcde": (Role.LAUNCHER, None),
    "train-node-0-11-fghij": (Role.WORKER, 11),
    "train-launcher-klmno": (Role.LAUNCHER, None),
    "train-worker-3": (Role.WORKER, 3),
}
STRANGERS = ("train-2-launcher-0-0-abcde", "train-worker-3-x", "retrain-worker-3", "train-launcher-toolong")


@pytest.mark.req("C-loki")
def test_the_pods_of_a_job_that_are_gone_are_known_by_their_names() -> None:
    entries = [(pod, NOW - MINUTE, "said") for pod in (*MEMBERS, *STRANGERS)]
    gone = loki_client.of_job(Loki(Memory(*entries)), found(), {"train-worker-3"}, NOW)
    seen = {voice.pod: (voice.role, voice.worker) for voice in gone.spans}
    assert seen == {pod: who for pod, who in MEMBERS.items() if pod != "train-worker-3"}
    assert [*gone.lines(next(iter(gone.spans)))] == [b"%s said\n" % cri.stamp(NOW - MINUTE)]


OPENMPI = ("mpijob-world ranks=2 gap=0 tag=abc", "[1,1]<stdout>:from rank 1")
HYDRA = ("mpijob-world ranks=2 gap=0 tag=abc", "[rank 1 abc] from rank 1")


@pytest.mark.req("C-loki")
@pytest.mark.parametrize(("log", "family"), [(OPENMPI, Family.OPENMPI), (HYDRA, Family.MPICH)])
def test_the_last_run_of_a_deleted_job_is_read_with_its_ranks(log: tuple[str, ...], family: Family) -> None:
    day = 24 * 60 * MINUTE
    earlier = [
        ("train-launcher-0-0-aaaaa", NOW - 2 * day, "the run before"),
        ("train-node-0-0-aaaaa", NOW - 2 * day, "x"),
    ]
    last = [("train-a2-launcher-0-0-bbbbb", NOW - 9 * MINUTE + at, line) for at, line in enumerate(log)]
    workers = [("train-a2-node-0-1-ccccc", NOW - 10 * MINUTE, "sshd is there")]
    gone = loki_client.of_name(Loki(Memory(*earlier, *workers, *last)), JobRef("team", "train"), NOW)
    assert {(voice.pod, voice.attempt, voice.family, voice.tagged) for voice in gone.spans} == {
        ("train-a2-launcher-0-0-bbbbb", 2, family, True),
        ("train-a2-node-0-1-ccccc", 2, family, True),
    }
    launcher = next(voice for voice in gone.spans if voice.role is Role.LAUNCHER)
    lines = [*Position(launcher, {}).lines(gone.lines(launcher))]
    assert [(line.rank, line.text) for line in lines] == [(1, b"from rank 1")]


def test_a_job_of_which_nothing_was_collected_is_unknown() -> None:
    assert not loki_client.of_name(Loki(Memory()), JobRef("team", "train"), NOW).spans


def test_a_loki_that_is_away_tells_nothing_and_that_is_said(caplog: pytest.LogCaptureFixture) -> None:
    away = Loki(HttpService("http://127.0.0.1:9"))
    assert not loki_client.of_name(away, JobRef("team", "train"), NOW).spans
    assert not loki_client.of_job(away, found(), (), NOW).spans
    assert caplog.text.count("Loki at http://127.0.0.1:9 does not respond") == 2


def test_the_server_of_a_setting() -> None:
    assert loki_client.of_settings(Settings()) is None
    assert configured_service("not an address", "") is None
    assert isinstance(loki_client.of_settings(Settings(loki="https://loki")), Loki)
