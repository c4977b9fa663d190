"""What of one job's data is encrypted, in transit and at rest, as far as its spec decides it.

MPI has no encryption, so for its data only the network's counts. docs/explanation/security.md describes what
all jobs have in common. Nothing is queried: storage classes and buckets that encrypt report it elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from urllib.parse import urlsplit

import msgspec

from mpijob.model import MPIJob, Volume, VolumeKind

_TLS = frozenset(("https", "rediss", "sftp", "amqps", "mongodb+srv"))
_PLAIN = frozenset(("http", "ftp", "tcp", "udp", "redis", "amqp", "nats", "mongodb", "mysql", "postgres"))


class Encrypted(StrEnum):
    """Whether something is encrypted; `depends` means that settings outside the job decide."""

    YES = "yes"
    NO = "no"
    DEPENDS = "depends"
    LOCAL = "stays on this machine"


class Protection(msgspec.Struct, frozen=True):
    """One path or place of a job's data, whether it is encrypted there, and by what."""

    what: str
    encrypted: Encrypted
    why: str


def protections(job: MPIJob, *, cluster: bool, slurm: bool = False) -> tuple[Protection, ...]:
    """Return all paths and places of a job's data: in transit, then at rest."""
    return (
        *(_between_nodes() if slurm else _between(cluster)),
        *_addresses(job),
        *(_at_rest(volume, cluster) for volume in job.volumes),
        *_secrets(job),
    )


def _between(cluster: bool) -> Iterator[Protection]:
    if not cluster:
        yield Protection("starting ranks, MPI data", Encrypted.LOCAL, "the ranks do not use a network")
        return
    yield Protection("starting ranks", Encrypted.YES, "ssh with the job's own key, whose host key is checked")
    why = "MPI does not encrypt; a network with WireGuard or IPsec encrypts it for every pod"
    yield Protection("MPI data between workers", Encrypted.NO, why)


def _between_nodes() -> Iterator[Protection]:
    yield Protection(
        "starting ranks", Encrypted.NO, "Slurm signs its messages (munge) and does not encrypt them"
    )
    yield Protection(
        "MPI data between nodes", Encrypted.NO, "MPI does not encrypt; the site's network is trusted"
    )


def _addresses(job: MPIJob) -> Iterator[Protection]:
    # Servers in variables; values in Secrets are not read.
    for name, value in sorted(job.env.items()):
        scheme, host = _address(value)
        if host and scheme in _TLS:
            yield Protection(f"{name} ({host})", Encrypted.YES, f"{scheme}://")
        elif host and scheme in _PLAIN:
            why = f"{scheme}:// sends it unencrypted; use TLS, or a server in the same private network"
            yield Protection(f"{name} ({host})", Encrypted.NO, why)


def _address(value: str) -> tuple[str, str]:
    # A text that only looks like a URL has no host.
    try:
        parts = urlsplit(value)
    except ValueError:
        return "", ""
    return parts.scheme, parts.hostname or ""


_AT_REST = {
    VolumeKind.CLAIM: "its storage class decides: kubectl get storageclass",
    VolumeKind.NFS: "the server decides at rest; on the way only NFS with Kerberos (krb5p) is encrypted",
    VolumeKind.PATH: "the machine's disk decides",
    VolumeKind.CONFIG: "depends on the cluster's encryption of etcd",
    VolumeKind.SECRET: "depends on the cluster's encryption of etcd; in pods it is in memory only",
    VolumeKind.S3: "the bucket decides (server-side encryption); on the way, whether its endpoint is https",
    VolumeKind.SCRATCH: "depends on the machine's disk; it is deleted with the job",
}


def _at_rest(volume: Volume, cluster: bool) -> Protection:
    what = f"volume {volume.mount}"
    if volume.kind is VolumeKind.SHM:
        return Protection(what, Encrypted.LOCAL, "memory, never on a disk")
    why = _AT_REST[volume.kind] if cluster or volume.kind is VolumeKind.S3 else _AT_REST[VolumeKind.PATH]
    return Protection(what, Encrypted.DEPENDS, why)


def _secrets(job: MPIJob) -> Iterator[Protection]:
    if job.secrets:
        why = "by reference: values are not in documents, records or logs"
        yield Protection("secrets in environment variables", Encrypted.DEPENDS, why)
