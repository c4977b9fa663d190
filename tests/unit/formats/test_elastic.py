"""Workers that come and go: the bounds, the documents, what is seen of such a job, and scaling it in every face."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from tests.unit.backends.kubernetes.test_lifecycle import reasons, stored
from tests.unit.cli_support import Cli
from tests.unit.client.test_audit_recorder import a_client, told
from tests.unit.cluster_objects import NOW, Cluster, census, ended, running, standing
from tests.unit.cluster_support import a_job as on_cluster
from tests.unit.incoming_support import a_review

from mpijob import MPIJob, checks
from mpijob.admission import webhook as judgement
from mpijob.backends.kubernetes.actions import patches
from mpijob.backends.kubernetes.status import derive_state, timeline
from mpijob.errors import Conflict, Finding, Severity, Unsupported
from mpijob.formats.admission import request_reader
from mpijob.formats.convert.kubernetes import mpijob_manifests
from mpijob.formats.kubernetes import mpijob
from mpijob.formats.kubernetes.metadata import user_actions, well_known
from mpijob.formats.kubernetes.metadata.well_known import Gang, Shape
from mpijob.formats.kubernetes.trainjob import API as TRAINJOB
from mpijob.formats.sizing.engine_selection import JOBSET_API, Engine, choose
from mpijob.formats.status import launcher_census
from mpijob.model import Elastic, JobState, Phase
from mpijob.model.platform.admission_request import Around
from mpijob.model.platform.governance import NamespaceLimits

BOUNDS = Elastic(min_workers=2, max_workers=4)
HOROVOD = (
    "horovodrun", "-np", "4", "--min-np", "4", "--max-np", "8", "--slots-per-host", "2",
    "--host-discovery-script", "/etc/mpi/discover_hosts.sh", "python", "train.py",
)  # fmt: skip


def wanted(**fields: Any) -> MPIJob:
    given: dict[str, Any] = {"name": "e", "workers": 3, "elastic": BOUNDS, "command": ("python", "own.py")}
    return MPIJob(**given | fields)


def an_elastic(**fields: Any) -> MPIJob:
    """Return an elastic job for a cluster."""
    given: dict[str, Any] = {"workers": 3, "slots": 1, "elastic": BOUNDS, "command": ("python", "own.py")}
    return on_cluster(**given | fields)


# -- checks ---------------------------------------------------------------------------------------
def said(job: MPIJob, **limits: int) -> list[Finding]:
    about = ("BAD_ELASTIC", "OWN_LAUNCHER_RANKS", "OWN_LAUNCHER_HOSTS")
    return [one for one in checks.run(job, **limits) if one.code in about]


def test_workers_lie_between_the_bounds() -> None:
    assert said(wanted()) == []
    for workers in (1, 5):
        (one,) = said(wanted(workers=workers))
        assert one.message == f"workers is {workers}, but elastic allows 2 to 4"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"elastic": Elastic(min_workers=0, max_workers=4)}, "0 workers requested; at least 1"),
        ({"ranks": 2}, "changes with its workers"),
        ({"command": (), "programs": [{"ranks": 1, "command": ["x"]}]}, "one command instead of programs"),
    ],
)
def test_what_contradicts_workers_that_come_and_go_is_refused(fields: dict[str, Any], words: str) -> None:
    (one,) = said(wanted(**fields))
    assert words in one.message
    assert one.severity is Severity.ERROR


def test_the_administrators_bound_holds_for_the_greatest_number() -> None:
    (one,) = said(wanted(), max_workers=3)
    assert one.message == "up to 4 workers requested; 3 are allowed"


def test_horovod_may_look_for_its_workers_itself_only_in_an_elastic_job() -> None:
    assert said(wanted(slots=2, command=HOROVOD)) == []
    fixed = said(wanted(slots=2, workers=2, elastic=None, command=HOROVOD))
    assert "sets its own list of hosts" in fixed[0].message
    outside = said(wanted(slots=2, command=("horovodrun", "-np", "9", *HOROVOD[3:])))
    assert "asks for 9 ranks" in outside[0].message


def test_a_launcher_that_cannot_find_new_workers_is_warned_of() -> None:
    (blind,) = said(wanted(command=("horovodrun", "-np", "2", "python", "t.py")))
    assert "no option to discover workers" in blind.message
    (fixed,) = said(wanted(command=("mpirun", "-n", "2", "x")))
    assert "starts a fixed number of ranks" in fixed.message
    assert {blind.severity, fixed.severity} == {Severity.WARNING}


# -- documents ------------------------------------------------------------------------------------
@pytest.mark.req("R8")
def test_an_elastic_job_goes_to_the_mpi_operator_and_only_its_least_number_is_a_gang() -> None:
    assert choose(an_elastic(), {TRAINJOB, JOBSET_API, mpijob.API}).engine is Engine.MPI_OPERATOR
    with pytest.raises(Unsupported, match="the job is elastic"):
        choose(an_elastic(), {TRAINJOB, JOBSET_API})
    (document,) = mpijob.write(an_elastic(), Shape(gang=Gang.VOLCANO))
    spec = document["spec"]
    assert spec["runPolicy"]["schedulingPolicy"]["minAvailable"] == 2
    assert spec["mpiReplicaSpecs"]["Worker"]["replicas"] == 3
    for replica in spec["mpiReplicaSpecs"].values():
        notes = replica["template"]["metadata"]["annotations"]
        assert notes["cluster-autoscaler.kubernetes.io/safe-to-evict"] == "false"


def test_its_command_runs_as_it_is_behind_the_census_and_knows_where_to_ask() -> None:
    (document,) = mpijob.write(an_elastic())
    launcher = document["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]
    env = {one["name"]: one.get("value") for one in launcher["env"]}
    counted = int(env["MPIJOB_CENSUS_WORDS"])
    assert launcher["args"][counted:] == ["python", "own.py"]
    assert launcher["args"][counted - 1] == "true"
    assert env["MPIJOB_DISCOVER_HOSTS"] == "/etc/mpi/discover_hosts.sh"
    assert launcher_census.speech(document)[1] is False


def test_a_scaled_job_reads_back_with_its_new_number_and_its_bounds() -> None:
    (document,) = copy.deepcopy(mpijob.write(an_elastic()))
    assert mpijob.read([document]).job == an_elastic()
    document["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] = 4
    assert mpijob.read([document]).job == an_elastic(workers=4)


def test_an_elastic_horovod_job_of_somebody_else_is_read_as_one() -> None:
    container = {"name": "m", "image": "x/y:1", "command": list(HOROVOD)}
    replica = {"replicas": 2, "template": {"spec": {"containers": [container]}}}
    document = {
        "apiVersion": mpijob.API,
        "kind": "MPIJob",
        "metadata": {"name": "theirs"},
        "spec": {
            "slotsPerWorker": 2,
            "runPolicy": {"schedulingPolicy": {"minAvailable": 2}},
            "mpiReplicaSpecs": {"Launcher": {**replica, "replicas": 1}, "Worker": replica},
        },
    }
    assert mpijob.read([document]).job.elastic == Elastic(min_workers=2, max_workers=4)
    told = {entry.field: entry.ours for entry in mpijob_manifests.read(document, keep=False).entries}
    assert told["spec.runPolicy.schedulingPolicy.minAvailable"] == "elastic.min_workers"


def test_a_name_leaves_room_for_the_last_worker_that_may_come() -> None:
    long = an_elastic(name="n" * 54, workers=2, elastic=Elastic(max_workers=9))
    mpijob.write(long)
    with pytest.raises(Exception, match="characters"):
        mpijob.write(long.replace(elastic=Elastic(max_workers=11)))


# -- what is seen ---------------------------------------------------------------------------------
def at_work(workers: int = 3, **fields: Any) -> Cluster:
    cluster = Cluster(an_elastic(**fields), operator=True)
    for index in range(workers):
        cluster.worker(index, running(10))
    return cluster.launcher(running(12))


def scaled(cluster: Cluster, workers: int) -> Cluster:
    cluster.job["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] = workers
    return cluster


def look(cluster: Cluster, **more: Any) -> JobState:
    log = census(an_elastic(), name="bert").replace("-node-0-", "-worker-")
    return derive_state.derive(cluster.seen(**more), now=NOW, launcher_log=log)


@pytest.mark.req("R8")
def test_a_job_that_was_scaled_still_runs_and_says_how_many_workers_it_has() -> None:
    cluster = scaled(at_work(), 4)
    state = look(cluster)
    assert standing(state) == (Phase.RUNNING, "RanksRunning")
    assert state.message == "3 of 4 workers ready, at least 2"
    assert [one.phase for one in state.workers][-1] is Phase.PENDING
    cluster.worker(3, running(50), creationTimestamp="2027-01-01T00:00:00Z")
    assert look(cluster).message == "4 of 4 workers ready, at least 2"


@pytest.mark.req("R8")
def test_a_worker_that_is_lost_or_removed_ends_no_elastic_job_whose_launcher_goes_on() -> None:
    lost = at_work(2).worker(2, ended(137, 40))
    assert look(lost).phase is Phase.RUNNING
    gone = at_work(2).told("Pod", "bert-worker-2", "Killing", "Stopping container", 40)
    assert look(gone).message == "2 of 3 workers ready, at least 2"
    few = at_work(1)
    assert look(few).message == "1 of 3 workers ready, at least 2, too few to go on: waiting for others"
    assert look(Cluster(operator=True).worker(0, running()).launcher(running(12))).phase is Phase.FAILED


def test_a_lost_worker_is_the_cause_only_where_too_few_were_left() -> None:
    one = at_work(2).worker(2, ended(137, 40)).launcher(ended(1, 50, began=12))
    assert look(one).findings[0].worker is None
    assert "the launcher exited with 1" in look(one).message
    two = at_work(1).worker(1, ended(137, 40)).worker(2, ended(137, 41)).launcher(ended(1, 50, began=12))
    assert look(two).findings[0].worker == 1


def test_the_story_tells_of_what_it_began_with() -> None:
    cluster = scaled(at_work(), 4)
    told = {one.reason: one.message for one in timeline.events(cluster.seen(), look(cluster), NOW)}
    assert told["Submitted"].startswith("3 workers, 3 ranks")
    assert told["WorldProved"] == "3 ranks are placed as planned"


# -- scaling --------------------------------------------------------------------------------------
def test_scaling_is_written_onto_the_job_with_who_wanted_it() -> None:
    api, found = stored(at_work())
    patches.scale(api, found, 3, 4, "jane")
    assert api.objects[found.path]["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] == 4
    assert reasons(api, found) == [user_actions.SCALED]
    assert user_actions.read(api.objects[found.path])[0].message == "scaled from 3 to 4 workers by jane"


def test_a_trainjob_and_a_queued_job_are_not_scaled_and_the_reason_is_told() -> None:
    _, found = stored(Cluster())
    with pytest.raises(Unsupported, match="is a TrainJob: only the MPI Operator's"):
        patches.refuse_scaling(found, 3)
    queued = at_work()
    queued.job["metadata"]["labels"][well_known.QUEUE_LABEL] = "main"
    _, found = stored(queued)
    with pytest.raises(Unsupported, match="would stop it and queue it again"):
        patches.refuse_scaling(found, 4)


def test_scaling_is_refused_outside_the_bounds_after_the_end_and_for_a_fixed_world(tmp_path: Path) -> None:
    client = a_client(tmp_path)
    client.submit(wanted(command=("sleep", "1000")))
    assert client.scale("e", 4).workers_wanted == 4
    assert client.spec("e").workers == 4
    with pytest.raises(Conflict, match="2 to 4 workers; 5 requested"):
        client.scale("e", 5)
    client.cancel("e")
    with pytest.raises(Conflict, match="only a job that has not ended"):
        client.scale("e", 3)
    client.submit(wanted(name="fixed", elastic=None, command=("sleep", "1000")))
    with pytest.raises(Unsupported, match="is not elastic"):
        client.scale("fixed", 2)
    assert [verb for verb, _, code in told(client) if code < 300] == ["create", "scale", "cancel", "create"]


def test_the_command_line_makes_and_scales_an_elastic_job() -> None:
    cli = Cli()
    cli.ok("create", "e", "--workers", "2", "--max-workers", "4", "--", "sleep", "100")
    assert cli.json("scale", "e", "3")["workers_wanted"] == 3
    assert cli("scale", "e", "0").exit_code == 2
    assert "1 to 4 workers; 9 requested" in cli("scale", "e", "9").stderr


# -- admission ------------------------------------------------------------------------------------
def judged(job: MPIJob, workers: int, image: str = "", **limits: Any) -> list[str]:
    """Return what is refused when somebody gives a job another number of workers, or another image too."""
    (old,) = mpijob.write(job)
    now = copy.deepcopy(old)
    worker = now["spec"]["mpiReplicaSpecs"]["Worker"]
    worker["replicas"] = workers
    if image:
        worker["template"]["spec"]["containers"][0]["image"] = image
    asked = request_reader.read(a_review(now, operation="UPDATE", oldObject=old))
    around = Around(limits=NamespaceLimits(**limits))
    return [one.message for one in judgement.review(asked, around).refusals]


def test_a_cluster_lets_an_elastic_job_be_scaled_within_its_bounds_and_the_limits() -> None:
    assert judged(an_elastic(), 4) == []
    (over,) = judged(an_elastic(), 4, max_workers=3)
    assert "4 workers requested, but namespace" in over
    for refused in (
        judged(an_elastic(), 5),
        judged(on_cluster(workers=3), 4),
        judged(an_elastic(), 4, "other:1"),
    ):
        assert any("cannot be changed" in one for one in refused)
