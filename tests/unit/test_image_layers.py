"""Layers on each other: whiteouts and links obeyed, and whatever is made to harm refused."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import images
from tests.images import SYSTEM, Thing, digest, folder, image, layer, link, openmpi, program

from mpijob import inspect_image
from mpijob.backends.registry import layers
from mpijob.backends.registry.layers import Stack
from mpijob.backends.registry.pictures import Blob
from mpijob.errors import InvalidImage, MpiJobError, NotFound, Unsupported
from mpijob.model.image import Image, Kind

try:
    from compression import zstd as zstandard
except ImportError:
    from backports import zstd as zstandard

FULL = {**SYSTEM, **openmpi()}


def looked(place: Path, *stack: dict[str, Thing] | bytes) -> Image:
    return inspect_image(str(image(*stack).archive(place / "image.tar"))).image


def entries(*stack: dict[str, Thing]) -> dict[str, object]:
    found = Stack()
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
    stack = Stack()
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


# -- what is made to harm --------------------------------------------------------------------------------
def refusal(act: Callable[[], object], kind: type[MpiJobError] = InvalidImage) -> str:
    with pytest.raises(kind) as caught:
        act()
    return caught.value.message


def rebuilt(data: bytes, content: str | None = None) -> Callable[[], None]:
    blob = Blob(digest(data), len(data))
    return lambda: Stack().add(blob, iter([data]), content or digest(data))


@pytest.mark.security
@pytest.mark.parametrize(
    "name",
    ["../etc/passwd", "a/../../b", "usr/bin/..", "x" * 5000],
    ids=["up", "down and up", "at the end", "long"],
)
def test_a_name_that_leads_out_of_the_image_is_refused(name: str) -> None:
    assert "leads out of the image" in refusal(rebuilt(layer({name: program()})))


@pytest.mark.security
def test_links_that_lead_out_of_the_image_stay_inside_it(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("root:x:0:0:stolen:/:/bin/sh")
    found = looked(tmp_path, {**FULL, "etc/passwd": link(f"../../../..{secret}")})
    assert found.home == "/"


@pytest.mark.security
def test_a_bomb_is_refused_before_it_goes_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "_FREE_GROWTH", 8 << 20)
    bomb = gzip.compress(bytes(64 << 20), 9)
    tracemalloc.start()
    try:
        assert "made to harm" in refusal(rebuilt(bomb))
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.security
def test_an_endless_stream_is_cut_at_the_size_that_the_manifest_names() -> None:
    def endless() -> Iterator[bytes]:
        while True:
            yield bytes(65536)

    stack = Stack()
    assert "longer than its manifest says" in refusal(
        lambda: stack.add(Blob(digest(b""), 1 << 20), endless(), digest(b""))
    )


@pytest.mark.security
def test_a_header_without_end_is_refused_and_not_read_into_memory() -> None:
    head = tarfile.TarInfo("x")
    head.type, head.size = tarfile.XHDTYPE, 8 << 30
    data = head.tobuf(tarfile.GNU_FORMAT) + bytes(4096)
    assert "header of 8589934592 bytes" in refusal(rebuilt(data))


def a_header(kind: bytes, size: int, data: bytes = b"") -> bytes:
    """Return a header by itself, with what follows it."""
    head = tarfile.TarInfo("x")
    head.type, head.size = kind, size
    return head.tobuf(tarfile.GNU_FORMAT) + data.ljust(-(-len(data) // 512) * 512, b"\0")


@pytest.mark.security
def test_headers_about_headers_without_end_are_refused() -> None:
    record = b"12 abc=defg\n"
    assert refusal(rebuilt(a_header(tarfile.XHDTYPE, len(record), record) * 5000))
    many = b"".join(b"13 k%03d=defg\n" % number for number in range(100))
    data = (
        a_header(tarfile.XGLTYPE, len(many), many) + a_header(tarfile.XGLTYPE, len(many), many) + bytes(1024)
    )
    assert "headers that hold for all of it" in refusal(rebuilt(data))


@pytest.mark.security
@pytest.mark.parametrize("size", [-512, -(1 << 40)])
def test_a_file_of_less_than_no_bytes_does_not_lead_round_and_round(size: int, tmp_path: Path) -> None:
    data = a_header(tarfile.REGTYPE, size) + bytes(2048)
    assert refusal(rebuilt(data))
    (tmp_path / "image.tar").write_bytes(data)
    assert refusal(lambda: inspect_image(str(tmp_path / "image.tar")))
    text = f" size={size}\n"
    record = f"{len(text) + 2}{text}".encode()
    told = a_header(tarfile.XHDTYPE, len(record), record)
    (tmp_path / "other.tar").write_bytes(told + a_header(tarfile.REGTYPE, 0) + bytes(2048))
    assert refusal(lambda: inspect_image(str(tmp_path / "other.tar")))


@pytest.mark.security
def test_an_image_of_hundreds_of_layers_is_refused_in_each_form(tmp_path: Path) -> None:
    made = image(*[layer({})] * 600)
    for form in ("archive", "saved"):
        path = getattr(made, form)(tmp_path / f"{form}.tar")
        assert "layers" in refusal(partial(inspect_image, str(path)))


@pytest.mark.security
def test_texts_without_number_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "_MOST_KEPT_BYTES", 1 << 20)
    texts = {f"etc/ssh/sshd_config.d/{number}.conf": Thing(b"# " + b"x" * 60_000) for number in range(30)}
    assert "more names and texts" in refusal(lambda: entries(texts))
    whiteouts = {f"{'d' * 200}/{number}/.wh.x": Thing() for number in range(6000)}
    assert "more names and texts" in refusal(lambda: entries(whiteouts))


@pytest.mark.security
def test_an_image_of_too_many_names_or_bytes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "MOST_ENTRIES", 10)
    assert "more than 10 folders" in refusal(
        lambda: entries({f"f{number}": program() for number in range(11)})
    )
    data = layer({"large": program(bytes(100_000))})
    blob = Blob(digest(data), len(data))
    assert "more than 0 GiB" in refusal(lambda: Stack(50_000).add(blob, iter([data]), digest(data)))


@pytest.mark.security
@pytest.mark.parametrize("where", ["layer", "content", "size", "manifest", "config"])
def test_what_is_not_what_its_digest_says_is_refused(where: str, tmp_path: Path) -> None:
    made = images.good(contents=[digest(b"other")] if where == "content" else None)
    root = made.folder(tmp_path / "image")
    blobs = root / "blobs" / "sha256"
    parts = json.loads(made.manifest)
    if where in ("layer", "config"):
        name = (parts["layers"][0] if where == "layer" else parts["config"])["digest"]
        path = blobs / name.removeprefix("sha256:")
        data = bytearray(path.read_bytes())
        data[-12] ^= 1
        path.write_bytes(data)
    elif where == "manifest":
        (blobs / digest(made.manifest).removeprefix("sha256:")).write_bytes(made.manifest + b" ")
    elif where == "size":
        path = blobs / parts["layers"][0]["digest"].removeprefix("sha256:")
        path.write_bytes(path.read_bytes() + b"more")
    assert refusal(lambda: inspect_image(str(root)))


@pytest.mark.security
def test_a_blob_that_is_a_pipe_a_device_or_a_path_elsewhere_is_refused(tmp_path: Path) -> None:
    made = images.good()
    root = made.folder(tmp_path / "image")
    path = (
        root / "blobs" / "sha256" / json.loads(made.manifest)["layers"][0]["digest"].removeprefix("sha256:")
    )
    path.unlink()
    os.mkfifo(path)
    assert "not a plain file" in refusal(lambda: inspect_image(str(root)))
    path.unlink()
    path.symlink_to("/dev/zero")
    assert "not a plain file" in refusal(lambda: inspect_image(str(root)))
    index = {"manifests": [{"digest": "sha256:../../../../etc/passwd", "size": 1}]}
    (root / "index.json").write_text(json.dumps(index))
    assert "not a digest" in refusal(lambda: inspect_image(str(root)))


@pytest.mark.security
def test_an_index_that_leads_to_itself_is_refused(tmp_path: Path) -> None:
    class Circle:
        name = "circle"

        def document(self, version: str = "") -> tuple[bytes, str]:
            data = json.dumps({"manifests": [{"digest": digest(b"x"), "size": 1}]}).encode()
            return (data, "") if not version else (b"x", "")

    from mpijob.backends.registry import pictures

    assert refusal(lambda: pictures.choose(Circle(), "linux/amd64"))  # type: ignore[arg-type]  # half a source will do


@pytest.mark.security
@pytest.mark.parametrize(
    "data",
    [
        b"no archive",
        b"\x1f\x8bnot packed",
        gzip.compress(b"x" * 9000, mtime=0)[:-9],
        bytes(100) + b"x" * 1000,
    ],
    ids=["text", "not packed", "cut", "garbage"],
)
def test_what_is_no_archive_is_refused(data: bytes) -> None:
    assert refusal(rebuilt(data))


@pytest.mark.security
def test_a_layer_that_breaks_off_in_the_middle_is_not_judged_by_its_beginning() -> None:
    data = bytearray(layer({"first": program(), "second": program()}))
    data[1024 + 148] ^= 0x40  # the sum of the second header
    assert "breaks off at byte 1024" in refusal(rebuilt(bytes(data)))
    assert refusal(rebuilt(layer({"first": program()})[:1300] + b"x" * 10))


def test_what_cannot_be_read_here_is_said(tmp_path: Path) -> None:
    head = tarfile.TarInfo("sparse")
    head.type = tarfile.GNUTYPE_SPARSE
    assert "sparse" in refusal(rebuilt(head.tobuf(tarfile.GNU_FORMAT) + bytes(1024)), Unsupported)
    assert "no index.json" in refusal(lambda: inspect_image(str(tmp_path)), NotFound)
    assert "does not exist" in refusal(lambda: inspect_image(str(tmp_path / "none.tar")), NotFound)
    (tmp_path / "text.tar").write_text("hello")
    assert "no archive of an image" in refusal(lambda: inspect_image(str(tmp_path / "text.tar")))
    (tmp_path / "other.tar").write_bytes(layer({"a": program()}))
    assert "neither index.json nor manifest.json" in refusal(
        lambda: inspect_image(str(tmp_path / "other.tar"))
    )
    assert "is not made for linux/s390x, but for" in refusal(
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


def test_reading_a_layer_takes_little_memory() -> None:
    data = layer({**FULL, "data": Thing(os.urandom(1 << 20) * 64)})
    flow_input = io.BytesIO(data)
    tracemalloc.start()
    try:
        stack = Stack()
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


@pytest.mark.req("FR-INT-004")
@given(st.lists(st.integers(1, 3000), max_size=4), st.integers(16, 4000))
def test_a_layer_packed_with_zstd_is_read_however_its_frames_and_pieces_fall(
    sizes: list[int], step: int
) -> None:
    plain = layer({"usr/bin/mpirun": program(), "etc/passwd": program(b"root:x:0:0::/:/bin/sh\n" * 50)})
    data = frames(plain, tuple(sizes))
    stack = Stack()
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
    monkeypatch.setattr(layers, "_FREE_GROWTH", 1 << 20)
    bomb = zstandard.compress(bytes(16 << 20))
    assert "made to harm" in refusal(rebuilt(bomb))


def test_without_zstd_the_way_round_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mpijob.backends.registry.zstd.is_there", lambda: False)
    assert "zstd" in refusal(rebuilt(zstandard.compress(b"x")), Unsupported)
