"""A file is written wholly or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from mpijob import atomic_write


def test_a_file_takes_the_place_of_another_at_once_with_its_own_mode(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    atomic_write.write(path, b"before")
    with path.open("rb") as reader:
        atomic_write.write(path, b"after", 0o755)
        assert reader.read() == b"before"  # whoever had it open reads on in what it was
    assert path.read_bytes() == b"after"
    assert stat.S_IMODE(path.stat().st_mode) == 0o755
    assert os.listdir(tmp_path) == ["kept"]


def test_a_link_in_its_place_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "theirs").write_bytes(b"theirs")
    (tmp_path / "kept").symlink_to(tmp_path / "theirs")
    atomic_write.write(tmp_path / "kept", b"ours")
    assert (tmp_path / "theirs").read_bytes() == b"theirs"
    assert not (tmp_path / "kept").is_symlink()


def test_nothing_stays_of_what_cannot_be_put_in_its_place(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    with pytest.raises(IsADirectoryError):
        atomic_write.write(tmp_path / "kept", b"after")
    assert os.listdir(tmp_path) == ["kept"]
