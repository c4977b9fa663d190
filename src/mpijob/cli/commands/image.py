"""The `image` command: inspect a container image before a job runs in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from mpijob.cli import exit_codes
from mpijob.cli.context import App, pass_app
from mpijob.cli.options import SETTINGS, command
from mpijob.cli.output import Format, finding_lines
from mpijob.cli.render import text
from mpijob.client.admin.images import image_exists, inspect_image
from mpijob.model.spec import quantity
from mpijob.model.spec.image import NAMES, Image, ImageReport, Verdict

_VERDICTS = {
    Verdict.READY: "ready: found nothing that would stop an MPI job",
    Verdict.DOUBTFUL: "doubtful: jobs may run, but see the warnings",
    Verdict.BROKEN: "not fit: an MPI job would fail in it",
}


def _registry_options(function: Any) -> Any:
    for option in (
        click.option("--plain-http", is_flag=True, help="Connect to the registry without TLS."),
        click.option("--ca-file", default="", metavar="FILE", help="CA certificate of the registry."),
        click.option(
            "--auth-file",
            default="",
            metavar="FILE",
            help="Registry credentials, in the format of docker and podman.",
        ),
    ):
        function = option(function)
    return function


@click.group("image", context_settings=SETTINGS)
def image() -> None:
    """Check container images for MPI, sshd and Python."""


@command("inspect", outputs=(Format.TABLE, Format.JSON, Format.YAML), namespace=False)
@click.argument("target", metavar="IMAGE|ARCHIVE|FOLDER")
@click.option("--launcher", default="", metavar="IMAGE", help="Image of the launcher to compare with.")
@click.option(
    "--platform",
    default="",
    metavar="OS/ARCH",
    help="Platform of a multi-platform image; default: that of this machine.",
)
@_registry_options
@pass_app
def inspect(app: App, target: str, **chosen: Any) -> None:
    """Show MPI, sshd and Python of an image, and whether MPI jobs can run in it.

    Reads the layers from a registry, an archive (OCI or `docker save`) or an OCI layout directory. Needs no
    container engine and starts nothing.
    """
    with app.out.progress(f"reading the layers of {target} …"):
        report = inspect_image(target, **chosen)
    if app.out.structured:
        app.out.value(report)
    else:
        app.out.lines(_report_lines(report))
    if not report.ok:
        exit_codes.end(exit_codes.FAILED)


@command("exists", outputs=(), namespace=False)
@click.argument("target", metavar="IMAGE")
@_registry_options
@pass_app
def exists(app: App, target: str, **chosen: Any) -> None:
    """Check whether an image exists in its registry, without downloading it."""
    app.out.line(f"{image_exists(target, **chosen)} exists")


def _report_lines(report: ImageReport) -> Iterator[str]:
    found = report.image
    rows = [(name, value) for name, value in _rows(found) if value]
    width = max(len(name) for name, _ in rows) + 2
    yield from (f"{name + ':':<{width}}{text.one_line(value)}" for name, value in rows)
    yield f"{'verdict:':<{width}}{_VERDICTS[report.verdict]}"
    if report.findings:
        yield from ("", *finding_lines(report.findings))


def _rows(found: Image) -> Iterator[tuple[str, str]]:
    origin = found.origin
    yield "image", origin.name
    yield "digest", origin.digest
    size = f"{origin.layers} layer{'s' if origin.layers != 1 else ''}, {quantity.as_bytes(origin.bytes)} unpacked"
    yield "platform", f"{origin.platform}, {size}"
    yield "system", found.system
    yield "MPI", ", ".join(f"{one} ({one.path})" for one in found.mpis) or "none"
    yield "launcher", _launcher(found)
    yield "ssh", f"server {found.sshd.path if found.sshd else 'missing'}, client {found.ssh or 'missing'}"
    yield "Python", f"{found.python_version} ({found.python})" if found.python else "none"
    yield "mpi4py", _mpi4py(found)
    yield "CUDA", _cuda(found)
    yield "fabrics", ", ".join(found.fabrics)
    yield (
        "any user",
        "yes" if found.passwd_open and found.home_open else "in jobs of mpijob, which add what is missing",
    )


def _launcher(found: Image) -> str:
    if not found.launcher:
        return "none"
    return found.launcher + (f" of {NAMES[found.launcher_family]}" if found.launcher_family else "")


def _mpi4py(found: Image) -> str:
    if found.mpi4py is None:
        return ""
    return f"{found.mpi4py.version or 'of unknown version'}, for {' or '.join(found.mpi4py.needs) or 'an unknown MPI'}"


def _cuda(found: Image) -> str:
    if not found.cuda and not found.nccl:
        return ""
    aware = {
        True: "MPI is CUDA-aware",
        False: "MPI is not CUDA-aware",
        None: "unknown whether MPI is CUDA-aware",
    }
    nccl = f"NCCL {found.nccl}" if found.nccl else ""
    return ", ".join(filter(None, (found.cuda, nccl, aware[found.mpi.cuda_aware if found.mpi else None])))


for _command in (inspect, exists):
    image.add_command(_command)
