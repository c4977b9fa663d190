"""A directory that stands for a pod, in which its sh texts are run for real with dash."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from mpijob.formats.launch.launcher_script import LAUNCHER

# what a launcher stands in for: it writes its words down, counts when asked, and runs the command else
STUB = """#!/bin/sh
if [ "$MPIJOB_CENSUS" = 1 ]; then cat "$CENSUS"; echo noise >&2; exit "${CENSUS_EXIT:-0}"; fi
for word in "$@"; do printf '%s\\0' "$word"; done >"$WORDS"
exit "${COMMAND_EXIT:-0}"
"""


class Pod:
    """A directory that stands for a pod: its home, its keys, its hostfile, and a stub of mpirun."""

    def __init__(self, root: Path) -> None:
        self.home, self.keys, self.bin = root / "home", root / "keys", root / "bin"
        for directory in (self.home / ".ssh", self.home / "ranks", self.keys, self.bin):
            directory.mkdir(parents=True)
        self.last_words, self.words, self.census = root / "last", root / "words", root / "census"
        (self.keys / "id_rsa").write_text("PRIVATE\n")
        (self.keys / "id_rsa.pub").write_text("ecdsa-sha2-nistp521 AAAA\n")
        (root / "hostfile").write_text("localhost slots=2\n127.0.0.1 slots=2\n")
        self.program("mpirun", STUB)
        self.env = {
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "MPIJOB_HOME": str(self.home),
            "MPIJOB_SSH": str(self.keys),
            "MPIJOB_LAST_WORDS": str(self.last_words),
            "MPIJOB_HOSTFILE": str(root / "hostfile"),
            "MPIJOB_WORLD": "4",
            "MPIJOB_USED": "2",
            "MPIJOB_MOST": "2",
            "MPIJOB_PATIENCE": "1",
            "CENSUS": str(self.census),
            "WORDS": str(self.words),
        }
        self.ranks("localhost", "localhost", "127", "127")

    def program(self, name: str, text: str) -> None:
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def ranks(self, *hosts: str, size: int | None = None, gpus: int = 0, before: str = "") -> None:
        lines = [
            f"{before}mpijob-census rank={rank} size={size or len(hosts)} local=0 host={host} node=n1 gpus={gpus}\n"
            for rank, host in enumerate(hosts)
        ]
        self.census.write_text("".join(lines))

    def launch(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        return self.sh(LAUNCHER, "mpijob-launcher", *words, **env)

    def sh(self, text: str, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        argv = ["dash", "-c", text, *words]
        return subprocess.run(
            argv, env=self.env | env, capture_output=True, text=True, timeout=20, check=False
        )

    @property
    def command(self) -> list[str]:
        return self.words.read_text().split("\0")[:-1]


def until(happened: object) -> None:
    deadline = time.monotonic() + 10
    while not happened():  # type: ignore[operator]  # any predicate
        assert time.monotonic() < deadline, "it did not happen in 10 s"
        time.sleep(0.01)


def a_pod(tmp_path: Path) -> Pod:
    """The fixture `pod` of those who want it."""
    return Pod(tmp_path)
