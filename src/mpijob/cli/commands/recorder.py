"""recorder: the process that writes a cluster's jobs down while they run."""

from __future__ import annotations

import logging
import signal
import threading

import click

from mpijob.cli.context import App, pass_app
from mpijob.cli.options import command


@command("recorder", outputs=())
@click.option("-A", "--all-namespaces", is_flag=True, help="Jobs of every namespace.")
@pass_app
def recorder(app: App, all_namespaces: bool) -> None:
    """Record the jobs of a cluster, so that they are known when they are gone.

    It goes on until it is ended (SIGTERM, Ctrl-C); started again, it goes on where it was. States, events,
    exit codes and all logs go into the directory of the setting `history`, which `mpijob logs`, `describe`,
    `events` and `list --deleted` read when a job is gone.
    """
    from mpijob.client import recording

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    namespace = "" if all_namespaces else app.client.namespace
    where = "all namespaces" if all_namespaces else f"namespace {namespace}"
    recording.record(
        app.client.settings, namespace, stop, lambda path: app.out.note(f"recording {where} into {path}")
    )
