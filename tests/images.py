"""Small container images made on the spot: the files that matter and nothing else, as archives, folders and pushes."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import struct
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

OCI = "application/vnd.oci.image"
OPENMPI = b"Open MPI v%d.%d.%d"
MPICH = b"MPICH Version:      %s"
INTEL = b"Intel(R) MPI Library, Version %s"


@dataclass(frozen=True)
class Thing:
    """One name in a layer."""

    data: bytes = b""
    mode: int = 0o644
    uid: int = 0
    gid: int = 0
    link: str = ""
    hard: bool = False
    folder: bool = False
    pax: Mapping[str, str] = field(default_factory=dict)


def program(data: bytes = b"\x7fELF", mode: int = 0o755, **more: Any) -> Thing:
    return Thing(data, mode, **more)


def link(to: str) -> Thing:
    return Thing(link=to, mode=0o777)


def folder(mode: int = 0o755, gid: int = 0) -> Thing:
    return Thing(folder=True, mode=mode, gid=gid)


def library(soname: str = "", needs: Iterable[str] = (), *, words: Iterable[bytes] = ()) -> Thing:
    """Return a shared object that says what it is, what it needs, and some words."""
    names = [*needs, *([soname] if soname else [])]
    strings, at = b"\0", {}
    for name in names:
        at[name] = len(strings)
        strings += name.encode() + b"\0"
    tags = [(1, at[name]) for name in needs] + ([(14, at[soname])] if soname else [])
    start = 64 + 2 * 56
    tags += [(5, start), (0, 0)]
    dynamic = b"".join(struct.pack("<qQ", *tag) for tag in tags)
    tail = b"\0" + b"\0".join(words) + b"\0"
    size = start + len(strings) + len(dynamic) + len(tail)
    head = (
        b"\x7fELF\x02\x01\x01"
        + bytes(9)
        + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 64, 0, 0)
    )
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, size, size, 4096)
    found = struct.pack(
        "<IIQQQQQQ", 2, 6, start + len(strings), start + len(strings), 0, len(dynamic), len(dynamic), 8
    )
    return Thing(head + load + found + strings + dynamic + tail)


def capability(bits: int = 1 << 10, effective: bool = True) -> dict[str, str]:
    """Return the extended header that `setcap` leaves in a layer; bit 10 is cap_net_bind_service."""
    raw = struct.pack("<IIIII", 0x02000000 | effective, bits, bits, 0, 0)
    return {"SCHILY.xattr.security.capability": raw.decode("utf-8", "surrogateescape")}


def base64_capability() -> dict[str, str]:
    raw = struct.pack("<IIIII", 0x02000001, 1 << 10, 0, 0, 0)
    return {"LIBARCHIVE.xattr.security.capability": base64.b64encode(raw).decode().rstrip("=")}


SYSTEM: dict[str, Thing] = {
    "bin": link("usr/bin"),
    "usr/bin/sh": program(),
    "usr/bin/ssh": program(),
    "usr/sbin/sshd": program(),
    "usr/bin/python3": link("python3.11"),
    "usr/bin/python3.11": program(),
    "etc/os-release": Thing(b'PRETTY_NAME="Small Linux 1"\n'),
    "etc/passwd": Thing(b"root:x:0:0:root:/root:/bin/sh\nmpi:x:1000:0::/home/mpi:/bin/sh\n"),
    "etc/ssh/sshd_config": Thing(b"Include /etc/ssh/sshd_config.d/*.conf\nUsePAM yes\nPort 22\n"),
    "root": folder(0o700),
    "home/mpi": folder(0o770),
}


def openmpi(version: str = "4.1.4", *, at: str = "usr") -> dict[str, Thing]:
    """Return an Open MPI as it lies in an image."""
    return {
        f"{at}/bin/mpirun": link("orterun"),
        f"{at}/bin/orterun": program(),
        f"{at}/bin/orted": program(),
        f"{at}/lib/libmpi.so.40": library("libmpi.so.40", words=(OPENMPI, version.encode(), b"1.2.3.4")),
    }


def mpich(version: str = "4.2.1", *, at: str = "usr") -> dict[str, Thing]:
    return {
        f"{at}/bin/mpiexec": link("mpiexec.hydra"),
        f"{at}/bin/mpiexec.hydra": program(),
        f"{at}/bin/hydra_pmi_proxy": program(),
        f"{at}/lib/libmpi.so.12": library("libmpi.so.12", words=(MPICH, b"0.13.99", version.encode())),
    }


def mpi4py(
    *needs: str, version: str = "4.0.0", at: str = "usr/lib/python3.11/site-packages"
) -> dict[str, Thing]:
    return {
        f"{at}/mpi4py/MPI.cpython-311-x86_64-linux-gnu.so": library("", (*needs, "libc.so.6")),
        f"{at}/mpi4py-{version}.dist-info/METADATA": Thing(b"Name: mpi4py\n"),
    }


def layer(things: Mapping[str, Thing]) -> bytes:
    """Return a layer as plain tar."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, thing in things.items():
            entry = tarfile.TarInfo(name)
            entry.mode, entry.uid, entry.gid, entry.size = thing.mode, thing.uid, thing.gid, len(thing.data)
            entry.pax_headers = dict(thing.pax)
            if thing.link:
                entry.type, entry.linkname = (tarfile.LNKTYPE if thing.hard else tarfile.SYMTYPE), thing.link
            if thing.folder:
                entry.type = tarfile.DIRTYPE
            tar.addfile(entry, io.BytesIO(thing.data))
    return out.getvalue()


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@dataclass(frozen=True)
class Made:
    """An image: its manifest, and every blob by its digest."""

    manifest: bytes
    blobs: dict[str, bytes]
    layers: tuple[bytes, ...]
    config: bytes

    def descriptor(self, platform: str = "") -> dict[str, Any]:
        found: dict[str, Any] = {"mediaType": f"{OCI}.manifest.v1+json", "digest": digest(self.manifest)}
        found["size"] = len(self.manifest)
        if platform:
            system, _, machine = platform.partition("/")
            found["platform"] = {"os": system, "architecture": machine}
        return found

    def folder(self, place: Path) -> Path:
        """Write it as an OCI layout."""
        index = {"schemaVersion": 2, "manifests": [self.descriptor()]}
        (place / "blobs" / "sha256").mkdir(parents=True)
        (place / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
        (place / "index.json").write_text(json.dumps(index))
        for name, data in {digest(self.manifest): self.manifest, **self.blobs}.items():
            (place / "blobs" / "sha256" / name.removeprefix("sha256:")).write_bytes(data)
        return place

    def archive(self, path: Path) -> Path:
        """Write it as an OCI archive."""
        root = self.folder(path.with_suffix(".folder"))
        with tarfile.open(path, "w") as tar:
            tar.add(root, arcname=".")
        return path

    def saved(self, path: Path) -> Path:
        """Write it as `docker save` did: layers by name, one of them a link."""
        things = {"config.json": Thing(self.config)}
        things |= {f"{number}/layer.tar": Thing(data) for number, data in enumerate(self.layers)}
        names = [f"{number}/layer.tar" for number in range(len(self.layers))]
        manifest = [{"Config": "config.json", "RepoTags": ["team/mpi:1"], "Layers": names}]
        path.write_bytes(layer({**things, "manifest.json": Thing(json.dumps(manifest).encode())}))
        return path


def image(
    *layers: Mapping[str, Thing] | bytes,
    env: Iterable[str] = (),
    user: str = "",
    packed: bool = True,
    contents: Iterable[str] | None = None,
) -> Made:
    """Return an image of these layers."""
    plain = tuple(one if isinstance(one, bytes) else layer(one) for one in layers)
    blobs = [gzip.compress(one, 1, mtime=0) if packed else one for one in plain]
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Env": list(env), "User": user},
            "rootfs": {"type": "layers", "diff_ids": list(contents or map(digest, plain))},
        }
    ).encode()
    kind = f"{OCI}.layer.v1.tar{'+gzip' if packed else ''}"
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": f"{OCI}.manifest.v1+json",
            "config": {"mediaType": f"{OCI}.config.v1+json", "digest": digest(config), "size": len(config)},
            "layers": [{"mediaType": kind, "digest": digest(one), "size": len(one)} for one in blobs],
        }
    ).encode()
    return Made(manifest, {digest(one): one for one in (config, *blobs)}, plain, config)


def good(**more: Any) -> Made:
    """Return an image in which MPI jobs run."""
    return image({**SYSTEM, **openmpi(), **mpi4py("libmpi.so.40")}, **more)
