"""`python -m mpijob.cluster operator`: the services that a cluster talks to; each is a process of its own."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

DEPLOY = Path("/usr/share/mpijob/deploy")


def main(arguments: list[str] | None = None) -> None:
    """Run one service until it is ended."""
    asked = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    if asked.service == "operator":
        from mpijob.cluster.operator import serve

        serve(asked.namespace, asked.deploy, health_port=asked.health_port)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m mpijob.cluster", description=__doc__.splitlines()[0])
    services = parser.add_subparsers(dest="service", required=True)
    operator = services.add_parser("operator", help="keep the platform as the MPIJobPlatform says")
    operator.add_argument("--namespace", default="", help="where the inventory and the Lease are")
    operator.add_argument("--deploy", type=Path, default=DEPLOY, help="the folder of our own manifests")
    operator.add_argument("--health-port", type=int, help="answer /healthz, /readyz and /metrics")
    return parser


if __name__ == "__main__":
    main()
