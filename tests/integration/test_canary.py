"""Planted secrets are in no output of the command line and of the page: the job has ended, its sources are gone.

They are planted as `secrets`, behind telling names, in addresses and in arguments; the job says them all.
"""

from __future__ import annotations

import base64
import io
import tarfile
from collections.abc import Iterable
from pathlib import Path

import pytest
from click.testing import CliRunner
from starlette.testclient import TestClient
from tests.unit.api_support import COOKIE, HOST, Browser

from mpijob import AsyncClient, Client, MPIJob, Phase
from mpijob.api.app import application
from mpijob.api.auth.sessions import CookieAuth
from mpijob.api.request_context import AppState
from mpijob.backends.local import LocalBackend
from mpijob.cli.context import App
from mpijob.cli.root import cli
from mpijob.client.audit.recorder import audit_directory
from mpijob.formats.jobfile import jobfile_reader
from mpijob.model import Secret
from mpijob.model.status.audit import AuditQuery

from .support import PATIENCE, a_job, eventually, succeeded

pytestmark = [
    pytest.mark.engine,
    pytest.mark.security,
    pytest.mark.req("FR-026", "FR-SEC-002", "FR-SEC-003", "C-audit", "D-sanitize"),
]
CANARY = "canary-91c4d7"
SPEAKS = """
echo "$API_TOKEN and $WANDB and $CERTIFICATE and $CONN and $CACHE"
printf %s "$WANDB" | base64; echo "$WANDB" | base64; echo "started with $1"
env >&2
if [ "$MPIJOB_RANK" = 1 ]; then echo "fatal: $WANDB $CONN" >&2; exit 3; fi
sleep 60
"""
ENV = {
    "API_TOKEN": f"{CANARY}-token",
    "DB_PASSWORD": f"{CANARY}-password",
    "AWS_SECRET_ACCESS_KEY": f"{CANARY}-key",
    "CONN": f"postgresql://bob:{CANARY}-address@db/x",
    "CACHE": f"redis://:{CANARY}-cache@cache:6379",
}
ARGUMENTS = (f"--api-key={CANARY}-option", "--password", f"{CANARY}-argument")
SECRETS = (f"{CANARY}-source", f"{CANARY}-file", f"{CANARY}-second-line")
ENCODED = tuple(base64.b64encode(text.encode()).decode() for text in (SECRETS[0], f"{SECRETS[0]}\n"))

FORMS = ("table", "json", "yaml")
ABOUT_IT = (
    *(f"{verb} leaky -o {form}" for verb in ("describe", "get") for form in FORMS),
    *(f"{verb} leaky -o {form}" for verb in ("logs", "why", "events") for form in ("table", "json")),
    "logs leaky --fold", "logs leaky --grep fatal", "export leaky", "export leaky -o json", "trace leaky",
)  # fmt: skip
AT_LARGE = (
    *(f"list -o {form}" for form in FORMS), *(f"audit -o {form}" for form in ("table", "json", "csv")),
    "acct", "patterns",
)  # fmt: skip
OF_THE_JOB = (
    "", "/logs", "/logs?format=text", "/events", "/why", "/attempts", "/links", "/curves",
    *(f"/export?format={form}" for form in ("yaml", "json", "trainjob", "mpijob", "sbatch")),
)  # fmt: skip
OF_THE_PAGE = ("/trainjobs", "/audit", "/overview", "/accounts", "/patterns", "/queues")
SPOKEN = ("logs leaky -o table", "logs leaky -o json", "GET /trainjobs/default/leaky/logs")


