"""The sh text of launchers, run for real with dash: exact arguments, the census's judgement, endings, signals."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.unit.shell_support import Pod, a_pod, until

import mpijob
from mpijob.formats.launch import pod_scripts
from mpijob.formats.launch.launcher_script import LAUNCHER
from mpijob.formats.launch.pod_scripts import Ending

pod = pytest.fixture(a_pod)
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


@pytest.mark.security
def test_every_byte_of_the_command_arrives_as_it_was_written(pod: Pod) -> None:
    done = pod.launch("mpirun", "-n", "4", *HOSTILE)
    assert (done.returncode, pod.command) == (0, ["-n", "4", *HOSTILE])


def test_the_census_is_told_before_the_command_runs(pod: Pod) -> None:
    done = pod.launch("mpirun", "program")
    ready, first, *_ = done.stdout.splitlines()
    assert ready == "mpijob-ready workers=2"
    assert first == "mpijob-census rank=0 size=4 local=0 host=localhost node=n1 gpus=0"
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


REFUSED = "ssh: connect to host w-0 port 2222: Connection refused"
REFUSING = f"""#!/bin/sh
if [ "$MPIJOB_CENSUS" != 1 ]; then : >"$WORDS"; exit; fi
echo tried >>"$WORDS-tries"
if [ "$(wc -l <"$WORDS-tries")" -le "$REFUSALS" ]; then echo "{REFUSED}" >&2; exit 255; fi
cat "$CENSUS"
"""


@pytest.mark.thorough
def test_a_network_that_does_not_know_the_workers_yet_is_waited_for(pod: Pod) -> None:
    pod.program("mpirun", REFUSING)
    done = pod.launch("mpirun", "program", REFUSALS="2")
    assert (done.returncode, pod.words.exists()) == (0, True)
    waits = "mpijob: a worker that is ready refuses the launcher; it is tried again for 90 s"
    assert done.stderr.splitlines() == [waits]
    assert "mpijob-world ranks=4" in done.stdout


@pytest.mark.thorough
def test_workers_that_refuse_for_ever_end_the_job_with_what_ssh_said_last(pod: Pod) -> None:
    pod.program("mpirun", REFUSING)
    done = pod.launch("mpirun", "program", REFUSALS="1000", MPIJOB_REFUSED="2")
    assert (done.returncode, pod.words.exists()) == (Ending.WORLD_NOT_STARTED, False)
    assert done.stderr.count(REFUSED) == 1
    tries = (pod.words.parent / f"{pod.words.name}-tries").read_text()
    assert 2 <= tries.count("tried") <= 4


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


@pytest.mark.thorough
def test_a_worker_without_an_address_is_waited_for_and_then_named(pod: Pod) -> None:
    Path(pod.env["MPIJOB_HOSTFILE"]).write_text("nobody.invalid slots=2\n")
    done = pod.launch("mpirun")
    assert done.returncode == Ending.WORKERS_SILENT
    assert "no address for nobody.invalid after 1 s" in done.stderr


@pytest.mark.thorough
def test_in_open_order_a_silent_worker_is_waited_for_and_then_named(pod: Pod) -> None:
    agent = pod.home / "ssh"
    agent.write_text('#!/bin/sh\nfor w in "$@"; do [ "$w" = localhost ] && exit 0; done\nexit 255\n')
    agent.chmod(0o755)
    done = pod.launch("mpirun", MPIJOB_ORDER="open")
    assert done.returncode == Ending.WORKERS_SILENT
    assert "worker 127.0.0.1 did not answer on its ssh port within 1 s\n" in done.stderr


@pytest.mark.thorough
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
        until(ready.exists)
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


@pytest.mark.thorough
def test_the_workers_of_a_failed_command_stay_as_long_as_asked(pod: Pod) -> None:
    began = time.monotonic()
    done = pod.launch("mpirun", "program", COMMAND_EXIT="3", MPIJOB_KEEP="1")
    assert done.returncode == 3
    assert time.monotonic() - began >= 1
    assert "the workers are kept for 1 s" in done.stderr


@pytest.mark.thorough
@pytest.mark.engine
def test_a_real_mpirun_is_counted_and_then_runs_the_command(pod: Pod, tmp_path: Path) -> None:
    host = os.uname().nodename
    pod.program("mpirun", f'#!/bin/sh\nexec {sys.prefix}/bin/mpiexec "$@"\n')
    Path(pod.env["MPIJOB_HOSTFILE"]).write_text(f"{host}:2\n")
    (pod.home / "rank.sh").write_text(pod_scripts.RANK)
    program = ("sh", "-c", 'echo "rank $MPIJOB_RANK: $1"', "sh", "a $(b) 'c")
    line = ("mpirun", "-f", pod.env["MPIJOB_HOSTFILE"], "-n", "2", "/bin/sh")
    done = pod.launch(*line, f"{pod.home}/rank.sh", *program, MPIJOB_WORLD="2", MPIJOB_USED="1")
    assert done.returncode == 0, done.stderr
    census, rest = re.split("mpijob-world ranks=2 gap=0 tag=.*\n", done.stdout)
    ready, *census_lines = census.splitlines()
    assert ready.split()[1:] == ["workers=1"], census
    assert sorted(line.split()[1] for line in census_lines) == ["rank=0", "rank=1"]
    ended = ["mpijob-exit rank=0 code=0", "mpijob-exit rank=1 code=0"]
    assert sorted(rest.splitlines()) == [*ended, "rank 0: a $(b) 'c", "rank 1: a $(b) 'c"]
