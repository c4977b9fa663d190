"""The page on installation, followed as a reader follows it: block by block, beside the release's `deploy`."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from tests import pages
from tests.e2e.cluster.support import Place

ROOT = Path(__file__).resolve().parents[3]
_SHELL = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_OURS = "registry.example.org/mpijob/mpijob"


def page(name: str, image: str, checkout: Path = ROOT) -> list[str]:
    """Return what a reader of a page types, with an image of the test bed."""
    text = pages.read(name, checkout)
    repository, _, tag = image.rpartition(":")
    text = text.replace(f"newName: {_OURS}", f"newName: {repository}")
    text = re.sub(r'newTag: "[0-9.]+"', f'newTag: "{tag}"', text)
    return [re.sub(rf"{re.escape(_OURS)}:[0-9.]+", image, one) for one in _SHELL.findall(text)]


class Reader:
    """Somebody who follows the page of a release, in a folder of his own."""

    def __init__(self, place: Place, folder: Path, checkout: Path = ROOT) -> None:
        self._place, self._folder = place, folder
        shutil.copytree(checkout / "deploy", folder / "deploy")

    def follow(self, block: str) -> str:
        """Return what a block says; it must end well."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block],
            cwd=self._folder, env=self._place.environ(), capture_output=True, text=True, check=False, timeout=240,
        )  # fmt: skip
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}\n{_what_happened(self._place)}"
        return done.stdout


def clear_away(place: Place) -> None:
    """Remove what an installation left, however far it came."""
    namespaced = (("mpijobplatform", "default"), ("namespace", "mpijob-system"), ("mpijoblimits", "team-a"))
    bound = (("clusterrolebinding", "mpijob-operator"), ("clusterrolebinding", "mpijob-controller"))
    for words in (*namespaced, *bound, ("clusterrole", "mpijob-controller")):
        place.kubectl("delete", *words, "--ignore-not-found", "--wait=false")


def _what_happened(place: Place) -> str:
    """Return what explains a failure, as the script for administrators collects it."""
    words = ("-n", "mpijob-system", "logs", "deployment/mpijob-operator", "--tail=30")
    done = subprocess.run(
        ["kubectl", f"--kubeconfig={place.kubeconfig}", *words], capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr
