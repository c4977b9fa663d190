"""`python -m mpijob.cluster operator`: run one of the services of a cluster.

`mpijob operator` executes this: the layers do not let `cli` import `cluster`.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

DEPLOY = Path("/usr/share/mpijob/deploy")


def main(arguments: list[str] | None = None) -> None:
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    if options.service == "operator":
        from mpijob.cluster.operator import serve

        serve(options.namespace, options.deploy, health_port=options.health_port)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m mpijob.cluster", description=__doc__.splitlines()[0])
    services = parser.add_subparsers(dest="service", required=True)
    operator = services.add_parser("operator", help="reconcile the MPIJobPlatform")
    operator.add_argument("--namespace", default="", help="namespace of the inventory and the Lease")
    operator.add_argument("--deploy", type=Path, default=DEPLOY, help="directory of mpijob's own manifests")
    operator.add_argument("--health-port", type=int, help="serve /healthz, /readyz and /metrics on this port")
    return parser


if __name__ == "__main__":
    main()
