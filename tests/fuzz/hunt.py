"""One hunt, in a process of its own: `python -m tests.fuzz.hunt TARGET FOLDER SECONDS` (atheris, libFuzzer's guide).

What reaches new branches is written into the folder `seen`, an input that breaks a promise into `found`; the hunt ends
with its first find.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import atheris


def main() -> None:
    """Hunt until the time is over or something is found."""
    name, folder, seconds = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    with atheris.instrument_imports(include=["mpijob"]):
        from tests.fuzz.targets import TARGETS
    (folder / "found").mkdir(parents=True, exist_ok=True)
    options = [
        f"-max_total_time={seconds}", "-max_len=8192", "-timeout=20", "-rss_limit_mb=4096",
        f"-artifact_prefix={folder / 'found'}{os.sep}", "-print_final_stats=1", "-verbosity=0",
    ]  # fmt: skip
    atheris.Setup([sys.argv[0], *options, str(folder / "seen")], TARGETS[name].read)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
