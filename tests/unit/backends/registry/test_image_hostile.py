"""Images that are made to harm: names that lead out, bombs, streams and headers without end, wrong digests."""

from __future__ import annotations

import gzip
import json
import os
import tarfile
import tracemalloc
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tests import images
from tests.images import Thing, digest, image, layer, link, program
from tests.unit.backends.registry.test_image_layers import FULL, entries, looked, rebuilt, refusal

from mpijob import inspect_image
from mpijob.backends.registry import layers
from mpijob.backends.registry.layers import ImageContent
from mpijob.backends.registry.manifest import Blob


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


@pytest.mark.thorough
@pytest.mark.security
def test_a_bomb_is_refused_before_it_goes_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "_RATIO_FREE_BYTES", 8 << 20)
    bomb = gzip.compress(bytes(64 << 20), 9)
    tracemalloc.start()
    try:
        assert "refused as a decompression bomb" in refusal(rebuilt(bomb))
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.security
def test_an_endless_stream_is_cut_at_the_size_that_the_manifest_names() -> None:
    def endless() -> Iterator[bytes]:
        while True:
            yield bytes(65536)

    stack = ImageContent()
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
    assert "global tar headers" in refusal(rebuilt(data))


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


@pytest.mark.thorough
@pytest.mark.security
def test_an_image_of_hundreds_of_layers_is_refused_in_each_form(tmp_path: Path) -> None:
    made = image(*[layer({})] * 600)
    for form in ("archive", "saved"):
        path = getattr(made, form)(tmp_path / f"{form}.tar")
        assert "layers" in refusal(partial(inspect_image, str(path)))


@pytest.mark.thorough
@pytest.mark.security
def test_texts_without_number_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "_MAX_KEPT_BYTES", 1 << 20)
    texts = {f"etc/ssh/sshd_config.d/{number}.conf": Thing(b"# " + b"x" * 60_000) for number in range(30)}
    assert "exceed the memory limit" in refusal(lambda: entries(texts))
    whiteouts = {f"{'d' * 200}/{number}/.wh.x": Thing() for number in range(6000)}
    assert "exceed the memory limit" in refusal(lambda: entries(whiteouts))


@pytest.mark.security
def test_an_image_of_too_many_names_or_bytes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "MAX_ENTRIES", 10)
    assert "more than 10 directories" in refusal(
        lambda: entries({f"f{number}": program() for number in range(11)})
    )
    data = layer({"large": program(bytes(100_000))})
    blob = Blob(digest(data), len(data))
    assert "larger than 0 GiB" in refusal(lambda: ImageContent(50_000).add(blob, iter([data]), digest(data)))


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
    assert "not a regular file" in refusal(lambda: inspect_image(str(root)))
    path.unlink()
    path.symlink_to("/dev/zero")
    assert "not a regular file" in refusal(lambda: inspect_image(str(root)))
    index = {"manifests": [{"digest": "sha256:../../../../etc/passwd", "size": 1}]}
    (root / "index.json").write_text(json.dumps(index))
    assert "not a valid digest" in refusal(lambda: inspect_image(str(root)))


@pytest.mark.security
def test_an_index_that_leads_to_itself_is_refused(tmp_path: Path) -> None:
    class Circle:
        name = "circle"

        def document(self, version: str = "") -> tuple[bytes, str]:
            data = json.dumps({"manifests": [{"digest": digest(b"x"), "size": 1}]}).encode()
            return (data, "") if not version else (b"x", "")

    from mpijob.backends.registry import manifest

    assert refusal(lambda: manifest.select_image(Circle(), "linux/amd64"))  # type: ignore[arg-type]  # half a source will do


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
    assert "damaged at byte 1024" in refusal(rebuilt(bytes(data)))
    assert refusal(rebuilt(layer({"first": program()})[:1300] + b"x" * 10))
