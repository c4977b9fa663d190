"""What of one job is encrypted, on its ways and where it rests, as far as its own spec decides it.

MPI has no encryption of its own, so the honest answer for its data is the network's. What every job has in common
is described in docs/explanation/security.md; here is what this one does. Nothing is looked up: a storage class or
bucket that encrypts says so elsewhere.
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
    """Whether something is encrypted; `depends` is decided by what is not in the job."""

    YES = "yes"
    NO = "no"
    DEPENDS = "depends"
    LOCAL = "stays on this machine"


class Protection(msgspec.Struct, frozen=True):
    """One way or one place of a job's data, whether it is encrypted there, and by what."""

    what: str
    encrypted: Encrypted
    why: str


def protections(job: MPIJob, *, cluster: bool, slurm: bool = False) -> tuple[Protection, ...]:
    """Return every way and every place of a job's data: first in transit, then at rest."""
    return (
        *(_between_nodes() if slurm else _between(cluster)),
        *_addresses(job),
        *(_at_rest(one, cluster) for one in job.volumes),
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
    """Yield the servers that variables name; what a Secret names is not read here."""
    for name, value in sorted(job.env.items()):
        scheme, host = _address(value)
        if host and scheme in _TLS:
            yield Protection(f"{name} ({host})", Encrypted.YES, f"{scheme}://")
        elif host and scheme in _PLAIN:
            why = f"{scheme}:// sends it unencrypted; use TLS, or a server in the same private network"
            yield Protection(f"{name} ({host})", Encrypted.NO, why)


def _address(value: str) -> tuple[str, str]:
    """Return scheme and host of an address; a text that only looks like one has no host."""
    try:
        parts = urlsplit(value)
    except ValueError:
        return "", ""
    return parts.scheme, parts.hostname or ""


_RESTS = {
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
    why = _RESTS[volume.kind] if cluster or volume.kind is VolumeKind.S3 else _RESTS[VolumeKind.PATH]
    return Protection(what, Encrypted.DEPENDS, why)


def _secrets(job: MPIJob) -> Iterator[Protection]:
    if job.secrets:
        why = "by reference: values are not in documents, records or logs"
        yield Protection("secrets in environment variables", Encrypted.DEPENDS, why)
