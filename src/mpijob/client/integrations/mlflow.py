"""Client of MLflow's REST API: one experiment for a namespace, one run for a job.

Values that ranks report (`mpijob.report`, or words in their lines) are sent as they arrive; a value that is
sent twice is stored once. A run is found by the job's uid, which is its tag. Commands, variables and log
lines are not sent.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from mpijob.errors import BackendError, InvalidJob
from mpijob.model import JobState, Phase
from mpijob.outbound import http

if TYPE_CHECKING:
    from mpijob.observation.metrics.training import Point
    from mpijob.settings import Settings

_SECONDS = 10.0
_MOST_BYTES = 16 << 20
_CODES = re.compile(rb'"error_code"\s*:\s*"([A-Z_]{1,60})"')
# The limit of a server for one request.
_BATCH = 1000
_UID = "mpijob.uid"
_PLACES = ("step", "global_step", "iteration", "iter", "batch", "epoch")
_ENDS = {Phase.SUCCEEDED: "FINISHED", Phase.FAILED: "FAILED", Phase.CANCELLED: "KILLED"}

Value = dict[str, Any]


class Server:
    """A tracking server."""

    def __init__(self, address: str, token_file: str = "", seconds: float = _SECONDS) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise InvalidJob(
                f"{address!r} is not the URL of an MLflow server", hint="write it as http://mlflow:5000"
            )
        self.address, self._token_file, self._seconds = address.rstrip("/"), token_file, seconds
        self._experiments: dict[str, str] = {}

    def run_of(self, state: JobState) -> Value | None:
        """Return the run of a job, None if there is none."""
        experiment = self._experiment(state.ref.namespace, make=False)
        if not experiment:
            return None
        wanted = f"tags.`{_UID}` = '{state.ref.uid}'"
        found = self._post(
            "runs/search", {"experiment_ids": [experiment], "filter": wanted, "max_results": 1}
        )
        runs: list[Value] = found.get("runs") or []
        return runs[0]["info"] if runs else None

    def begin(self, state: JobState) -> Value:
        """Return the run of a job, created if there is none."""
        if (found := self.run_of(state)) is not None:
            return found
        made = self._post(
            "runs/create",
            {
                "experiment_id": self._experiment(state.ref.namespace, make=True),
                "run_name": state.ref.name,
                "start_time": int((state.started or state.created) * 1000),
                "tags": _tags(state),
            },
        )
        info: Value = made["run"]["info"]
        params = {"workers": state.workers_wanted, "ranks": state.world}
        self._post(
            "runs/log-batch",
            {
                "run_id": info["run_id"],
                "params": [{"key": key, "value": str(value)} for key, value in params.items()],
            },
        )
        return info

    def log(self, run: str, values: Sequence[Value]) -> None:
        """Send values of a run."""
        for at in range(0, len(values), _BATCH):
            self._post("runs/log-batch", {"run_id": run, "metrics": values[at : at + _BATCH]})

    def end(self, run: str, state: JobState) -> None:
        """Send the end of a job."""
        ended = int((state.finished or state.created) * 1000)
        self._post("runs/update", {"run_id": run, "status": _ENDS[state.phase], "end_time": ended})

    def link(self, run: Value) -> str:
        """Return the URL of a run for users."""
        return f"{self.address}/#/experiments/{run['experiment_id']}/runs/{run['run_id']}"

    def _experiment(self, name: str, *, make: bool) -> str:
        if name in self._experiments:
            return self._experiments[name]
        path = f"experiments/get-by-name?experiment_name={quote(name, safe='')}"
        found = self._ask(path, None, missing=True).get("experiment", {}).get("experiment_id", "")
        if not found and make:
            found = self._post("experiments/create", {"name": name})["experiment_id"]
        if found:
            self._experiments[name] = found
        return str(found)

    def _post(self, path: str, body: Value) -> Value:
        return self._ask(path, json.dumps(body).encode())

    def _ask(self, path: str, body: bytes | None, *, missing: bool = False) -> Value:
        url = f"{self.address}/api/2.0/mlflow/{path}"
        headers = {"content-type": "application/json", **self._credentials()}
        method = "GET" if body is None else "POST"
        try:
            answer = http.request(method, url, body, headers, seconds=self._seconds, max_bytes=_MOST_BYTES)
            if answer.ok:
                found: Value = json.loads(answer.body or b"{}")
                return found
        except (OSError, ValueError) as error:
            raise BackendError(
                f"MLflow at {self.address} does not respond: {error}", hint="check the setting mlflow"
            ) from error
        if missing and answer.status == 404:
            return {}
        raise BackendError(f"MLflow at {self.address} {answer}{_code(answer.body)}")

    def _credentials(self) -> dict[str, str]:
        if not self._token_file:
            return {}
        try:
            with open(self._token_file, encoding="utf-8") as file:
                return {"authorization": f"Bearer {file.read().strip()}"}
        except OSError as error:
            raise BackendError(f"{self._token_file}: {error.strerror}") from error


def _code(body: bytes) -> str:
    """Return MLflow's error code; the rest of the body may quote what was sent."""
    found = _CODES.search(body)
    return f": {found[1].decode()}" if found else ""


def server_of(settings: Settings, seconds: float = _SECONDS) -> Server | None:
    """Return the server of the settings, None without one."""
    return Server(settings.mlflow, settings.mlflow_token_file, seconds) if settings.mlflow else None


def values(told: Iterable[Point]) -> list[Value]:
    """Convert points; metrics of ranks other than 0 are named like `loss/rank-3`."""
    found: list[Value] = []
    for one in told:
        step = next((one.values[name] for name in _PLACES if name in one.values), 0.0)
        for name, value in one.values.items():
            if name in _PLACES or name in ("steps", "epochs"):
                continue
            own = _name(name) + (f"/rank-{one.rank}" if one.rank else "")
            found.append(
                {"key": own, "value": _number(value), "timestamp": int(one.time * 1000), "step": int(step)}
            )
    return found


def _number(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")


def _name(name: str) -> str:
    return re.sub(r"[^\w\-. :/]", "_", name, flags=re.ASCII).strip("/") or "_"


def _tags(state: JobState) -> list[dict[str, str]]:
    told = {
        _UID: state.ref.uid,
        "mpijob.name": state.ref.name,
        "mpijob.namespace": state.ref.namespace,
        "mlflow.user": state.owner,
        **{f"mpijob.label.{key}": value for key, value in state.labels.items()},
    }
    return [{"key": key[:250], "value": value[:4000]} for key, value in told.items() if value]
