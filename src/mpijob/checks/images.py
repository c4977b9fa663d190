"""Whether MPI jobs can run in an image, from the values of its files, and whether two images fit together.

Our own jobs bring a passwd file, a home and sshd's configuration. What affects only TrainJobs and MPIJobs written by
hand is a notice.
"""

from __future__ import annotations

from collections.abc import Iterator

from mpijob.errors import Finding, Severity
from mpijob.model.spec.image import NAMES, Image, Mpi
from mpijob.model.spec.job import Family

_ORDER = (Severity.ERROR, Severity.WARNING, Severity.NOTICE)
_SONAMES = {
    Family.OPENMPI: ("libmpi.so.40",),
    Family.MPICH: ("libmpi.so.12",),
    Family.INTEL: ("libmpi.so.12",),
}
_LEAST_PORT = 1024
_DEFAULTS = {"port": "22", "pidfile": "/run/sshd.pid", "usepam": "no", "strictmodes": "yes"}


def inspect(image: Image) -> tuple[Finding, ...]:
    """Return the problems of an image, the ones that stop a job first."""
    found = (
        *_mpi(image),
        *_several(image),
        *_ssh(image),
        *_shell(image),
        *_trapped(image),
        *_closed(image),
        *_mpi4py(image),
        *_cuda(image),
        *_unknown_user(image),
        *_sshd_config(image),
    )
    return tuple(sorted(found, key=lambda one: _ORDER.index(one.severity)))


def compare(launcher: Image, workers: Image) -> tuple[Finding, ...]:
    """Return incompatibilities between the MPI libraries of a launcher's and the workers' image."""
    ours, theirs = launcher.mpi, workers.mpi
    if ours is None or theirs is None:
        return ()
    if ours.family is theirs.family and _series(ours) == _series(theirs):
        return tuple(_other_patch(launcher, workers, ours, theirs))
    message = (
        f"the launcher's image has {ours}, the workers' has {theirs}: a launcher starts daemons of its own kind "
        "on the workers, and ranks of another MPI do not find each other"
    )
    hint = f"use one image for both, or put {ours} into {workers.origin.name}"
    evidence = (f"{launcher.origin.name}: {ours.path}", f"{workers.origin.name}: {theirs.path}")
    return (Finding(code="IMAGE_MPI_DIFFERS", message=message, hint=hint, field="image", evidence=evidence),)


def _other_patch(launcher: Image, workers: Image, ours: Mpi, theirs: Mpi) -> Iterator[Finding]:
    if ours.version == theirs.version or not (ours.exact and theirs.exact):
        return
    yield Finding(
        code="IMAGE_MPI_DIFFERS",
        message=f"the launcher's image has {ours}, the workers' has {theirs}: one series, but not one version",
        hint="use one image for both: MPI implementations do not support mixed versions",
        field="image",
        severity=Severity.WARNING,
        evidence=(f"{launcher.origin.name}: {ours.path}", f"{workers.origin.name}: {theirs.path}"),
    )


def _series(mpi: Mpi) -> tuple[str, ...]:
    """Return the part of a version that must agree: Open MPI's daemons of 4.1 and 5.0 do not interoperate; Hydra's do
    within a major version.
    """
    parts = tuple(mpi.version.split("."))
    return parts[:2] if mpi.family is Family.OPENMPI else parts[:1]


def _mpi(image: Image) -> Iterator[Finding]:
    if not image.launcher:
        beside = f"; {image.mpis[0]} is at {image.mpis[0].path}" if image.mpis else ""
        yield Finding(
            code="IMAGE_NO_MPI",
            message=f"neither mpirun nor mpiexec is in the image's PATH{beside}",
            hint="add the folder with mpirun to PATH in the image (ENV PATH=…), or install an MPI in it",
            field="image",
        )
    elif not image.mpis:
        yield Finding(
            code="IMAGE_NO_MPI",
            message=f"{image.launcher} exists, but no MPI library (libmpi.so) was found",
            hint="install the MPI library that belongs to it; `mpirun -n 2 hostname` alone does not need one",
            field="image",
            severity=Severity.WARNING,
        )


def _several(image: Image) -> Iterator[Finding]:
    families = {mpi.family for mpi in image.mpis}
    if len(families) < 2:
        return
    listed = ", ".join(f"{mpi} in {mpi.path.rpartition('/')[0]}" for mpi in image.mpis)
    own = NAMES[image.launcher_family] if image.launcher_family else "unknown"
    yield Finding(
        code="IMAGE_SEVERAL_MPI",
        message=f"the image has more than one MPI ({listed}); mpirun is that of {own}",
        hint="remove the others, or make PATH and LD_LIBRARY_PATH use the same one",
        field="image",
        severity=Severity.WARNING,
    )


