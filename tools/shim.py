"""Build the shim that counts MPI calls, as a wheel has it: `python -m tools.shim`; with `--own` for this machine only.

For all of them zig's C compiler is used, a pinned wheel that compiles for any machine; for this one any C compiler is
good enough, and a checkout without one goes without: `backends/profiler/library` then says so.
"""

from __future__ import annotations

import platform
import sys

from mpijob.backends.profiler import library
from mpijob.errors import Unsupported

TARGETS = {"x86_64": "x86_64-linux-gnu.2.17", "aarch64": "aarch64-linux-gnu.2.17"}


def main(arguments: list[str]) -> int:
    """Build what is asked for; return 1 where that is impossible."""
    try:
        if arguments == ["--own"]:
            library.build_for_wheel()
        else:
            for machine, target in TARGETS.items():
                zig = (sys.executable, "-m", "ziglang", "cc", "-target", target)
                library.compile_into(library.prebuilt(machine), zig)
    except Unsupported as error:
        sys.stderr.write(f"the shim that counts MPI calls is not built: {error}\n")
        return 0 if arguments == ["--own"] else 1
    sys.stderr.write(f"the shim that counts MPI calls is in {library.prebuilt(platform.machine()).parent}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
