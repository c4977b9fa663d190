"""What the cluster tests share: a cluster, its users, and the CRDs of the engines.

The cluster is the test bed, or the one that KUBECONFIG names when MPIJOB_TEST_CLUSTER is not set. Without one
a test fails; it never passes by skipping. The CRDs are never copied into this repository: they are rendered
from the engines' own Go modules.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from testbed import cluster, manifests, places
from testbed.session import uses_another_cluster
from tests.e2e.cluster import promises
from tests.e2e.cluster.support import Place

pytest_plugins = ["tests.e2e.cluster.turns"]


def pytest_configure() -> None:
    """Let whoever ends the tests from outside wait until they have taken away what they made."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


@pytest.fixture(scope="session")
def kubeconfig() -> Path:
    """Return the kubeconfig of the administrator of the cluster that is tested on."""
    if uses_another_cluster():
        return Path(os.environ["KUBECONFIG"])
    if not cluster.is_up():
        pytest.fail("no cluster: start the test bed with `make cluster`, or set KUBECONFIG", pytrace=False)
    return places.kubeconfig()


@pytest.fixture(scope="session")
def kubeconfig_of(kubeconfig: Path) -> Callable[[str], Path]:
    """Return the kubeconfig of a user of the test bed: alice, bob, carol, dave or auditor."""

    def find(user: str) -> Path:
        path = kubeconfig.with_name(f"{user}.yaml")
        if not path.exists():
            pytest.fail(f"{user} is a user of the test bed, and {kubeconfig} is not its own", pytrace=False)
        return path

    return find


@pytest.fixture(scope="session")
def crd_files() -> tuple[Path, ...]:
    """Return files with every CRD of the engines, at the versions that the project is built for."""
    return manifests.custom_resources()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Let a test that is run once more begin anew: what its first run left in its places is taken away."""
    if getattr(item, "execution_count", 1) > 1:
        for value in getattr(item, "funcargs", {}).values():
            if isinstance(value, Place):
                value.empty()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the promises of the long round; leave the tests of the test bed out where another cluster is tested."""
    for item in items:
        if item.path.name.startswith("test_conformance_") and item.name in promises.LONG:
            item.add_marker(pytest.mark.long)
    if uses_another_cluster():
        left_out = [item for item in items if item.get_closest_marker("testbed")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
