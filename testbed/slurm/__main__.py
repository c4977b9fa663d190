"""`python -m testbed.slurm up | down | status | run | shell | reset`: the Slurm cluster from the shell."""

from __future__ import annotations

import argparse
import sys

from testbed.shell import TestBedError
from testbed.slurm import cluster, places, session


def main(arguments: list[str] | None = None) -> int:
    """Do what the command line asks and return the exit status: 2 when this machine cannot run it."""
    asked = _parser().parse_args(arguments)
    try:
        return _do(asked)
    except TestBedError as error:
        print(f"testbed.slurm: {error}", file=sys.stderr)
        return error.exit_status


def _do(asked: argparse.Namespace) -> int:
    match asked.command:
        case "up":
            cluster.up()
            print("python -m testbed.slurm shell        # a shell on its login node, as alice")
        case "down":
            cluster.down(purge=asked.purge)
        case "status":
            print(cluster.status())
            return 0 if cluster.is_up() else 1
        case "reset":
            cluster.reset()
        case "run":
            argv = asked.argv[1:] if asked.argv[:1] == ["--"] else asked.argv
            return session.run(argv, machine=asked.machine, user=asked.user)
        case "shell":
            return session.shell(asked.machine, asked.user)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m testbed.slurm", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("up", help="start the cluster; quick when it is up")
    down = commands.add_parser("down", help="remove the cluster; what was built stays in the cache")
    down.add_argument("--purge", action="store_true", help="remove the cache too")
    commands.add_parser("status", help="tell what runs; exit status 0 when the cluster is up")
    commands.add_parser("reset", help="bring back what a test has left broken")
    inner = commands.add_parser(
        "run", help="run a command on the login node; who starts the cluster removes it"
    )
    inner.add_argument("argv", nargs=argparse.REMAINDER, metavar="-- COMMAND …")
    shell = commands.add_parser("shell", help="open a shell on a machine")
    for command in (inner, shell):
        command.add_argument("--machine", default=places.LOGIN, choices=places.MACHINES)
        command.add_argument("--user", default="alice", choices=("root", *places.USERS))
    return parser


if __name__ == "__main__":
    sys.exit(main())
