"""`python -m testbed up | down | status | run | kwok | services`: the test bed from the shell.

Progress goes to stderr; stdout holds what a shell can evaluate: `eval "$(python -m testbed up)"`.
"""

from __future__ import annotations

import argparse
import sys

from testbed import cluster, kwok, places, services, session
from testbed.shell import TestBedError


def main(arguments: list[str] | None = None) -> int:
    """Do what the command line asks and return the exit status: 2 when this machine cannot run it."""
    asked = _parser().parse_args(arguments)
    try:
        return _do(asked)
    except TestBedError as error:
        print(f"testbed: {error}", file=sys.stderr)
        if error.exit_status == 1 and places.logs().is_dir():
            print(
                f"testbed: logs are in {places.logs()}; `python -m testbed down` removes all", file=sys.stderr
            )
        return error.exit_status


def _do(asked: argparse.Namespace) -> int:
    match asked.command:
        case "up":
            cluster.up()
            print(f"export KUBECONFIG={places.kubeconfig()}")
        case "down":
            cluster.down(purge=asked.purge)
        case "status":
            print(cluster.status())
            return 0 if cluster.is_up() else 1
        case "run":
            return session.run(asked.argv[1:] if asked.argv[:1] == ["--"] else asked.argv)
        case "kwok":
            _do_kwok(asked)
        case "services":
            _check_up()
            print(services.provide())
    return 0


def _do_kwok(asked: argparse.Namespace) -> None:
    _check_up()
    if asked.action == "up":
        kwok.up(asked.nodes)
    else:
        kwok.down()


def _check_up() -> None:
    if not cluster.is_up():
        raise TestBedError("the test bed is down: `python -m testbed up` first")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m testbed", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("up", help="build what is missing and start the cluster; quick when it is up")
    down = commands.add_parser("down", help="remove the cluster; the build cache stays")
    down.add_argument("--purge", action="store_true", help="remove the build cache too")
    commands.add_parser("status", help="tell what runs; exit status 0 when the cluster is up")
    inner = commands.add_parser("run", help="run a command on the cluster; who starts it removes it")
    inner.add_argument("argv", nargs=argparse.REMAINDER, metavar="-- COMMAND …")
    fake = commands.add_parser("kwok", help="fake nodes, for scale").add_subparsers(
        dest="action", required=True
    )
    more = fake.add_parser("up", help="start kwok and create fake nodes with 8 GPUs each")
    more.add_argument("--nodes", type=int, default=50)
    fake.add_parser("down", help="remove the fake nodes and stop kwok")
    commands.add_parser("services", help="make the image of this checkout's services and import it")
    return parser


if __name__ == "__main__":
    sys.exit(main())
