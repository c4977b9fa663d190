"""mlflow, tensorboard: a training's curves in the tools that teams have for them."""

from __future__ import annotations

import click

from mpijob.cli.context import App, pass_app
from mpijob.cli.options import command, job_names, name_argument
from mpijob.errors import InvalidJob


@command("mlflow", outputs=())
@click.argument("name", metavar="[NAME]", required=False, shell_complete=job_names)
@click.option("--to", "address", metavar="URL", help="The server, instead of the setting `mlflow`.")
@click.option("-f", "--follow", is_flag=True, help="Go on until the job has ended.")
@click.option("-A", "--all-namespaces", is_flag=True, help="Without a name: jobs of every namespace.")
@pass_app
def mlflow(app: App, name: str | None, address: str | None, follow: bool, all_namespaces: bool) -> None:
    """Send training metrics to an MLflow server.

    A namespace is an experiment, a job is a run. Of one job, or without a name of all jobs as they run, until it
    is ended (SIGTERM, Ctrl-C); started again, it goes on where it was. A recorder with the setting `mlflow` does
    the same for a cluster.
    """
    from mpijob.client.integrations import metric_sources, tracking
    from mpijob.client.integrations.mlflow import Server
    from mpijob.client.services import shutdown

    settings = app.client.settings
    if not (address or settings.mlflow):
        raise InvalidJob(
            "no MLflow server is known", hint="name it with --to http://mlflow:5000, or in the setting mlflow"
        )
    server = Server(address or settings.mlflow, settings.mlflow_token_file)
    mirror = tracking.MetricMirror(metric_sources.OfClient(app.client, all_namespaces=all_namespaces), server)
    if name is None:
        sender = tracking.Sender(mirror, shutdown.until_ended())
        app.out.note(f"sending what trainings tell to {server.address}")
        sender.run()
        return
    ref = app.client.state(name).ref
    stop = shutdown.until_ended()
    while (state := mirror.tell(ref)) and follow and not state.phase.final:
        if stop.wait(tracking.EVERY_SECONDS):
            break
    run = server.run_of(app.client.state(ref))
    if run is None:
        app.out.note(f"{name} told no metrics; mpijob.report(step=…, loss=…) in the program tells them")
        return
    app.out.line(server.link(run))


@command("tensorboard", outputs=())
@name_argument
@click.option(
    "--logdir", metavar="DIRECTORY", default="", help="Event files that are elsewhere, on a volume say."
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=6006, show_default=True, help="0 takes a free one."
)
@pass_app
def tensorboard(app: App, name: str, logdir: str, port: int) -> None:
    """Run TensorBoard for a job.

    It shows the event files that the job wrote, else what its ranks told. It follows the job while it runs, and
    goes on until it is ended (SIGTERM, Ctrl-C).
    """
    from mpijob.client.integrations.tensorboard import serve
    from mpijob.client.services import shutdown

    state = app.client.state(name)
    stop = shutdown.until_ended()
    serve(app.client, state.ref, stop, app.out.line, logdir=logdir, port=port)
