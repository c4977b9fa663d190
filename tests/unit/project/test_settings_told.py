"""Settings that cannot be: told by the name that the user gave them."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpijob import settings
from mpijob.backends.local.storage.paths import Home
from mpijob.errors import BackendError, InvalidJob


@pytest.mark.parametrize(
    ("name", "value", "needed"),
    [
        ("MPIJOB_CORES", "abc", "a number"),
        ("MPIJOB_GPUS", "1.5", "a whole number"),
        ("MPIJOB_WARN_AFTER_SECONDS", "soon", "a number"),
    ],
)
def test_a_variable_that_is_no_number_is_named(tmp_path: Path, name: str, value: str, needed: str) -> None:
    environ = {"MPIJOB_SETTINGS": str(tmp_path / "none.toml"), name: value}
    with pytest.raises(InvalidJob, match=f"^{name} is '{value}'; expected {needed}"):
        settings.load(environ)
    assert settings.load({**environ, name: "3"}).home


def test_a_variable_that_is_none_of_the_choices_is_named_with_them(tmp_path: Path) -> None:
    environ = {"MPIJOB_SETTINGS": str(tmp_path / "none.toml"), "MPIJOB_IMAGE_CHECK": "of"}
    with pytest.raises(InvalidJob, match=r"^MPIJOB_IMAGE_CHECK is 'of'; expected one of warn, refuse, off"):
        settings.load(environ)


def test_a_wrong_setting_of_the_file_is_told_with_the_file(tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text('cores = "abc"\n')
    with pytest.raises(InvalidJob, match=r"settings in .*settings\.toml"):
        settings.load({"MPIJOB_SETTINGS": str(tmp_path / "settings.toml")})


@pytest.mark.parametrize("below", ["", "/home"])
def test_a_home_that_is_a_file_is_told_as_that(tmp_path: Path, below: str) -> None:
    (tmp_path / "passwd").write_text("")
    with pytest.raises(BackendError) as caught:
        Home(f"{tmp_path}/passwd{below}").ensure()
    assert "it is a file, not a directory" in caught.value.message
    assert "space" not in caught.value.hint
