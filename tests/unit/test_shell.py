"""The sh texts of pods, run for real with dash: exact arguments, the census's judgement, endings, signals."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from subprocess import PIPE

import pytest

import mpijob
from mpijob.backends import endings
from mpijob.dialects import shell
from mpijob.dialects.shell import Ending
from mpijob.dialects.shell_launcher import LAUNCHER

HOSTILE = [
    "; touch /tmp/pwned",
    "$(id)",
    "`id`",
    "a\nb",
    "'",
    '"',
    "\\",
    "-n",
    "*",
    "$HOME",
    "",
    "${x}",
    "&& exit 7",
]
# what a launcher stands in for: it writes its words down, counts when asked, and runs the command else
STUB = """#!/bin/sh
if [ "$MPIJOB_CENSUS" = 1 ]; then cat "$CENSUS"; echo noise >&2; exit "${CENSUS_EXIT:-0}"; fi
for word in "$@"; do printf '%s\\0' "$word"; done >"$WORDS"
exit "${COMMAND_EXIT:-0}"
"""


class Pod:
    """A directory that stands for a pod: its home, its keys, its hostfile, and a stub of mpirun."""

    def __init__(self, root: Path) -> None:
        self.home, self.keys, self.bin = root / "home", root / "keys", root / "bin"
        for directory in (self.home / ".ssh", self.home / "ranks", self.keys, self.bin):
            directory.mkdir(parents=True)
        self.last_words, self.words, self.census = root / "last", root / "words", root / "census"
        (self.keys / "id_rsa").write_text("PRIVATE\n")
        (self.keys / "id_rsa.pub").write_text("ecdsa-sha2-nistp521 AAAA\n")
        (root / "hostfile").write_text("localhost slots=2\n127.0.0.1 slots=2\n")
        self.program("mpirun", STUB)
        self.env = {
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "MPIJOB_HOME": str(self.home),
            "MPIJOB_SSH": str(self.keys),
            "MPIJOB_LAST_WORDS": str(self.last_words),
            "MPIJOB_HOSTFILE": str(root / "hostfile"),
            "MPIJOB_WORLD": "4",
            "MPIJOB_USED": "2",
            "MPIJOB_MOST": "2",
            "MPIJOB_PATIENCE": "1",
            "CENSUS": str(self.census),
            "WORDS": str(self.words),
        }
        self.ranks("localhost", "localhost", "127", "127")

    def program(self, name: str, text: str) -> None:
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def ranks(self, *hosts: str, size: int | None = None, gpus: int = 0, before: str = "") -> None:
        lines = [
            f"{before}mpijob-census rank={rank} size={size or len(hosts)} local=0 host={host} node=n1 gpus={gpus}\n"
            for rank, host in enumerate(hosts)
        ]
        self.census.write_text("".join(lines))

    def launch(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        return self.sh(LAUNCHER, "mpijob-launcher", *words, **env)

    def sh(self, text: str, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        argv = ["dash", "-c", text, *words]
        return subprocess.run(
            argv, env=self.env | env, capture_output=True, text=True, timeout=20, check=False
        )

    @property
    def command(self) -> list[str]:
        return self.words.read_text().split("\0")[:-1]


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    return Pod(tmp_path)


@pytest.mark.security
def test_every_byte_of_the_command_arrives_as_it_was_written(pod: Pod) -> None:
    done = pod.launch("mpirun", "-n", "4", *HOSTILE)
    assert (done.returncode, pod.command) == (0, ["-n", "4", *HOSTILE])


def test_the_census_is_told_before_the_command_runs(pod: Pod) -> None:
    done = pod.launch("mpirun", "program")
    assert done.stdout.splitlines()[0] == "mpijob-census rank=0 size=4 local=0 host=localhost node=n1 gpus=0"
    assert re.fullmatch("mpijob-world ranks=4 gap=0 tag=[0-9a-f-]{13}", done.stdout.splitlines()[-1])


def test_a_census_with_tagged_output_is_understood(pod: Pod) -> None:
    pod.ranks("localhost", "localhost", "127", "127", before="[1,0]<stdout>:")
    assert pod.launch("mpirun", "program").returncode == 0


@pytest.mark.parametrize(
    ("hosts", "env", "said"),
    [
        (("job-launcher-0-0",) * 4, {}, "rank 0 ran on job-launcher-0-0, none of the job's workers"),
        (("localhost", "localhost", "127"), {}, "belongs to a world of 3, and 4 ranks are planned"),
        (("localhost",) * 4, {}, "worker localhost has 4 ranks, and at most 2 are planned for one"),
        (("localhost",) * 4, {"MPIJOB_MOST": "0"}, "the ranks are on 1 workers, and 2 are planned"),
        (
            ("localhost", "localhost", "127", "127"),
            {"MPIJOB_DEVICES_PLANNED": "1"},
            "sees 0 GPUs, and 1 are planned",
        ),
    ],
)
def test_a_world_that_differs_ends_the_job_before_the_command(
    pod: Pod, hosts: tuple[str, ...], env: dict[str, str], said: str
) -> None:
    pod.ranks(*hosts)
    done = pod.launch("mpirun", "program", **env)
    assert done.returncode == Ending.WORLD_DIFFERS
    assert said in done.stderr
    assert said in pod.last_words.read_text(), "the pod's status tells it as well"
    assert not pod.words.exists()


def test_missing_ranks_and_ranks_that_start_twice_are_told_apart(pod: Pod) -> None:
    pod.ranks("localhost", "localhost", size=4)
    assert "2 ranks started, and 4 are planned" in pod.launch("mpirun").stderr
    line = "mpijob-census rank=0 size=4 local=0 host=localhost node= gpus=0\n"
    pod.census.write_text(line * 4)
    assert "rank 0 was started twice" in pod.launch("mpirun").stderr


def test_an_open_mapping_is_only_counted(pod: Pod) -> None:
    pod.ranks(*("localhost",) * 4)
    assert pod.launch("mpirun", "program", MPIJOB_MOST="0", MPIJOB_USED="0").returncode == 0


def test_a_world_that_cannot_start_shows_what_the_launcher_said(pod: Pod) -> None:
    done = pod.launch("mpirun", "program", CENSUS_EXIT="205")
    assert done.returncode == Ending.WORLD_NOT_STARTED
    assert "noise" in done.stderr
    assert "mpirun exited with 205" in pod.last_words.read_text()


def test_the_census_can_be_switched_off(pod: Pod) -> None:
    pod.census.write_text("")
    assert pod.launch("mpirun", "program", MPIJOB_PROVE="0").returncode == 0
    assert pod.command == ["program"]


def test_a_command_with_its_own_launcher_is_run_as_it_is_after_our_census(pod: Pod) -> None:
    pod.program("mine", '#!/bin/sh\nfor word in "$@"; do printf "%s\\0" "$word"; done >"$WORDS"\n')
    done = pod.launch("mpirun", "-n", "4", "mine", "-np", "a b", MPIJOB_CENSUS_WORDS="3")
    assert (done.returncode, pod.command) == (0, ["-np", "a b"])
    assert "mpijob-world ranks=4" in done.stdout


@pytest.mark.security
@pytest.mark.parametrize("word", ["judge", "fail", "first", "exit", "eval"])
def test_a_command_called_like_a_word_of_the_script_is_still_a_program(pod: Pod, word: str) -> None:
    pod.program(word, "#!/bin/sh\nexit 42\n")
    assert pod.launch(word, "9", MPIJOB_PROVE="0").returncode == 42


def test_the_exit_code_of_the_command_is_the_launchers(pod: Pod) -> None:
    assert pod.launch("mpirun", "program", COMMAND_EXIT="3").returncode == 3


def test_a_program_that_the_image_lacks_is_named(pod: Pod) -> None:
    done = pod.launch("mpirun-of-another-image")
    assert done.returncode == Ending.NO_PROGRAM
    assert "'mpirun-of-another-image'" in done.stderr


def test_a_missing_key_or_hostfile_is_named(pod: Pod) -> None:
    assert pod.launch("mpirun", MPIJOB_HOSTFILE=str(pod.home / "nowhere")).returncode == Ending.WORKERS_SILENT
    (pod.keys / "id_rsa").unlink()
    assert pod.launch("mpirun").returncode == Ending.NO_KEY


def test_a_worker_without_an_address_is_waited_for_and_then_named(pod: Pod) -> None:
    Path(pod.env["MPIJOB_HOSTFILE"]).write_text("nobody.invalid slots=2\n")
    done = pod.launch("mpirun")
    assert done.returncode == Ending.WORKERS_SILENT
    assert "no address for nobody.invalid after 1 s" in done.stderr


def test_in_open_order_a_silent_worker_is_waited_for_and_then_named(pod: Pod) -> None:
    agent = pod.home / "ssh"
    agent.write_text('#!/bin/sh\nfor w in "$@"; do [ "$w" = localhost ] && exit 0; done\nexit 255\n')
    agent.chmod(0o755)
    done = pod.launch("mpirun", MPIJOB_ORDER="open")
    assert done.returncode == Ending.WORKERS_SILENT
    assert "worker 127.0.0.1 did not answer on its ssh port within 1 s\n" in done.stderr


def test_in_open_order_the_last_words_of_ssh_are_told(pod: Pod) -> None:
    agent = pod.home / "ssh"
    said = "mpijob@127.0.0.1: Permission denied (publickey)."
    agent.write_text(f"#!/bin/sh\necho '{said}' >&2\nexit 255\n")
    agent.chmod(0o755)
    done = pod.launch("mpirun", MPIJOB_ORDER="open")
    assert f"did not answer on its ssh port within 1 s: {said}\n" in done.stderr
    told = mpijob.diagnose(done.stderr, exit_code=done.returncode)
    assert [finding.code for finding in told.findings] == ["PERMISSION_DENIED"]


def test_the_order_ready_asks_no_worker_at_all(pod: Pod) -> None:
    assert not (pod.home / "ssh").exists(), "there is no ssh to ask with"
    assert pod.launch("mpirun", MPIJOB_ORDER="ready").returncode == 0


def test_signals_reach_the_command_and_its_answer_is_the_end(pod: Pod, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    pod.program("patient", f"#!/bin/sh\ntrap 'exit 17' TERM\n: >{ready}\nwhile :; do sleep 0.1; done\n")
    argv = ["dash", "-c", LAUNCHER, "mpijob-launcher", "patient"]
    with subprocess.Popen(argv, env=pod.env | {"MPIJOB_PROVE": "0"}) as process:
        _until(ready.exists)
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 17


@pytest.mark.parametrize(("ours", "read"), [((), ""), (("true",), "line\n")])
def test_a_launcher_of_the_users_own_reads_the_jobs_file_and_ours_leaves_it_to_rank_0(
    pod: Pod, tmp_path: Path, ours: tuple[str, ...], read: str
) -> None:
    pod.program("reader", '#!/bin/sh\ncat >"$WORDS"\n')
    (tmp_path / "in put").write_text("line\n")
    told = {"MPIJOB_CENSUS_WORDS": str(len(ours)), "MPIJOB_STDIN": str(tmp_path / "in put")}
    pod.launch(*ours, "reader", MPIJOB_PROVE="0", **told)
    assert pod.words.read_text() == read
    nowhere = str(tmp_path / "nowhere")
    refused = pod.launch("reader", MPIJOB_PROVE="0", MPIJOB_STDIN=nowhere)
    assert f"input {nowhere} cannot be read" in refused.stderr


def test_the_workers_of_a_failed_command_stay_as_long_as_asked(pod: Pod) -> None:
    began = time.monotonic()
    done = pod.launch("mpirun", "program", COMMAND_EXIT="3", MPIJOB_KEEP="1")
    assert done.returncode == 3
    assert time.monotonic() - began >= 1
    assert "the workers stay for 1 s" in done.stderr


@pytest.mark.security
def test_ssh_takes_no_host_key_but_the_jobs_own(pod: Pod) -> None:
    pod.launch("mpirun", "program")
    assert (pod.home / ".ssh" / "known_hosts").read_text() == "mpijob ecdsa-sha2-nistp521 AAAA\n"
    assert (pod.home / ".ssh" / "id").stat().st_mode & 0o777 == 0o600
    config = shell.ssh_config()
    assert "StrictHostKeyChecking yes" in config
    assert "HostKeyAlias mpijob" in config


def test_prepare_makes_a_home_for_a_user_that_nobody_knows(pod: Pod, tmp_path: Path) -> None:
    users = tmp_path / "passwd"
    users.write_text("root:x:0:0::/root:/bin/sh")
    texts = [shell.sshd_config(), shell.ssh_config(), shell.agent(), shell.RANK]
    done = pod.sh(shell.PREPARE, "mpijob-prepare", *texts, MPIJOB_PASSWD=str(users))
    assert done.returncode == 0, done.stderr
    me = f"mpijob:x:{os.getuid()}:{os.getgid()}:mpijob:{pod.home}:/bin/sh"
    assert (pod.home / "passwd").read_text() == f"root:x:0:0::/root:/bin/sh\n{me}\n"
    assert (pod.home / "sshd_config").read_text() == texts[0]
    assert os.access(pod.home / "ssh", os.X_OK)


def test_what_a_rank_must_do_when_it_ends_badly_is_first_on_its_python_path(pod: Pod) -> None:
    texts = [shell.sshd_config(), shell.ssh_config(), shell.agent(), shell.RANK, endings.text()]
    assert pod.sh(shell.PREPARE, "mpijob-prepare", *texts).returncode == 0
    program = (
        "import sys, types; mpi = types.SimpleNamespace(Is_initialized=lambda: True, Is_finalized=lambda: False,"
        " _set_abort_status=lambda status: print('aborts', status, flush=True)); sys.modules['mpi4py.MPI'] = mpi;"
        " print(sys.path[1], flush=True); sys.exit(7)"
    )
    env = {"OMPI_COMM_WORLD_RANK": "5", "MPIJOB_CGROUP": "/nowhere", "PYTHONPATH": "/the/users/own"}
    done = pod.sh(shell.RANK, "rank", sys.executable, "-c", program, **env)
    assert done.stdout.splitlines() == [
        "/the/users/own",
        "aborts 7",
        "mpijob-exit rank=5 code=7 left=1",
        "mpijob-exit rank=5 code=7",
    ]


def test_a_worker_starts_sshd_as_itself_and_hands_on_the_images_path(pod: Pod) -> None:
    pod.program("sshd", '#!/bin/sh\nfor word in "$@"; do printf "%s\\0" "$word"; done >"$WORDS"\n')
    done = pod.sh(shell.WORKER, "mpijob-worker", MPIJOB_NODE="node-7", LD_LIBRARY_PATH="/opt/lib\nPATH=/evil")
    assert done.returncode == 0, done.stderr
    assert pod.command == ["-D", "-e", "-f", f"{pod.home}/sshd_config"]
    environment = (pod.home / ".ssh" / "environment").read_text()
    assert environment == f"PATH={pod.env['PATH']}\n", "a value of several lines could name other variables"
    assert (pod.home / "node").read_text() == "node-7\n"
    assert (pod.home / ".ssh" / "authorized_keys").read_text() == "restrict ecdsa-sha2-nistp521 AAAA\n"


def test_a_worker_whose_sshd_cannot_start_says_so(pod: Pod) -> None:
    pod.program("sshd", "#!/bin/sh\necho bad configuration >&2\nexit 255\n")
    done = pod.sh(shell.WORKER, "mpijob-worker")
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
    assert pod.sh(shell.RANK, "rank", *show, **env).stdout.splitlines()[0] == f"{seen} 5"


@pytest.mark.parametrize(("program", "code"), [("exit 3", 3), ("kill -9 $$", 137), ("kill -11 $$", 139)])
def test_a_rank_says_how_it_ended(pod: Pod, program: str, code: int) -> None:
    said, env = ("sh", "-c", f"echo last words; {program}"), {"MPIJOB_CGROUP": "/nowhere"}
    done = pod.sh(shell.RANK, "rank", *said, OMPI_COMM_WORLD_RANK="5", **env)
    assert done.returncode == code
    assert done.stdout.splitlines() == ["last words", f"mpijob-exit rank=5 code={code}"]


@pytest.mark.parametrize(("rank", "read"), [("0", "from the file"), ("1", "")])
def test_only_rank_0_reads_the_input_and_no_rank_waits_for_the_launcher(
    pod: Pod, tmp_path: Path, rank: str, read: str
) -> None:
    (tmp_path / "input").write_text("from the file\n")
    argv = ["dash", "-c", shell.RANK, "rank", "sh", "-c", 'read -r line; echo "read${line:+ $line}"']
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
    done = pod.sh(shell.RANK, "rank", "sh", "-c", program, PMI_RANK="5")
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
    done = pod.sh(shell.RANK, "rank", "sh", "-c", program, PMI_RANK="5", MPIJOB_CGROUP=str(tmp_path))
    assert done.stdout.splitlines() == [f"mpijob-exit rank=5 code=137 oom={kills}"]


def test_a_rank_that_is_only_counted_does_not_run_its_command(pod: Pod, tmp_path: Path) -> None:
    (tmp_path / "gpu0").touch()
    (pod.home / "node").write_text("n3\n")
    env = {"MPIJOB_CENSUS": "1", "MPIJOB_DEVICES": f"{tmp_path}/gpu[0-9]*", "OMPI_COMM_WORLD_RANK": "2"}
    done = pod.sh(shell.RANK, "rank", "false", OMPI_COMM_WORLD_SIZE="4", **env)
    host = os.uname().nodename
    assert done.stdout == f"mpijob-census rank=2 size=4 local=0 host={host} node=n3 gpus=1\n"


@pytest.mark.parametrize(("sent", "code"), [("USR1", 7), ("0", -signal.SIGKILL)])
def test_stop_tells_the_ranks_and_waits_for_their_checkpoint(
    pod: Pod, tmp_path: Path, sent: str, code: int
) -> None:
    ready = tmp_path / "ready"
    program = f"trap 'exit 7' USR1; : >{ready}; while :; do sleep 0.1; done"
    argv = ["dash", "-c", shell.RANK, "rank", "dash", "-c", program]
    with subprocess.Popen(argv, env=pod.env | {"OMPI_COMM_WORLD_RANK": "0"}, start_new_session=True) as rank:
        try:
            _until(ready.exists)
            assert pod.sh(shell.STOP, "mpijob-stop", sent, "1").returncode == 0
            if sent == "0":  # nobody told it, so it is still there for MPI's daemon to end, group and all
                os.killpg(rank.pid, signal.SIGKILL)
            assert rank.wait(10) == code
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(rank.pid, signal.SIGKILL)


@pytest.mark.engine
def test_a_real_mpirun_is_counted_and_then_runs_the_command(pod: Pod, tmp_path: Path) -> None:
    host = os.uname().nodename
    pod.program("mpirun", f'#!/bin/sh\nexec {sys.prefix}/bin/mpiexec "$@"\n')
    Path(pod.env["MPIJOB_HOSTFILE"]).write_text(f"{host}:2\n")
    (pod.home / "rank.sh").write_text(shell.RANK)
    program = ("sh", "-c", 'echo "rank $MPIJOB_RANK: $1"', "sh", "a $(b) 'c")
    line = ("mpirun", "-f", pod.env["MPIJOB_HOSTFILE"], "-n", "2", "/bin/sh")
    done = pod.launch(*line, f"{pod.home}/rank.sh", *program, MPIJOB_WORLD="2", MPIJOB_USED="1")
    assert done.returncode == 0, done.stderr
    census, rest = re.split("mpijob-world ranks=2 gap=0 tag=.*\n", done.stdout)
    assert sorted(line.split()[1] for line in census.splitlines()) == ["rank=0", "rank=1"]
    ended = ["mpijob-exit rank=0 code=0", "mpijob-exit rank=1 code=0"]
    assert sorted(rest.splitlines()) == [*ended, "rank 0: a $(b) 'c", "rank 1: a $(b) 'c"]


def _until(happened: object) -> None:
    deadline = time.monotonic() + 10
    while not happened():  # type: ignore[operator]  # any predicate
        assert time.monotonic() < deadline, "it did not happen in 10 s"
        time.sleep(0.01)
