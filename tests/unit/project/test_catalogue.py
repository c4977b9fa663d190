"""Every entry of the catalogue of failures has a rule, and the rule says the cause first.

The lines have the form in which the programs write them; names and numbers are ours. Real output, byte for
byte, is in tests/fixtures/failures and tests/fixtures/cluster.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.failures import a_job, said

import mpijob
from mpijob.diagnosis import Evidence, Memory, World, explain
from mpijob.diagnosis.evidence import Node, Pod
from mpijob.diagnosis.rules import IDS
from mpijob.model import Exit, Family, Phase

STACK = 'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n    step()\n'
ASYNCHRONOUS = (  # what PyTorch adds to every error of CUDA
    "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be "
    "incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1\nCompile with `TORCH_USE_CUDA_DSA` to enable "
    "device-side assertions.\n"
)
EVICTED = "worker 1 was evicted from its node gpu-1: The node was low on resource: memory."

# word for word what the launcher's script says (tests/unit/formats/test_shell.py)
ASTRAY = "rank 0 ran on j-launcher, none of the job's workers: the MPI launcher overlooked the hostfile"

# entry of the catalogue → (rule, what was said, what the engine knows)
CATALOGUE: dict[str, list[tuple[str, str, dict[str, Any]]]] = {
    "oom-memory": [
        ("MEMORY_LIMIT", "", {"memory": (Memory(1, 9, 8, exceeded=True),)}),
        ("OOM_KILLED", "", {"memory": (Memory(1, 8, 8, oom_kills=1),)}),
        ("OOM_KILLED", "mpirun noticed that process rank 3 with PID 0 on node j-worker-1 exited on signal 9", {}),
        ("LOADER_KILLED", "RuntimeError: DataLoader worker (pid 81) is killed by signal: Killed.", {}),
    ],
    "oom-gpu": [
        ("CUDA_OOM", STACK + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", {}),
        ("CUDA_OOM", STACK + f"RuntimeError: CUDA error: out of memory\n{ASYNCHRONOUS}", {}),
        ("CUDA_OOM", f"RuntimeError: CUDA error: out of memory\n{ASYNCHRONOUS}", {}),
        ("CUDA_OOM", STACK + f"torch.AcceleratorError: CUDA error: out of memory\n{ASYNCHRONOUS}", {}),
        ("CUDA_OOM", STACK + "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; "
         "10.76 GiB total capacity; 9.71 GiB already allocated)", {}),
        ("CUDA_OOM", STACK + "RuntimeError: HIP out of memory. Tried to allocate 20.00 MiB.", {}),
        ("CUDA_OOM", STACK + "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 4,294,967,296 bytes "
         "(allocated so far: 0 bytes).", {}),
        ("CUDA_OOM", STACK + "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to "
         "allocate 68719476736 bytes.", {}),
        ("CUDA_OOM", "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", {}),
        ("CUDA_OOM", "RESOURCE_EXHAUSTED: OOM when allocating tensor with shape[8,512]", {}),
    ],
    "image-pull": [
        ("IMAGE_NOT_FOUND", "Failed: rpc error: manifest unknown: manifest unknown", {}),
        ("IMAGE_REFUSED", 'Failed to pull image "team/mpi:1": unauthorized: authentication required', {}),
        ("IMAGE_PULL_FAILED", 'Failed to pull image "team/mpi:1": dial tcp: lookup hub: i/o timeout', {}),
        ("IMAGE_NAME_INVALID", "", {"reason": "ImageNameInvalid", "message": "'Team' is not the name of an image"}),
    ],
    "unschedulable": [
        ("UNSCHEDULABLE", "FailedScheduling: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu.", {}),
    ],
    "quota": [
        ("QUOTA_USED_UP", "forbidden: exceeded quota: team, requested: cpu=8, used: cpu=30, limited: cpu=32", {}),
    ],
    "kueue-pending": [
        ("WAITING_FOR_QUOTA", "couldn't assign flavors to pod set node: insufficient unused quota for cpu", {}),
        ("QUEUE_MISSING", "Inadmissible: LocalQueue main doesn't exist", {}),
        ("QUEUE_INACTIVE", "Inadmissible: ClusterQueue team is inactive", {}),
    ],
    "gang-timeout": [
        ("GANG_TIMEOUT", "Evicted: PodsReadyTimeout: Exceeded the PodsReady timeout team/bert", {}),
        ("GANG_TIMEOUT", "", {"reason": "GangTimeout", "message": "not all workers had started after 300 s"}),
    ],
    "dns": [
        ("UNKNOWN_HOST", "ssh: Could not resolve hostname j-worker-1.j: Name or service not known", {}),
        ("UNKNOWN_HOST", "ssh: Could not resolve hostname box: nodename nor servname provided, or not known", {}),
    ],
    "ssh-refused": [("CONNECTION_REFUSED", "ssh: connect to host j-worker-1 port 2222: Connection refused", {})],
    "net-blocked": [("NETWORK_BLOCKED", "ssh: connect to host j-worker-1 port 2222: Connection timed out", {})],
    "ssh-auth": [
        ("PERMISSION_DENIED", "mpiuser@j-worker-1: Permission denied (publickey).", {}),
        ("PERMISSION_DENIED", "Access denied for user mpiuser by PAM account configuration [preauth]", {}),
        ("HOST_KEY", "Host key verification failed.", {}),
    ],
    "ssh-uid": [("SSH_USER", "No user exists for uid 1000680000", {})],
    "sshd-start": [
        ("SSHD_FAILED", "Missing privilege separation directory: /run/sshd", {}),
        ("SSHD_FAILED", "error: Bind to port 22 on 0.0.0.0 failed: Permission denied.", {}),
        ("NO_SSHD", "", {"reason": "NoSshServer", "message": "worker 0: the image has no sshd"}),
    ],
    "daemon-not-started": [
        ("DAEMON_NOT_STARTED", "ORTE was unable to reliably start one or more daemons.", {}),
        ("MPI_NOT_ON_WORKER", "bash: line 1: orted: command not found", {}),
    ],
    "daemon-lost": [("DAEMON_LOST", "ORTE has lost communication with a remote daemon.", {})],
    "ran-on-launcher-only": [
        ("RAN_ON_LAUNCHER", "", {"reason": "WorldDiffers", "message": ASTRAY}),
    ],
    "slots": [("NOT_ENOUGH_SLOTS", "There are not enough slots available in the system to satisfy the 8\nslots", {})],
    "exec-not-found": [
        ("MISSING_EXECUTABLE", "/tmp/mpijob: 1: exec: no-such-program: not found", {}),
        ("MISSING_EXECUTABLE", 'exec: "pythn": executable file not found in $PATH', {}),
        ("NOT_EXECUTABLE", "exec /usr/bin/train: exec format error", {}),
    ],
    "root-refused": [("ROOT_REFUSED", "mpirun has detected an attempt to run as root.", {})],
    "mpi-mismatch": [
        ("MPI_MISMATCH", "ImportError: undefined symbol: ompi_mpi_comm_world", {}),
        ("MPI_MISMATCH", "", {"world": World(planned=4, proved=1), "reason": "WorldDiffers"}),
        ("WRONG_WORLD", "Framework: gds\nComponent: mpijob_started_this_rank_with_mpich", {}),
        ("WRONG_WORLD", "Unable to connect to 127.0.0.1 on 1\nMPIR_pmi_init(101)...: PMI_Init returned -1", {}),
        ("WRONG_WORLD", "Auto-detection of PMI version failed. Found both env vars PMI_SIZE and PMIX_NAMESPACE.", {}),
        ("WRONG_WORLD", "Sorry!  You were supposed to get help about:\n    find-available:not-valid\n"
         "But I couldn't open the help file:\n    /opt/openmpi/share/pmix/help-pmix-mca-base.txt: No such file or "
         "directory.  Sorry!", {"family": Family.MPICH}),
        ("WRONG_WORLD", "", {"reason": "WrongWorld", "message": "rank 1 has loaded /usr/lib/libmpi.so.40"}),
    ],
    "library-missing": [
        ("MISSING_LIBRARY", "./solve: error while loading shared libraries: libhdf5.so.103: cannot open shared object "
         "file: No such file or directory", {}),
    ],
    "segfault": [("SEGFAULT", "[j-worker-0:81] Signal: Segmentation fault (11)", {})],
    "mpi-abort": [("MPI_ABORT", "MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD\n Errorcode: 3", {})],
    "rank-exit-nonzero": [
        ("RANK_EXIT", "", {"ranks": (Exit(code=3, index=1, worker=0, time=5.0),)}),
        ("PYTHON_EXCEPTION", STACK + "ValueError: shapes do not match", {}),
    ],
    "no-finalize": [("NO_FINALIZE", "exiting improperly. There are three reasons this could occur:", {})],
    "mpi-call-error": [
        ("MPI_CALL_ERROR", "*** An error occurred in MPI_Bcast\n*** MPI_ERR_COUNT: invalid count argument", {}),
        ("TRUNCATED_MESSAGE", "*** An error occurred in MPI_Recv\n*** MPI_ERR_TRUNCATE: message truncated", {}),
    ],
    "shm-full": [
        ("SHM_FULL", "RuntimeError: DataLoader worker (pid 8) is killed by signal: Bus error. It is possible that "
         "dataloader's workers are out of shared memory.", {}),
        ("SHM_FULL", "RuntimeError: unable to write to file </torch_81_9>", {}),
    ],
    "mpi-unreachable": [
        ("MPI_UNREACHABLE", "At least one pair of MPI processes are unable to reach each other for\nMPI", {}),
        ("FABRIC_FAILED", "MPIDI_OFI_mpi_init_hook(1061): OFI addrinfo() failed (No data available)", {}),
        ("FABRIC_FAILED", "j-worker-0.81PSM2 can't open hfi unit: -1 (err=23)", {}),
    ],
    "nccl": [
        ("NCCL_TIMEOUT", "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, "
         "NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600013 milliseconds before timing out.", {}),
        ("NCCL_CONNECTION", "j-worker-0:81:90 [0] misc/socket.cc:480 NCCL WARN socketStartConnect: Connect to "
         "10.1.0.2<3807> failed : Software caused connection abort", {}),
        ("NCCL_ERROR", "RuntimeError: NCCL error in: ProcessGroupNCCL.cpp:825, unhandled cuda error", {}),
        ("GPU_SHARED", "init.cc:521 NCCL WARN Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1000", {}),
    ],
    "horovod-stall": [
        ("HOROVOD_STALL", "W stall_inspector.cc:105] One or more tensors were submitted to be reduced, gathered or "
         "broadcasted by subset of ranks and are waiting for remainder of ranks\nMissing ranks:\n1: [grad_0]", {}),
        ("HOROVOD_LOST_RANK", "horovod.common.exceptions.HorovodInternalError: ncclCommInitRank failed", {}),
        ("HOROVOD_MISMATCH", "Mismatched allreduce tensor shapes: One rank sent a tensor of shape [2]", {}),
    ],
    "deepspeed-torch": [
        ("DEEPSPEED_ONE_MACHINE", "[WARNING] [runner.py:212:fetch_hostfile] Unable to find hostfile, will proceed with "
         "training with local resources only.", {"launcher": Exit(code=0)}),
        ("RENDEZVOUS", "torch.distributed.DistStoreError: Socket Timeout", {}),
        ("PORT_IN_USE", "The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).", {}),
    ],
    "mesh-or-startups": [
        ("SSH_CUT_OFF", "kex_exchange_identification: read: Connection reset by peer", {}),
        ("SSH_CUT_OFF", "kex_exchange_identification: Connection closed by remote host",
         {"pods": (Pod("j-worker-1", 1, containers=("mpi", "istio-proxy")),)}),
    ],
    "evicted-preempted": [
        ("WORKER_EVICTED", "", {"reason": "WorkerEvicted", "worker": 1, "message": EVICTED}),
        ("WORKER_EVICTED", "The node was low on resource: ephemeral-storage.", {}),
        ("WORKER_PREEMPTED", "DisruptionTarget: PreemptionByScheduler", {}),
    ],
    "node-lost": [
        ("NODE_LOST", "", {"nodes": (Node("gpu-17", ready=False),), "pods": (Pod("j-worker-1", 1, node="gpu-17"),)}),
        ("NODE_LOST", "NodeNotReady: Node is not ready", {}),
    ],
    "volume": [
        ("VOLUME_NOT_READY", 'persistentvolumeclaim "data" not found', {}),
        ("VOLUME_NOT_READY", 'Multi-Attach error for volume "pvc-1" Volume is already used by pod(s) j-worker-0', {}),
    ],
    "config-missing": [
        ("SETTINGS_MISSING", 'Error: secret "tracking" not found', {}),
        ("SETTINGS_MISSING", "Error: couldn't find key token in Secret team/tracking", {}),
    ],
    "policy-denied": [
        ("POLICY_REFUSED", 'pods "j" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true', {}),
        ("POLICY_REFUSED", "unable to validate against any security context constraint: [provider restricted-v2]", {}),
        ("ENGINE_REFUSED", 'admission webhook "v.kueue" denied the request: spec.replicas: Invalid value', {}),
    ],
    "deadline-backoff": [
        ("DEADLINE_EXCEEDED", "", {"reason": "DeadlineExceeded"}),
        ("ENGINE_REPORT", "BackoffLimitExceeded: Job has reached the specified backoff limit", {}),
    ],
}  # fmt: skip
WARNINGS = {  # entry of the catalogue → (rule, what was said, in runs that end well, too)
    "cma-ptrace": ("COPY_FORBIDDEN", "Read -1, expected 8192, errno = 1"),
    "no-infiniband": (
        "NO_INFINIBAND",
        "WARNING: There was an error initializing an OpenFabrics device.\n  Local host: j-worker-0",
    ),
}
CASES = [(entry, *case) for entry, cases in CATALOGUE.items() for case in cases]


def test_the_catalogue_is_whole() -> None:
    assert len(CATALOGUE) + len(WARNINGS) == 40
    assert {rule for _, rule, _, _ in CASES} <= IDS


@pytest.mark.thorough
@pytest.mark.req("C-translate", "C-top10", "AC9", "US1-3")
@pytest.mark.parametrize(("entry", "rule", "text", "known"), CASES)
def test_every_entry_of_the_catalogue_is_told_first(
    entry: str, rule: str, text: str, known: dict[str, Any]
) -> None:
    facts: dict[str, Any] = {"launcher": Exit(code=1)} | known
    seen = Evidence(spec=a_job(deadline_seconds=60.0), logs=said(text) if text else (), **facts)
    first = explain(seen)[0]
    assert first.code == rule, entry
    assert first.fixes
    assert "{" not in first.message


@pytest.mark.thorough
@pytest.mark.parametrize(("entry", "rule", "text", "known"), [case for case in CASES if case[2]])
def test_the_same_line_in_a_rank_is_told_of_that_rank(
    entry: str, rule: str, text: str, known: dict[str, Any]
) -> None:
    facts: dict[str, Any] = {"launcher": Exit(code=1)} | known
    first = explain(Evidence(spec=a_job(), logs=said(text, rank=2, worker=1), **facts))[0]
    assert (first.code, first.rank, entry) == (rule, 2, entry)


@pytest.mark.parametrize(("rule", "text"), WARNINGS.values())
def test_a_warning_of_good_runs_is_no_cause_by_itself(rule: str, text: str) -> None:
    logs = said(text, rank=2, worker=1)
    unknown, warning = explain(Evidence(spec=a_job(), logs=logs, launcher=Exit(code=1)))
    assert (unknown.code, warning.code, warning.severity.value) == ("UNKNOWN", rule, "warning")
    assert warning.fixes
    assert explain(Evidence(spec=a_job(), logs=logs, launcher=Exit(code=0))) == ()
    bare = mpijob.diagnose(text)
    assert rule not in [finding.code for finding in bare.findings[:1]]


@pytest.mark.req("UC1-AF3", "UC2-AF1")
def test_a_missing_infiniband_is_told_with_the_setting_that_falls_back_to_tcp() -> None:
    _, text = WARNINGS["no-infiniband"]
    _, first = explain(Evidence(spec=a_job(), logs=said(text), launcher=Exit(code=1)))
    assert first.message.startswith("RDMA network not detected. Performance may be degraded.")
    assert first.fixes[0].text == (
        "Check if InfiniBand network is available. Fall back to TCP communication by setting "
        "`MPI_FLAGS=--mca btl tcp,self`"
    )
    assert first.fixes[0].patch["launch"]["settings"]["btl"] == "tcp,self"


WAITS = [
    ("WAITING", {"phase": Phase.QUEUED, "reason": "Waiting", "message": "4 GPUs, position 2, about 25 min"}),
    ("SUSPENDED", {"phase": Phase.SUSPENDED, "reason": "Suspended"}),
    ("BACKING_OFF", {"phase": Phase.QUEUED, "reason": "BackingOff", "message": "attempt 2 in 20 s"}),
    ("HANG", {"phase": Phase.RUNNING, "reason": "RanksRunning", "silent_seconds": 120.0}),
]


@pytest.mark.parametrize(("code", "known"), WAITS)
def test_a_job_that_waits_or_is_silent_is_told_as_a_warning(code: str, known: dict[str, Any]) -> None:
    first = explain(Evidence(spec=a_job(), **known))[0]
    assert (first.code, first.severity.value) == (code, "warning")


def test_a_job_that_runs_well_has_no_finding_although_its_log_names_errors() -> None:
    logs = said(
        "ssh: connect to host j-worker-1 port 22: Connection refused\n" + STACK + "OSError: again", rank=0
    )
    assert explain(Evidence(spec=a_job(), phase=Phase.RUNNING, reason="RanksRunning", logs=logs)) == ()
