"""An engine that does not answer for a while is borne by whoever follows a job; a question is answered at once."""

from __future__ import annotations

import logging
import ssl

import pytest

from mpijob import Client, MPIJob, Phase
from mpijob.backends.kubernetes.auth.access import Access
from mpijob.backends.kubernetes.client import connection, http
from mpijob.backends.kubernetes.client.api_errors import CERTIFICATE, NO_LOGIN, TIMEOUT, ApiError, translate
from mpijob.backends.memory import MemoryBackend
from mpijob.backends.outage_tolerance import OutageTolerance
from mpijob.errors import BackendError, WaitTimeout
from mpijob.model import JobRef, JobState
from mpijob.settings import Settings

SILENT = BackendError("the cluster is not responding", passing=True)


class Silent(MemoryBackend):
    """Does not answer some questions about a state, after the first one."""

    def __init__(self, unanswered: int, error: BackendError = SILENT) -> None:
        super().__init__()
        self.unanswered, self.error, self.asked = unanswered, error, 0

    def get(self, ref: JobRef) -> JobState:
        self.asked += 1
        if 2 < self.asked <= 2 + self.unanswered:  # the first is that of submitting
            raise self.error
        return super().get(ref)


def a_client(backend: MemoryBackend) -> Client:
    return Client(backend, settings=Settings())


def a_job() -> MPIJob:
    return MPIJob(name="job", workers=2, command=("echo", "hi"))


def test_whoever_waits_goes_on_when_there_are_answers_again(caplog: pytest.LogCaptureFixture) -> None:
    client = a_client(Silent(3))
    with caplog.at_level(logging.WARNING, "mpijob"):
        assert client.submit(a_job()).wait(60).phase is Phase.SUCCEEDED
    told = [record.message for record in caplog.records]
    assert told[0] == "the cluster is not responding; retrying for up to 15 minutes"
    assert told[1].startswith("the connection is back")


def test_what_does_not_pass_by_itself_is_told_at_once() -> None:
    client = a_client(Silent(3, BackendError("the certificate is another's")))
    with pytest.raises(BackendError, match="another's"):
        client.submit(a_job()).wait(60)


def test_time_that_is_up_while_nobody_answers_is_told_as_that() -> None:
    client = a_client(Silent(10_000))
    with pytest.raises(WaitTimeout, match="its engine did not respond within"):
        client.submit(a_job()).wait(1)


def test_patience_ends() -> None:
    patience = OutageTolerance(max_seconds=0.0)
    patience.tolerate(SILENT)
    with pytest.raises(BackendError, match="is not responding"):
        patience.tolerate(SILENT)


@pytest.mark.parametrize(
    ("status", "reason", "passing"),
    [
        (0, TIMEOUT, True),
        (0, CERTIFICATE, False),
        (0, NO_LOGIN, False),
        (429, "", True),
        (500, "", True),
        (503, "", True),
        (403, "", False),
        (404, "", False),
    ],
)
def test_what_passes_by_itself_is_known_of_an_api_server_too(status: int, reason: str, passing: bool) -> None:
    error = ApiError("no", status=status, reason=reason, details={"name": "x"})
    told = translate(error, doing="look")
    assert error.passing is passing
    assert getattr(told, "passing", False) is passing


@pytest.mark.parametrize(
    ("date", "received", "ahead"),
    [
        ("Sun, 15 Nov 2026 09:51:19 GMT", 1794736280.0, 0.0),
        ("Sun, 15 Nov 2026 09:51:19 GMT", 1794736279.5 + 3600, -3600.0),
        ("Sun, 15 Nov 2026 09:51:19 GMT", 1794736279.5 - 3600, 3600.0),
        ("", 1794736280.0, 0.0),
        ("yesterday", 1794736280.0, 0.0),
        ("Sun, 15 Nov 2026 09:51:19 CET", 0.0, 0.0),
    ],
)
def test_the_clusters_clock_is_known_from_its_answers(date: str, received: float, ahead: float) -> None:
    assert http.ahead_seconds(date, received) == ahead


@pytest.mark.parametrize(
    ("why", "words"),
    [
        ("certificate is not yet valid", "this machine's clock"),
        ("certificate has expired", "this machine's clock"),
        ("unable to get local issuer certificate", "certificate-authority-data"),
    ],
)
def test_a_certificate_that_is_not_valid_now_may_be_a_clock_that_is_wrong(why: str, words: str) -> None:
    error = ssl.SSLCertVerificationError(1, why)
    error.verify_message = why
    dialler = connection.Connector(Access(server="https://api.test:6443"))
    assert words in dialler._unreachable(error).hint
