"""A place on a real cluster for the promises that every engine keeps: the same tests as for the local engine.

It is a Kueue queue of 400 millicores, so that jobs must wait for each other there too. Each module of promises
has one of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.conformance import builders
from tests.e2e.cluster.support import delete_together

from mpijob import Client
from mpijob.backends.kubernetes.auth.kubeconfig import load
from mpijob.backends.kubernetes.backend import KubernetesBackend
from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api import Api
from mpijob.backends.kubernetes.client.resources import Kind
from mpijob.model import JobRef
from mpijob.settings import Settings

# Promises that the quick round leaves out: what is particular to a cluster in them, a neighbour shows too.
LONG = frozenset(
    (
        "test_waiting_without_raising_returns_the_failed_state",
        "test_waiting_ends_with_the_time_given",
        "test_cancelling_a_finished_job_changes_nothing",
        "test_only_a_suspended_job_can_be_resumed",
        "test_a_finished_job_cannot_be_suspended",
        "test_a_uid_means_that_very_job",
        "test_deleting_by_name_after_a_retry_leaves_nothing_of_that_name",
        "test_a_clone_has_the_changes_and_a_name_of_its_own",
        "test_a_running_job_is_not_replaced",
        "test_a_refused_replacement_leaves_the_waiting_job_alone",
        "test_lists_filter_by_phase_owner_queue_and_text",
        "test_logs_know_the_time",
        "test_following_events_ends_with_the_end_of_the_job",
        "test_events_tell_of_suspending_resuming_and_cancelling",
        "test_stacks_show_every_rank_of_a_running_job_and_none_of_one_that_has_ended",
        "test_small_jobs_run_beside_each_other",
        "test_a_selection_counts_only_what_it_selects",
        "test_a_suspended_job_frees_its_place_and_resumes_as_the_next_attempt",
        "test_waiting_jobs_start_in_the_order_of_their_submission",
        "test_a_higher_priority_starts_before_those_that_wait",
        "test_a_failed_job_is_tried_again_as_often_as_it_says",
        "test_a_cancelled_waiting_job_never_starts",
        "test_of_100_identical_submits_exactly_one_is_a_job",
        "test_a_job_that_has_not_started_is_replaced_under_its_name",
        "test_a_retried_job_has_the_same_configuration_and_keeps_the_old_record",
        "test_logs_are_filtered_by_rank_worker_pattern_and_tail",
    )
)


@pytest.fixture(scope="session")
def image() -> str:
    """Return an image with Open MPI, sshd and Python that the cluster has."""
    return os.environ.get("MPIJOB_TEST_IMAGE", "testbed.local/openmpi4:1")


@pytest.fixture(autouse=True)
def place(monkeypatch: pytest.MonkeyPatch, image: str, quarters: Quarters) -> builders.Place:
    """Make the jobs as small as the queue, and name them an image."""
    told = {"millicores": 400, "image": image, "queue": quarters.queue, "namespaces": quarters.namespaces}
    for field, value in told.items():
        monkeypatch.setattr(builders.place, field, value)
    return builders.place


class Quarters(NamedTuple):
    """Two namespaces and the queue that they share."""

    queue: str

    @property
    def namespaces(self) -> tuple[str, str]:
        """The names of both."""
        return f"{self.queue}-a", f"{self.queue}-b"


@pytest.fixture(scope="module")
def quarters(kubeconfig: Path) -> Iterator[Quarters]:
    """Make two namespaces of our own with a queue of 400 millicores, and take them away again."""
    api, place = Api(load(path=str(kubeconfig))), Quarters(f"promise-{os.urandom(3).hex()}")
    made = [*_documents(place)]
    for kind, document in made:
        api.create(kind.path((document["metadata"]).get("namespace", "")), document)
    yield place
    for kind, document in reversed(made):
        api.delete(kind.path(document["metadata"].get("namespace", ""), document["metadata"]["name"]))


def _documents(place: Quarters) -> Iterator[tuple[Kind, dict[str, Any]]]:
    enforce = {"pod-security.kubernetes.io/enforce": "restricted"}
    for name in place.namespaces:
        metadata = {"name": name, "labels": enforce}
        yield resources.NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    urgent = {
        "apiVersion": resources.KUEUE_API,
        "kind": "WorkloadPriorityClass",
        "metadata": {"name": f"{place.queue}-100"},
    }
    yield resources.WORKLOAD_PRIORITY, urgent | {"value": 100}
    quotas = [{"name": "cpu", "nominalQuota": "400m"}, {"name": "memory", "nominalQuota": "8Gi"}]
    group = {"coveredResources": ["cpu", "memory"], "flavors": [{"name": "default", "resources": quotas}]}
    spec = {"namespaceSelector": {}, "resourceGroups": [group]}
    queue = {
        "apiVersion": resources.KUEUE_API,
        "kind": "ClusterQueue",
        "metadata": {"name": place.queue},
        "spec": spec,
    }
    yield resources.CLUSTER_QUEUE, queue
    for name in place.namespaces:
        metadata = {"name": place.queue, "namespace": name}
        local = {"apiVersion": resources.KUEUE_API, "kind": "LocalQueue", "metadata": metadata}
        yield resources.LOCAL_QUEUE, local | {"spec": {"clusterQueue": place.queue}}


@pytest.fixture
def settings(kubeconfig: Path, tmp_path: Path, quarters: Quarters) -> Settings:
    here = quarters.namespaces[0]
    return Settings(home=str(tmp_path), engine="kubernetes", kubeconfig=str(kubeconfig), namespace=here)


@pytest.fixture
def backend(settings: Settings) -> KubernetesBackend:
    return KubernetesBackend(settings)


@pytest.fixture
def client(backend: KubernetesBackend, settings: Settings, quarters: Quarters) -> Iterator[Client]:
    with Client(backend, settings=settings) as client:
        yield client
        found = [state.ref for namespace in quarters.namespaces for state in client.jobs(namespace=namespace)]
        delete_together(
            client, {JobRef(ref.namespace, ref.name) for ref in found}
        )  # with earlier ones of the name