def test_planted_secrets_are_in_no_output(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    succeeded(client, a_job("plain"))
    file = tmp_path / "certificate"
    file.write_text("\n".join(SECRETS[1:]))
    monkeypatch.setenv("THE_SOURCE", SECRETS[0])
    job = client.submit(_leaky(file))
    assert job.wait(PATIENCE).phase is Phase.FAILED
    eventually(lambda: client.audit(AuditQuery(jobs=("leaky",), verbs=("end",))), "its end in the audit")
    plans = _plans(client, file)
    monkeypatch.delenv("THE_SOURCE")
    file.unlink()

    alive = plans | _outputs(client) | _while_it_is_there(client, tmp_path)
    assert _leaks(alive) == set()
    assert "fatal: *** postgresql://***@db/x" in alive["logs leaky --grep fatal"]
    assert "started with --api-key=***" in alive["logs leaky -o table"]
    assert "DB_PASSWORD: '***'" in alive["export leaky"]
    assert "leaky" in alive["audit -o table"]
    assert _on_disk(client) == set()

    job.delete()
    gone = _outputs(client)
    assert _leaks(gone) == set()
    masks = {words: alive[words].count("***") for words in SPOKEN}
    assert {words: gone[words].count("***") for words in SPOKEN} == masks
    assert _on_disk(client) == set()


def _leaky(file: Path) -> MPIJob:
    secrets = (Secret(env="WANDB", source="env:THE_SOURCE"), Secret(env="CERTIFICATE", source=f"file:{file}"))
    words = ("sh", "-c", SPEAKS, "sh")
    return a_job("leaky", command=words, args=ARGUMENTS, env=ENV, secrets=secrets, image="example.org/mpi:1")


def _leaks(shown: dict[str, str], words: Iterable[str] = (CANARY, *ENCODED)) -> set[str]:
    return {name for name, text in shown.items() for word in words if word in text}


def _outputs(client: Client) -> dict[str, str]:
    """Return all that is shown of the job and of all jobs; lines as they were said hold none of the job's secrets."""
    shown = {words: _said(client, words) for words in (*ABOUT_IT, *AT_LARGE)}
    for words in ("logs leaky --raw", "logs leaky --download - --merged"):
        text = _said(client, words)
        assert "fatal: ***" in text
        assert _leaks({words: text}, (*SECRETS, *ENCODED)) == set()
    audit = Path(audit_directory(client.backend, client.settings))
    shown |= {f"the audit's {file.name}": file.read_text() for file in audit.iterdir()}
    return shown | _page(client, *(f"/trainjobs/default/leaky{part}" for part in OF_THE_JOB))


def _while_it_is_there(client: Client, tmp_path: Path) -> dict[str, str]:
    """Return what is shown only of a job that was not deleted."""
    bundle = tmp_path / "bundle.tar.gz"
    _said(client, f"bundle leaky -O {bundle}")
    compared = {
        words: _said(client, words) for words in ("compare leaky plain", "compare leaky plain -o json")
    }
    page = _page(client, "/trainjobs/default/leaky/bundle", "/compare?job=default/leaky&job=default/plain")
    return compared | page | _packed("bundle", bundle.read_bytes())


def _plans(client: Client, file: Path) -> dict[str, str]:
    """Return what is shown of the same job before it is started."""
    job = file.with_name("job.yaml")
    job.write_text(jobfile_reader.write(_leaky(file).replace(name="next")))
    return {form: _said(client, f"plan -f {job} -o {form}") for form in FORMS}


def _said(client: Client, words: str) -> str:
    app = App(connect=lambda _: Client(LocalBackend(client.settings), settings=client.settings))
    done = CliRunner().invoke(cli, words.split(), obj=app, prog_name="mpijob")
    assert done.exit_code == 0, (words, done.output)
    return done.output


def _page(client: Client, *paths: str) -> dict[str, str]:
    """Return what the page's server answers."""
    room = AppState(AsyncClient(settings=client.settings), CookieAuth("me", [HOST], cookie=COOKIE))
    shown: dict[str, str] = {}
    with TestClient(application(room), base_url=f"http://{HOST}") as http:
        browser = Browser(room, http).sign_in()
        for path in (*OF_THE_PAGE, *paths):
            answer = browser.get(path)
            assert answer.status_code == 200, (path, answer.text)
            shown |= _packed(path, answer.content) if "/bundle" in path else {f"GET {path}": answer.text}
    return shown


def _packed(name: str, data: bytes) -> dict[str, str]:
    with tarfile.open(fileobj=io.BytesIO(data)) as packed:
        files = {one.name: packed.extractfile(one) for one in packed.getmembers()}
        return {f"{name}: {one}": file.read().decode() for one, file in files.items() if file is not None}


def _on_disk(client: Client) -> set[str]:
    """Return the files of the engine that hold the value of a secret, in which form ever."""
    files = (path for path in Path(client.settings.home).rglob("*") if path.is_file())
    values = [word.encode() for word in (*SECRETS, *ENCODED)]
    return {str(path) for path in files for data in [path.read_bytes()] if any(one in data for one in values)}