def _ssh(image: Image) -> Iterator[Finding]:
    lacks = [name for name, path in (("sshd", image.sshd), ("ssh", image.ssh)) if not path]
    if lacks:
        yield Finding(
            code="IMAGE_NO_SSH",
            message=f"the image has no {' and no '.join(lacks)}: the launcher reaches the workers over ssh",
            hint="install openssh-server and openssh-client (openssh-clients on RPM systems) in the image",
            field="image",
        )


def _shell(image: Image) -> Iterator[Finding]:
    if not image.shell:
        yield Finding(
            code="IMAGE_NO_SHELL",
            message="the image has no /bin/sh: it is needed to start MPI's daemons and to prepare the pods",
            hint="use a base image with a shell, such as Debian or UBI; distroless images do not work",
            field="image",
        )


def _trapped(image: Image) -> Iterator[Finding]:
    for path, capabilities in image.trapped.items():
        yield Finding(
            code="IMAGE_SETCAP",
            message=f"{path} has the file capabilities {', '.join(capabilities)}: in a pod that drops all "
            "capabilities (restricted level, OpenShift), the kernel refuses to start it (Operation not permitted)",
            hint=f"remove the capability in the image: RUN setcap -r {path}",
            field="image",
            evidence=(f"security.capability of {path}",),
        )


def _closed(image: Image) -> Iterator[Finding]:
    for one in image.closed:
        yield Finding(
            code="IMAGE_CLOSED",
            message=f"an ordinary user cannot start {one.path}: {one.at} has mode {one.mode}",
            hint=f"make it accessible in the image: RUN chmod a+rx {one.at}; or install {one.program} elsewhere",
            field="image",
        )


def _mpi4py(image: Image) -> Iterator[Finding]:
    bound, mpi = image.mpi4py, image.mpi
    if bound is None or mpi is None or not bound.needs:
        return
    sonames = {mpi.soname, *_SONAMES.get(mpi.family, ())}
    if sonames.isdisjoint(bound.needs):
        yield Finding(
            code="IMAGE_MPI4PY",
            message=f"mpi4py in {bound.path} was built for {', '.join(bound.needs)}, but mpirun is that of {mpi} "
            f"({mpi.soname}): every rank would run as a world of one, or fail to start",
            hint="build it for this MPI: MPICC=$(command -v mpicc) pip install --no-binary mpi4py mpi4py; "
            "or use a wheel that supports several MPI libraries (mpi4py 4.1 or newer)",
            field="image",
        )


def _cuda(image: Image) -> Iterator[Finding]:
    mpi = image.mpi
    if image.cuda and mpi is not None and mpi.cuda_aware is False:
        yield Finding(
            code="IMAGE_NOT_CUDA_AWARE",
            message=f"the image has CUDA {image.cuda}, but its {mpi} was not built for it: MPI calls cannot use "
            "GPU memory",
            hint="copy to the host before MPI calls, use NCCL, or build Open MPI with --with-cuda or UCX with CUDA",
            field="image",
            severity=Severity.WARNING,
        )


def _unknown_user(image: Image) -> Iterator[Finding]:
    """A user ID without a passwd entry: OpenShift assigns one to each namespace."""
    lacks = [] if image.passwd_open else ["/etc/passwd cannot be written by group 0"]
    if not image.home_open:
        lacks.append(f"the home {image.home} cannot be written by group 0")
    if lacks:
        yield Finding(
            code="IMAGE_FIXED_USER",
            message=f"the image does not support arbitrary user IDs: {' and '.join(lacks)}",
            hint="no action for jobs of mpijob, which provide both; for others: RUN chmod g=u /etc/passwd && "
            f"chgrp -R 0 {image.home} && chmod -R g=u {image.home}",
            field="image",
            severity=Severity.NOTICE,
        )


def _sshd_config(image: Image) -> Iterator[Finding]:
    if image.sshd is None:
        return
    settings = {**_DEFAULTS, **image.sshd.settings}
    port = int(settings["port"]) if settings["port"].isdecimal() else 22
    lacks = [f"Port is {settings['port']}"] if port < _LEAST_PORT else []
    lacks += (
        [f"PidFile is {settings['pidfile']}"] if settings["pidfile"].startswith(("/run", "/var/run")) else []
    )
    lacks += ["UsePAM is yes"] if settings["usepam"].lower() == "yes" else []
    lacks += ["StrictModes is yes"] if settings["strictmodes"].lower() == "yes" else []
    if lacks:
        yield Finding(
            code="IMAGE_SSHD_CONFIG",
            message=f"the image's sshd configuration does not work for an unprivileged user: {', '.join(lacks)}",
            hint="no action for jobs of mpijob, which configure sshd on port 2222; for others "
            "set Port 2222, PidFile none, UsePAM no, StrictModes no",
            field="image",
            severity=Severity.NOTICE,
        )
