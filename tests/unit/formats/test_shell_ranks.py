"""The sh texts of workers and ranks, run for real with dash: keys, homes, devices, input, endings and signals."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import signal
import subprocess
import sys
import tarfile
from pathlib import Path
from subprocess import PIPE

import pytest
from tests.unit.shell_support import Pod, a_pod, until

from mpijob.backends.mpi import fail_fast
from mpijob.formats.launch import pod_scripts
from mpijob.formats.launch.pod_scripts import Ending

pod = pytest.fixture(a_pod)


@pytest.mark.security
def test_ssh_takes_no_host_key_but_the_jobs_own(pod: Pod) -> None:
    pod.launch("mpirun", "program")
    assert (pod.home / ".ssh" / "known_hosts").read_text() == "mpijob ecdsa-sha2-nistp521 AAAA\n"
    assert (pod.home / ".ssh" / "id").stat().st_mode & 0o777 == 0o600
    config = pod_scripts.ssh_config()
    assert "StrictHostKeyChecking yes" in config
    assert "HostKeyAlias mpijob" in config


def test_prepare_makes_a_home_for_a_user_that_nobody_knows(pod: Pod, tmp_path: Path) -> None:
    users = tmp_path / "passwd"
    users.write_text("root:x:0:0::/root:/bin/sh")
    texts = [pod_scripts.sshd_config(), pod_scripts.ssh_config(), pod_scripts.agent(), pod_scripts.RANK]
    done = pod.sh(pod_scripts.PREPARE, "mpijob-prepare", *texts, MPIJOB_PASSWD=str(users))
    assert done.returncode == 0, done.stderr
    me = f"mpijob:x:{os.getuid()}:{os.getgid()}:mpijob:{pod.home}:/bin/sh"
    assert (pod.home / "passwd").read_text() == f"root:x:0:0::/root:/bin/sh\n{me}\n"
    assert (pod.home / "sshd_config").read_text() == texts[0]
    assert os.access(pod.home / "ssh", os.X_OK)


@pytest.mark.parametrize("size", [10, 300_000])
@pytest.mark.parametrize("cut", [False, True])
def test_prepare_unpacks_code_that_goes_along_whole_or_in_parts(
    pod: Pod, tmp_path: Path, size: int, cut: bool
) -> None:
    buffer = io.BytesIO()
    data = os.urandom(size)
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        entry = tarfile.TarInfo("sub/train.bin")
        entry.size = size
        tar.addfile(entry, io.BytesIO(data))
    mounted = tmp_path / "code"
    mounted.mkdir()
    if cut:
        step = len(buffer.getvalue()) // 11 + 1
        for at in range(12):  # the last one is empty, as where code shrank since it was planned
            part = buffer.getvalue()[at * step : (at + 1) * step]
            (mounted / f"archive.{at:02}").write_bytes(part)
    else:
        (mounted / "archive").write_bytes(buffer.getvalue())
    texts = [pod_scripts.sshd_config(), pod_scripts.ssh_config(), pod_scripts.agent(), pod_scripts.RANK]
    done = pod.sh(pod_scripts.PREPARE, "mpijob-prepare", *texts, MPIJOB_CODE=str(mounted))
    assert done.returncode == 0, done.stderr
    assert (pod.home / "work/sub/train.bin").read_bytes() == data


def test_prepare_fails_where_a_part_is_missing(pod: Pod, tmp_path: Path) -> None:
    packed = gzip.compress(os.urandom(100_000))
    for at in (0, 2):
        (tmp_path / f"archive.{at:02}").write_bytes(packed[at * 40_000 : (at + 1) * 40_000])
    texts = [pod_scripts.sshd_config(), pod_scripts.ssh_config(), pod_scripts.agent(), pod_scripts.RANK]
    done = pod.sh(pod_scripts.PREPARE, "mpijob-prepare", *texts, MPIJOB_CODE=str(tmp_path))
    assert done.returncode != 0


def test_what_a_rank_must_do_when_it_ends_badly_is_first_on_its_python_path(pod: Pod) -> None:
    texts = [
        pod_scripts.sshd_config(),
        pod_scripts.ssh_config(),
        pod_scripts.agent(),
        pod_scripts.RANK,
        "python/sitecustomize.py",
        fail_fast.text(),
    ]
    assert pod.sh(pod_scripts.PREPARE, "mpijob-prepare", *texts).returncode == 0
    program = (
        "import sys, types; mpi = types.SimpleNamespace(Is_initialized=lambda: True, Is_finalized=lambda: False,"
        " _set_abort_status=lambda status: print('aborts', status, flush=True)); sys.modules['mpi4py.MPI'] = mpi;"
        " print(sys.path[1], flush=True); sys.exit(7)"
    )
    env = {"OMPI_COMM_WORLD_RANK": "5", "MPIJOB_CGROUP": "/nowhere", "PYTHONPATH": "/the/users/own"}
    done = pod.sh(pod_scripts.RANK, "rank", sys.executable, "-c", program, **env)
    assert done.stdout.splitlines() == [
        "/the/users/own",
        "aborts 7",
        "mpijob-exit rank=5 code=7 left=1",
        "mpijob-exit rank=5 code=7",
    ]


def test_a_worker_starts_sshd_as_itself_and_hands_on_the_images_path(pod: Pod) -> None:
    pod.program("sshd", '#!/bin/sh\nfor word in "$@"; do printf "%s\\0" "$word"; done >"$WORDS"\n')
    done = pod.sh(
        pod_scripts.WORKER, "mpijob-worker", MPIJOB_NODE="node-7", LD_LIBRARY_PATH="/opt/lib\nPATH=/evil"
    )
    assert done.returncode == 0, done.stderr
    assert pod.command == ["-D", "-e", "-f", f"{pod.home}/sshd_config"]
    environment = (pod.home / ".ssh" / "environment").read_text()
    assert environment == f"PATH={pod.env['PATH']}\n", "a value of several lines could name other variables"
    assert (pod.home / "node").read_text() == "node-7\n"
    assert (pod.home / ".ssh" / "authorized_keys").read_text() == "restrict ecdsa-sha2-nistp521 AAAA\n"


def test_a_worker_whose_sshd_cannot_start_says_so(pod: Pod) -> None:
    pod.program("sshd", "#!/bin/sh\necho bad configuration >&2\nexit 255\n")
    done = pod.sh(pod_scripts.WORKER, "mpijob-worker")
    assert done.returncode == Ending.NO_SSHD
    assert "sshd cannot start (exit 255): bad configuration" in pod.last_words.read_text()


@pytest.mark.parametrize(
    ("gpus", "slots", "slot", "seen"), [(4, 2, 1, "2,3"), (2, 2, 1, "1"), (2, 4, 3, "1"), (0, 2, 1, "none")]
)
def test_each_rank_sees_its_own_gpus(pod: Pod, gpus: int, slots: int, slot: int, seen: str) -> None:
    show = ("sh", "-c", 'echo "${CUDA_VISIBLE_DEVICES-none} $MPIJOB_RANK"')
    env = {
        "MPIJOB_GPUS": str(gpus),
        "MPIJOB_SLOTS": str(slots),
        "PMI_RANK": "5",
        "MPI_LOCALRANKID": str(slot),
    }
    assert pod.sh(pod_scripts.RANK, "rank", *show, **env).stdout.splitlines()[0] == f"{seen} 5"


@pytest.mark.parametrize(("program", "code"), [("exit 3", 3), ("kill -9 $$", 137), ("kill -11 $$", 139)])
def test_a_rank_says_how_it_ended(pod: Pod, program: str, code: int) -> None:
    said, env = ("sh", "-c", f"echo last words; {program}"), {"MPIJOB_CGROUP": "/nowhere"}
    done = pod.sh(pod_scripts.RANK, "rank", *said, OMPI_COMM_WORLD_RANK="5", **env)
    assert done.returncode == code
    assert done.stdout.splitlines() == ["last words", f"mpijob-exit rank=5 code={code}"]


@pytest.mark.parametrize(("rank", "read"), [("0", "from the file"), ("1", "")])
def test_only_rank_0_reads_the_input_and_no_rank_waits_for_the_launcher(
    pod: Pod, tmp_path: Path, rank: str, read: str
) -> None:
    (tmp_path / "input").write_text("from the file\n")
    argv = ["dash", "-c", pod_scripts.RANK, "rank", "sh", "-c", 'read -r line; echo "read${line:+ $line}"']
    env = pod.env | {"PMI_RANK": rank, "MPIJOB_STDIN": str(tmp_path / "input")}
    passed_on, open_end = os.pipe()  # which stays open, as a launcher's may
    os.write(open_end, b"passed on by the launcher\n")
    try:
        done = subprocess.run(argv, env=env, stdin=passed_on, stdout=PIPE, text=True, timeout=20, check=True)
    finally:
        os.close(passed_on)
        os.close(open_end)
    assert done.stdout.splitlines()[0] == f"read {read}".rstrip()


@pytest.mark.parametrize(("program", "code"), [("true", 0), ("exit 3", -9), ("kill -9 $$", -9)])
def test_a_rank_of_hydra_that_failed_ends_so_that_the_others_end_too(
    pod: Pod, program: str, code: int
) -> None:
    done = pod.sh(pod_scripts.RANK, "rank", "sh", "-c", program, PMI_RANK="5")
    assert done.returncode == code
    assert done.stdout.startswith("mpijob-exit rank=5 code=")


@pytest.mark.parametrize("kills", [0, 1])
@pytest.mark.parametrize("name", ["memory.events", "memory/memory.oom_control"])
def test_a_rank_that_was_killed_says_whether_it_was_for_memory(
    pod: Pod, tmp_path: Path, name: str, kills: int
) -> None:
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("oom 3\noom_kill 2\n")
    program = f"printf 'oom 4\\noom_kill {2 + kills}\\n' >{file}; kill -9 $$"
    done = pod.sh(pod_scripts.RANK, "rank", "sh", "-c", program, PMI_RANK="5", MPIJOB_CGROUP=str(tmp_path))
    assert done.stdout.splitlines() == [f"mpijob-exit rank=5 code=137 oom={kills}"]


def test_a_rank_that_is_only_counted_does_not_run_its_command(pod: Pod, tmp_path: Path) -> None:
    (tmp_path / "gpu0").touch()
    (pod.home / "node").write_text("n3\n")
    env = {"MPIJOB_CENSUS": "1", "MPIJOB_DEVICES": f"{tmp_path}/gpu[0-9]*", "OMPI_COMM_WORLD_RANK": "2"}
    done = pod.sh(pod_scripts.RANK, "rank", "false", OMPI_COMM_WORLD_SIZE="4", **env)
    host = os.uname().nodename
    assert done.stdout == f"mpijob-census rank=2 size=4 local=0 host={host} node=n3 gpus=1\n"


@pytest.mark.thorough
@pytest.mark.parametrize(("sent", "code"), [("USR1", 7), ("0", -signal.SIGKILL)])
def test_stop_tells_the_ranks_and_waits_for_their_checkpoint(
    pod: Pod, tmp_path: Path, sent: str, code: int
) -> None:
    ready = tmp_path / "ready"
    program = f"trap 'exit 7' USR1; : >{ready}; while :; do sleep 0.1; done"
    argv = ["dash", "-c", pod_scripts.RANK, "rank", "dash", "-c", program]
    with subprocess.Popen(argv, env=pod.env | {"OMPI_COMM_WORLD_RANK": "0"}, start_new_session=True) as rank:
        try:
            until(ready.exists)
            assert pod.sh(pod_scripts.STOP, "mpijob-stop", sent, "1").returncode == 0
            if sent == "0":  # nobody told it, so it is still there for MPI's daemon to end, group and all
                os.killpg(rank.pid, signal.SIGKILL)
            assert rank.wait(10) == code
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(rank.pid, signal.SIGKILL)
