"""Reads single files of a container image: which of them, and what they say.

Nothing is executed: an MPI library contains its version as text, and a shared object lists the libraries that it
needs. `filesystem` combines the files.
"""

from __future__ import annotations

import base64
import binascii
import re
import struct
from collections.abc import Iterator, Mapping

from mpijob.model.spec.image import Clue
from mpijob.model.spec.job import Family

_TEXT_BYTES = 1 << 16
_LIBRARY_BYTES = 64 << 20
_MOST_NEEDED = 256
_TEXTS = re.compile(
    r"(?:etc/passwd|etc/os-release|usr/lib/os-release|etc/ssh/sshd_config(?:\.d/[^/]+\.conf)?"
    r"|.*/share/openmpi/mpicc-wrapper-data\.txt|.*/pkgconfig/(?:ompi|mpich|impi)\.pc"
    r"|usr/local/cuda[^/]*/version\.(?:json|txt))"
)
_LIBRARIES = re.compile(r"(?:.*/)?libmpi(?:ch)?\.so(?:\.[\d.]+)?")
_MODULES = re.compile(r".*/mpi4py/MPI\.[\w.-]*so")
_WORD = re.compile(rb"\0(\d{1,4}\.\d{1,3}(?:\.\d{1,3})?(?:rc\d+|a\d+|b\d+)?)(?=\0)")
_FAMILIES = (
    (Family.INTEL, b"Intel(R) MPI Library"),
    (Family.OPENMPI, b"Open MPI v%d.%d.%d"),
    (Family.OPENMPI, b"ompi_mpi_comm_world"),
    (Family.MPICH, b"MPICH Version:"),
    (Family.MPICH, b"MPIR_"),
)  # fmt: skip
_CUDA_PARTS = (b"mca_accelerator_cuda_component", b"mca_btl_smcuda_component")
_MAJORS = {Family.INTEL: (2017, 2100), Family.OPENMPI: (1, 9), Family.MPICH: (3, 9)}
_EFFECTIVE = 0x1
_CAPABILITIES = (
    "chown", "dac_override", "dac_read_search", "fowner", "fsetid", "kill", "setgid", "setuid", "setpcap",
    "linux_immutable", "net_bind_service", "net_broadcast", "net_admin", "net_raw", "ipc_lock", "ipc_owner",
    "sys_module", "sys_rawio", "sys_chroot", "sys_ptrace", "sys_pacct", "sys_admin", "sys_boot", "sys_nice",
    "sys_resource", "sys_time", "sys_tty_config", "mknod", "lease", "audit_write", "audit_control", "setfcap",
    "mac_override", "mac_admin", "syslog", "wake_alarm", "block_suspend", "audit_read", "perfmon", "bpf",
    "checkpoint_restore",
)  # fmt: skip


def bytes_wanted(path: str) -> int:
    """Return how many bytes of a file to read; 0 for most files."""
    if _TEXTS.fullmatch(path):
        return _TEXT_BYTES
    return _LIBRARY_BYTES if _LIBRARIES.fullmatch(path) or _MODULES.fullmatch(path) else 0


def read(path: str, data: bytes) -> Clue | None:
    if _TEXTS.fullmatch(path):
        return Clue(text=data.decode("utf-8", "replace"))
    soname, needed = dynamic(data)
    if _MODULES.fullmatch(path):
        return Clue(soname=soname, needed=needed)
    family = next((family for family, mark in _FAMILIES if mark in data), None)
    version = _version(data, family) if family else ""
    return Clue(family=family, version=version, soname=soname, needed=needed, cuda=_cuda(data, needed))


def _version(data: bytes, family: Family) -> str:
    """Return the version in a library: the largest of the texts that look like one."""
    least, most = _MAJORS[family]
    words = [word.decode() for word in _WORD.findall(data)]
    return next(
        (word for word in words if least <= int(word.split(".")[0]) <= most and word.count(".") == 2), ""
    )


def _cuda(data: bytes, needed: tuple[str, ...]) -> bool | None:
    """Return True for a library with CUDA support, None if the file does not decide it."""
    needs = any(one.startswith(("libcudart.so", "libcuda.so")) for one in needed)
    return True if needs or any(part in data for part in _CUDA_PARTS) else None


def capabilities(headers: Mapping[str, str]) -> tuple[str, ...]:
    """Return the file capabilities in an archive's extended headers."""
    if value := headers.get("SCHILY.xattr.security.capability"):
        raw = value.encode("utf-8", "surrogateescape")
    elif value := headers.get("LIBARCHIVE.xattr.security.capability"):
        try:
            raw = base64.b64decode(value + "=" * (-len(value) % 4))
        except (binascii.Error, ValueError):
            return ()
    else:
        return ()
    if len(raw) < 20:
        return ()
    magic, low, _, high = struct.unpack_from("<IIII", raw)
    if not magic & _EFFECTIVE:
        # Without the effective flag the kernel executes the file even if capabilities are missing.
        return ()
    bits = low | high << 32
    return tuple(f"cap_{_cap(bit)}" for bit in range(64) if bits >> bit & 1)


def _cap(bit: int) -> str:
    return _CAPABILITIES[bit] if bit < len(_CAPABILITIES) else str(bit)


def dynamic(data: bytes) -> tuple[str, tuple[str, ...]]:
    """Return a shared object's soname and needed libraries; empty for other files."""
    try:
        tags = list(_tags(data))
        (table,) = [_offset(data, value) for tag, value in tags if tag == 5][:1]
        soname = next((_string(data, table + value) for tag, value in tags if tag == 14), "")
        return soname, tuple(_string(data, table + value) for tag, value in tags if tag == 1)
    except (struct.error, ValueError, OverflowError):
        return "", ()


def _tags(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield the entries of the dynamic section of a 64-bit little-endian ELF file."""
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError("no such file")
    for kind, offset, _, size in _segments(data):
        if kind == 2:
            for at in range(offset, min(offset + size, offset + 16 * _MOST_NEEDED), 16):
                tag, value = struct.unpack_from("<qQ", data, at)
                if tag == 0:
                    return
                yield tag, value


def _segments(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Yield type, file offset, address and size of each program header."""
    (start,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    for number in range(min(count, 128)):
        kind, _, offset, address, _, length = struct.unpack_from("<IIQQQQ", data, start + number * size)
        yield kind, offset, address, length


def _offset(data: bytes, address: int) -> int:
    for kind, offset, base, size in _segments(data):
        if kind == 1 and base <= address < base + size:
            return offset + address - base
    raise ValueError("an address that no segment holds")


def _string(data: bytes, at: int) -> str:
    return data[at : data.index(b"\0", at, at + 4096)].decode("utf-8", "replace")
