"""The pages on security and on many teams, followed step by step by an administrator and a user."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests import pages
from tests.e2e.cluster.admission_support import TESTED, Governed, governed
from tests.e2e.cluster.support import eventually, image

ROOT = Path(__file__).parents[3]
PAGES = ("multi-tenancy", "security")
pytestmark = [pytest.mark.testbed]


class Step(NamedTuple):
    """One command of a page: whose it is, what is typed, what is shown."""

    user: str
    command: str
    shown: str


def steps(page: str) -> Iterator[Step]:
    text = pages.read(page)
    for block in re.findall(r"^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        for part in re.split(r"^(?=\w*\$ )", block, flags=re.MULTILINE):
            if part:
                first, *rest = part.splitlines()
                user, _, command = first.partition("$ ")
                more = [line.removeprefix("> ") for line in rest if line.startswith("> ")]
                shown = [line for line in rest if not line.startswith("> ")]
                yield Step(user, "\n".join([command, *more]), "\n".join(shown))


@pytest.fixture(scope="module")
def webhook(kubeconfig: Path) -> Iterator[Governed]:
    with governed(kubeconfig) as made:
        yield made


@pytest.mark.req("FR-024", "FR-025", "Q-SEC-004", "C-encrypt", "E-fips")
def test_the_pages_hold_step_by_step(
    webhook: Governed, kubeconfig: Path, kubeconfig_of: Callable[[str], Path], tmp_path: Path
) -> None:
    namespace = f"docs-{os.urandom(3).hex()}"
    roles = [
        "kubectl",
        f"--kubeconfig={kubeconfig}",
        "apply",
        "--server-side",
        "-k",
        str(ROOT / "deploy/base/roles"),
    ]
    subprocess.run(roles, check=True, capture_output=True, timeout=60)

    def typed(step: Step) -> str:
        config = kubeconfig_of("dave") if step.user else kubeconfig
        environ = {"KUBECONFIG": str(config), "MPIJOB_ENGINE": "kubernetes", "MPIJOB_NAMESPACE": namespace,
                   "MPIJOB_HOME": str(tmp_path), "MPIJOB_IMAGE": image("openmpi4"), "NO_COLOR": "1"}  # fmt: skip
        words = step.command.replace("team-cv", namespace).replace("jane", "dave")
        program = 'mpijob() { python -m mpijob "$@"; }; ' if step.user else ""
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        done = subprocess.run(["bash", "-c", program + words], env=os.environ | environ | {"PATH": path},
                              capture_output=True, text=True, timeout=120, cwd=ROOT, check=False)  # fmt: skip
        return (done.stdout + done.stderr).replace(namespace, "team-cv").replace("dave", "jane")

    try:
        for step in (one for page in PAGES for one in steps(page)):
            if step.shown:
                said = ""

                def look(step: Step = step) -> bool:
                    nonlocal said
                    said = typed(step)
                    return all(line in said for line in step.shown.splitlines())

                eventually(look, f"{step.command!r} shows {step.shown!r}")
            else:
                assert "NetworkPolicy" in typed(step) or step.command.startswith("mpijob plan")
            if "create namespace" in step.command:
                label = ["label", "namespace", namespace, f"{TESTED}={webhook.name}"]
                subprocess.run(["kubectl", f"--kubeconfig={kubeconfig}", *label], check=True, timeout=60)
    finally:
        gone = ["delete", "namespace", namespace, "--wait=false", "--ignore-not-found"]
        limits = ["delete", "mpijoblimits", namespace, "--ignore-not-found"]
        for words in (gone, limits):
            subprocess.run(["kubectl", f"--kubeconfig={kubeconfig}", *words], check=False, timeout=60)
