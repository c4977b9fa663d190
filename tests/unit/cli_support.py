"""A command line over simulated jobs, for the tests of the CLI."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from mpijob.backends.memory import MemoryBackend
from mpijob.cli.context import App
from mpijob.cli.root import cli
from mpijob.client import Client
from mpijob.settings import Settings


class Cli:
    """Runs command lines one after the other against the same jobs."""

    def __init__(
        self, backend: MemoryBackend | None = None, client: type[Client] = Client, home: str = ""
    ) -> None:
        self.backend = backend or MemoryBackend()
        self._client = client
        self._settings = Settings(home=home, engine="memory")

    def connect(self, namespace: str | None = None) -> Client:
        return self._client(self.backend, namespace=namespace, settings=self._settings)

    def __call__(
        self, *words: str, stdin: str | bytes | None = None, env: dict[str, str] | None = None
    ) -> Result:
        app = App(connect=self.connect, now=lambda: self.backend.now)
        return CliRunner(env=env).invoke(cli, list(words), obj=app, prog_name="mpijob", input=stdin)

    def ok(self, *words: str) -> str:
        """Run a command line that must succeed and return what it printed."""
        result = self(*words)
        assert result.exit_code == 0, result.stderr
        return result.stdout

    def json(self, *words: str) -> Any:
        at = words.index("--") if "--" in words else len(words)
        return json.loads(self.ok(*words[:at], "-o", "json", *words[at:]))

    def finished(self, name: str, *command: str) -> None:
        """Run a job to its end, however it ends."""
        self("run", name, "--workers", "2", "--", *(command or ("echo", "hello")))


def a_file(folder: Path, text: str) -> str:
    path = folder / "job.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)
