"""Presets: environment variables for MPI libraries and NCCL, for a fabric, pinning or huge pages.

A job's own values win. Variables are set for every MPI library: each ignores those of the others. A fabric that no
node has is left out with a warning, and the job uses the network.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from mpijob.errors import Finding, Severity
from mpijob.model import MPIJob, Resources, Volume, VolumeKind
from mpijob.model.spec import quantity
from mpijob.model.spec.enums import FABRIC_DEVICES, FABRICS, HUGE_PAGES

LABEL = "mpijob/presets"
SHM = "/dev/shm"  # noqa: S108 - the mount that NCCL and MPI look for
_NVIDIA = "nvidia.com/"
_RDMA = "rdma/"


class Preset(msgspec.Struct, frozen=True):
    """The settings of one preset; `with_gpus` is for workers with NVIDIA GPUs."""

    env: Mapping[str, str] = {}
    with_gpus: Mapping[str, str] = {}
    others: Mapping[str, str] = {}
    bind_to: str = ""
    shm: bool = False


_UCX = {
    "OMPI_MCA_pml": "ucx",
    "OMPI_MCA_osc": "ucx",
    "UCX_TLS": "rc,sm,self",
    "MPIR_CVAR_CH4_NETMOD": "ucx",
    "I_MPI_FABRICS": "shm:ofi",
    "I_MPI_OFI_PROVIDER": "mlx",
    "NCCL_IB_DISABLE": "0",
}
_GPU_DIRECT = {
    "UCX_TLS": "rc,sm,self,cuda_copy,cuda_ipc,gdr_copy",
    "NCCL_NET_GDR_LEVEL": "PHB",
    "NCCL_NET_GDR_READ": "1",
}
# The index of RoCE v2 over IPv4 on common adapters.
_GID = {"UCX_IB_GID_INDEX": "3", "NCCL_IB_GID_INDEX": "3"}
PRESETS: Mapping[str, Preset] = {
    "infiniband": Preset(env=_UCX, with_gpus=_GPU_DIRECT),
    "roce": Preset(env=_UCX | _GID, with_gpus=_GPU_DIRECT),
    "efa": Preset(
        env={
            "FI_PROVIDER": "efa",
            "FI_EFA_FORK_SAFE": "1",
            "OMPI_MCA_pml": "cm",
            "OMPI_MCA_mtl": "ofi",
            "MPIR_CVAR_CH4_NETMOD": "ofi",
            "I_MPI_FABRICS": "shm:ofi",
            "I_MPI_OFI_PROVIDER": "efa",
        },
        with_gpus={"FI_EFA_USE_DEVICE_RDMA": "1"},
        # The EFA library allocates huge pages for itself.
        others={HUGE_PAGES: "5120Mi"},
    ),
    "tcp": Preset(
        env={
            "OMPI_MCA_pml": "ob1",
            "OMPI_MCA_btl": "^openib,uct,ofi",
            "UCX_TLS": "tcp,sm,self",
            "MPIR_CVAR_CH4_NETMOD": "ofi",
            "FI_PROVIDER": "tcp",
            "I_MPI_FABRICS": "shm:ofi",
            "I_MPI_OFI_PROVIDER": "tcp",
            "NCCL_IB_DISABLE": "1",
        }
    ),
    "nccl": Preset(env={"NCCL_DEBUG": "WARN", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}, shm=True),
    "cpu-pinning": Preset(env={"OMP_PROC_BIND": "close", "OMP_PLACES": "cores"}, bind_to="core"),
    "huge-pages": Preset(others={HUGE_PAGES: "1Gi"}),
}


def apply(job: MPIJob, devices: frozenset[str] | None) -> tuple[MPIJob, tuple[Finding, ...]]:
    """Return the job with its presets as settings, and what was left out.

    `devices` are the kinds of devices on the nodes, None if unknown.
    """
    names, findings = [], list[Finding]()
    for name in dict.fromkeys(job.presets):
        device = _device(job, name, devices)
        if device and devices is not None and device not in devices:
            findings.append(_absent(name, device))
            names += ["tcp"] if name in FABRICS else []
            continue
        names.append(name)
        findings += [_unseen(name, device)] if device and devices is None else []
        if device:
            job = _asking(job, {device: "1" if name in FABRICS else PRESETS[name].others[device]})
    for name in names:
        job = _applied(job, PRESETS[name], devices)
    label = {LABEL: ".".join(names)} if names else {}
    return job.replace(presets=(), labels={**job.labels, **label}), tuple(findings)


def _device(job: MPIJob, name: str, devices: frozenset[str] | None) -> str:
    """Return the device that a preset needs: the job's own, the only one there, or the default."""
    if name == "huge-pages":
        return HUGE_PAGES
    if name not in FABRICS:
        return ""
    own = next((other for other in job.resources.others if other.startswith(FABRIC_DEVICES)), "")
    there = [device for device in sorted(devices or ()) if device.startswith(_RDMA)]
    only = there[0] if FABRICS[name].startswith(_RDMA) and len(there) == 1 else ""
    return own or only or FABRICS[name]


def _applied(job: MPIJob, preset: Preset, devices: frozenset[str] | None) -> MPIJob:
    gpus = bool(job.most_gpus) and job.gpu_kind.startswith(_NVIDIA)
    env = {**preset.env, **(preset.with_gpus if gpus else {}), **job.env}
    there = {name: amount for name, amount in preset.others.items() if devices is None or name in devices}
    launch = job.launch if job.launch.bind_to else job.launch.replace(bind_to=preset.bind_to)
    return _asking(job, there).replace(env=env, launch=launch, volumes=tuple(_volumes(job, preset)))


def _asking(job: MPIJob, others: Mapping[str, str]) -> MPIJob:
    def asking(resources: Resources) -> Resources:
        return resources.replace(others={**others, **resources.others})

    groups = tuple(
        group if group.resources is None else group.replace(resources=asking(group.resources))
        for group in job.groups
    )
    return job.replace(resources=asking(job.resources), groups=groups)


def _volumes(job: MPIJob, preset: Preset) -> Iterator[Volume]:
    yield from job.volumes
    if preset.shm and not any(volume.mount == SHM for volume in job.volumes):
        amounts = [part.job.resources for part in job.parts]
        quarter = min(amount.asked.memory_bytes for amount in amounts) // 4 // (1 << 20)
        unlimited = any(amount.memory == quantity.NONE for amount in amounts)
        yield Volume(mount=SHM, kind=VolumeKind.SHM, size="" if unlimited else f"{max(quarter, 64)}Mi")


def _absent(name: str, device: str) -> Finding:
    if name not in FABRICS:
        message = f"no node offers {device}: the preset {name} is ignored"
        return Finding(code="PRESET_LEFT_OUT", field="presets", message=message, severity=Severity.NOTICE)
    return Finding(
        code="RDMA_NOT_DETECTED",
        field="presets",
        message=f"RDMA network not detected. Performance may be degraded. (no node offers {device}, which "
        f"{name} needs; the job uses TCP)",
        hint=f"if the device has another name, request it: resources.others, as `{FABRICS[name]}: 1`",
        severity=Severity.WARNING,
    )


def _unseen(name: str, device: str) -> Finding:
    message = f"no permission to read nodes: the preset {name} requests {device} anyway"
    hint = "if the job stays pending for it, take the preset out, or name the device in resources.others"
    return Finding(
        code="PRESET_LEFT_OUT", field="presets", message=message, hint=hint, severity=Severity.NOTICE
    )
