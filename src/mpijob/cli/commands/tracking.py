"""The commands mlflow and tensorboard: training metrics in these tools."""

from __future__ import annotations

import click

from mpijob.cli.context import App, pass_app
from mpijob.cli.options import command, job_names, name_argument
from mpijob.errors import InvalidJob


@command("mlflow", outputs=())
@click.argument("name", metavar="[NAME]", required=False, shell_complete=job_names)
@click.option("--to", "address", metavar="URL", help="URL of the server; default: the setting `mlflow`.")
@click.option("-f", "--follow", is_flag=True, help="Follow until the job ends.")
@click.option("-A", "--all-namespaces", is_flag=True, help="Without NAME: include all namespaces.")
@pass_app
def mlflow(app: App, name: str | None, address: str | None, follow: bool, all_namespaces: bool) -> None:
    """Send training metrics to an MLflow server.

    A namespace becomes an experiment, a job becomes a run. Without NAME, send metrics of all running jobs
    until SIGTERM or Ctrl-C; a restart continues where the last one stopped. On a cluster, the recorder does
    the same with the setting `mlflow`.
    """
    from mpijob.client.integrations import metric_sources, tracking
    from mpijob.client.integrations.mlflow import Server
    from mpijob.client.services import shutdown

    settings = app.client.settings
    if not (address or settings.mlflow):
        raise InvalidJob(
            "no MLflow server is configured",
            hint="name it with --to http://mlflow:5000, or in the setting mlflow",
        )
    server = Server(address or settings.mlflow, settings.mlflow_token_file)
    mirror = tracking.MetricMirror(metric_sources.OfClient(app.client, all_namespaces=all_namespaces), server)
    if name is None:
        sender = tracking.Sender(mirror, shutdown.until_ended())
        app.out.note(f"sending training metrics to {server.address}")
        sender.run()
        return
    ref = app.client.state(name).ref
    stop = shutdown.until_ended()
    while (state := mirror.send_job(ref)) and follow and not state.phase.final:
        if stop.wait(tracking.EVERY_SECONDS):
            break
    run = server.run_of(app.client.state(ref))
    if run is None:
        app.out.note(f"{name} reported no metrics; call mpijob.report(step=…, loss=…) in the program")
        return
    app.out.line(server.link(run))


@command("tensorboard", outputs=())
@name_argument
@click.option(
    "--logdir", metavar="DIRECTORY", default="", help="Directory of the event files, for example on a volume."
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=6006,
    show_default=True,
    help="Port; 0 selects a free port.",
)
@pass_app
def tensorboard(app: App, name: str, logdir: str, port: int) -> None:
    """Run TensorBoard for a job.

    Show the event files of the job, or metrics from its logs if there are none. Run until SIGTERM or
    Ctrl-C.
    """
    from mpijob.client.integrations.tensorboard import serve
    from mpijob.client.services import shutdown

    state = app.client.state(name)
    stop = shutdown.until_ended()
    serve(app.client, state.ref, stop, app.out.line, logdir=logdir, port=port)
