"""Layers on each other: whiteouts and links obeyed, platforms chosen, zstd read; `test_image_hostile` has the rest."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import images
from tests.images import SYSTEM, Thing, digest, folder, image, layer, link, openmpi, program

from mpijob import inspect_image
from mpijob.backends.registry import layers
from mpijob.backends.registry.layers import ImageContent
from mpijob.backends.registry.manifest import Blob
from mpijob.errors import InvalidImage, MpiJobError, NotFound, Unsupported
from mpijob.model.spec.image import Image, Kind

try:
    from compression import zstd as zstandard
except ImportError:
    from backports import zstd as zstandard

FULL = {**SYSTEM, **openmpi()}


def looked(place: Path, *stack: dict[str, Thing] | bytes) -> Image:
    return inspect_image(str(image(*stack).archive(place / "image.tar"))).image


def entries(*stack: dict[str, Thing]) -> dict[str, object]:
    found = ImageContent()
    for one in stack:
        data = layer(one)
        found.add(Blob(digest(data), len(data)), iter([data]), digest(data))
    return dict(found.entries)


def test_a_file_that_a_layer_takes_away_is_gone(tmp_path: Path) -> None:
    found = looked(tmp_path, FULL, {"usr/sbin/.wh.sshd": Thing(), "usr/bin/.wh.ssh": Thing()})
    assert (found.sshd, found.ssh, found.launcher) == (None, "", "/usr/bin/mpirun")


def test_a_folder_that_is_taken_away_goes_with_all_that_is_in_it() -> None:
    found = entries(
        {"opt": folder(), "opt/mpi/bin/mpirun": program()}, {".wh.opt": Thing(), "opt2": folder()}
    )
    assert set(found) == {"opt2"}


def test_an_opaque_folder_hides_what_was_below_and_not_what_is_beside_it() -> None:
    upper = {"opt/new": program(), "opt/.wh..wh..opq": Thing(), "opt/newer": program()}
    found = entries({"opt": folder(), "opt/old": program(), "optional": program()}, upper)
    assert set(found) == {"opt", "opt/new", "opt/newer", "optional"}


def test_a_name_below_a_link_lies_where_the_link_leads() -> None:
    found = entries({"lib": link("usr/lib")}, {"lib/libmpi.so.12": images.library("libmpi.so.12")})
    assert set(found) == {"lib", "usr/lib/libmpi.so.12"}


def test_a_file_over_a_folder_hides_what_was_in_it() -> None:
    found = entries({"a": folder(), "a/b": program()}, {"a": program()})
    assert set(found) == {"a"}


def test_a_hard_link_is_what_it_is_linked_to() -> None:
    found = entries(
        {"usr/bin/mpirun": program(mode=0o711), "usr/bin/mpiexec": Thing(link="usr/bin/mpirun", hard=True)}
    )
    assert found["usr/bin/mpiexec"] == found["usr/bin/mpirun"]


def test_links_in_circles_lead_nowhere(tmp_path: Path) -> None:
    assert (
        looked(
            tmp_path, {**FULL, "usr/bin/mpirun": link("mpiexec"), "usr/bin/mpiexec": link("mpirun")}
        ).launcher
        == ""
    )


def test_an_empty_layer_and_several_packed_streams_are_fine(tmp_path: Path) -> None:
    data = layer(FULL)
    two = gzip.compress(data[:4000]) + gzip.compress(data[4000:]) + bytes(512)
    stack = ImageContent()
    stack.add(Blob(digest(two), len(two)), iter([two[:100], two[100:]]), digest(data))
    assert stack.entries["usr/bin/orted"].kind is Kind.FILE
    before = dict(stack.entries)
    stack.add(Blob(digest(b""), 0), iter([]), digest(b""))
    empty = bytes(10240)
    stack.add(Blob(digest(empty), len(empty)), iter([empty]), digest(empty))
    assert stack.entries == before


@pytest.mark.parametrize("form", ["archive", "folder", "saved"])
def test_archive_folder_and_what_docker_saves_tell_the_same(form: str, tmp_path: Path) -> None:
    made = images.good()
    found = inspect_image(str(getattr(made, form)(tmp_path / "image.tar"))).image
    assert (found.launcher, str(found.mpi), found.python_version) == (
        "/usr/bin/mpirun",
        "Open MPI 4.1.4",
        "3.11",
    )
    assert found.origin.layers == 1


# -- what is refused, and what is chosen -----------------------------------------------------------------
def refusal(act: Callable[[], object], kind: type[MpiJobError] = InvalidImage) -> str:
    with pytest.raises(kind) as caught:
        act()
    return caught.value.message


def rebuilt(data: bytes, content: str | None = None) -> Callable[[], None]:
    blob = Blob(digest(data), len(data))
    return lambda: ImageContent().add(blob, iter([data]), content or digest(data))


def test_what_cannot_be_read_here_is_said(tmp_path: Path) -> None:
    head = tarfile.TarInfo("sparse")
    head.type = tarfile.GNUTYPE_SPARSE
    assert "sparse" in refusal(rebuilt(head.tobuf(tarfile.GNU_FORMAT) + bytes(1024)), Unsupported)
    assert "no index.json" in refusal(lambda: inspect_image(str(tmp_path)), NotFound)
    assert "does not exist" in refusal(lambda: inspect_image(str(tmp_path / "none.tar")), NotFound)
    (tmp_path / "text.tar").write_text("hello")
    assert "is not an image archive" in refusal(lambda: inspect_image(str(tmp_path / "text.tar")))
    (tmp_path / "other.tar").write_bytes(layer({"a": program()}))
    assert "neither index.json nor manifest.json" in refusal(
        lambda: inspect_image(str(tmp_path / "other.tar"))
    )
    assert "has no image for linux/s390x, only for" in refusal(
        lambda: inspect_image(str(_two_platforms(tmp_path / "two")), platform="linux/s390x"), NotFound
    )


def test_the_platform_that_is_asked_for_is_taken(tmp_path: Path) -> None:
    root = _two_platforms(tmp_path / "two")
    for machine, version in (("amd64", "4.1.4"), ("arm64", "5.0.7")):
        found = inspect_image(str(root), platform=f"linux/{machine}").image.mpi
        assert found is not None
        assert found.version == version


def _two_platforms(place: Path) -> Path:
    one, other = images.good(), image({**SYSTEM, **openmpi("5.0.7")})
    one.folder(place)
    for name, data in {digest(other.manifest): other.manifest, **other.blobs}.items():
        (place / "blobs" / "sha256" / name.removeprefix("sha256:")).write_bytes(data)
    proof = {"digest": digest(b"x"), "size": 1, "platform": {"os": "unknown", "architecture": "unknown"}}
    index = {"manifests": [proof, one.descriptor("linux/amd64"), other.descriptor("linux/arm64")]}
    (place / "index.json").write_text(json.dumps(index))
    return place


@pytest.mark.thorough
def test_reading_a_layer_takes_little_memory() -> None:
    data = layer({**FULL, "data": Thing(os.urandom(1 << 20) * 64)})
    flow_input = io.BytesIO(data)
    tracemalloc.start()
    try:
        stack = ImageContent()
        stack.add(Blob(digest(data), len(data)), iter(lambda: flow_input.read(1 << 18), b""), digest(data))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20
    assert stack.bytes == len(data)


# -- zstd ----------------------------------------------------------------------------------------------
def frames(data: bytes, sizes: tuple[int, ...]) -> bytes:
    """Return data packed as zstd:chunked does: a frame for each piece, and some that hold nothing between."""
    nothing = b"\x50\x2a\x4d\x18" + (7).to_bytes(4, "little") + b"nothing"
    packed, at = b"", 0
    for size in (*sizes, len(data)):
        packed += zstandard.compress(data[at : at + size]) + nothing
        at += size
    return packed


@pytest.mark.thorough
@pytest.mark.req("FR-INT-004")
@given(st.lists(st.integers(1, 3000), max_size=4), st.integers(16, 4000))
def test_a_layer_packed_with_zstd_is_read_however_its_frames_and_pieces_fall(
    sizes: list[int], step: int
) -> None:
    plain = layer({"usr/bin/mpirun": program(), "etc/passwd": program(b"root:x:0:0::/:/bin/sh\n" * 50)})
    data = frames(plain, tuple(sizes))
    stack = ImageContent()
    pieces = [data[at : at + step] for at in range(0, len(data), step)]
    stack.add(Blob(digest(data), len(data)), iter(pieces), digest(plain))
    assert "usr/bin/mpirun" in stack.entries


@pytest.mark.security
@pytest.mark.parametrize("cut", [5, 40, -1])
def test_a_layer_whose_zstd_is_cut_or_broken_is_refused(cut: int) -> None:
    data = zstandard.compress(layer({"a": program()}))
    assert refusal(rebuilt(data[:cut]))
    assert refusal(rebuilt(data[:8] + b"\xff" * 20))


@pytest.mark.security
def test_a_bomb_of_zstd_is_refused_before_it_is_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "_RATIO_FREE_BYTES", 1 << 20)
    bomb = zstandard.compress(bytes(16 << 20))
    assert "refused as a decompression bomb" in refusal(rebuilt(bomb))


def test_without_zstd_the_way_round_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mpijob.backends.registry.zstd.is_available", lambda: False)
    assert "zstd" in refusal(rebuilt(zstandard.compress(b"x")), Unsupported)
