"""The support bundle: everything is in it, nothing secret is, and it is bounded, plain and one's own."""

from __future__ import annotations

import os
import re
import tarfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.cli_support import Cli

from mpijob import Client, Job, MPIJob
from mpijob.backends.memory import MemoryBackend, Outcome, Script
from mpijob.client.observe import bundle
from mpijob.client.observe.bundle import LogParts
from mpijob.errors import Conflict
from mpijob.model import JobRef, LogLine, Role, Secret
from mpijob.observation.redaction.bundle import BundleRedactor

CANARY = "canary-3f9a1c"
TOKEN = "ghp_" + "a1B2" * 9
KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEcanarykeyline1\n-----END RSA PRIVATE KEY-----"
SAID = (
    f"using {CANARY}-env and {CANARY}-source",
    f"password={CANARY}-named api_key: '{CANARY}-quoted' token {CANARY}-spaced",
    f"https://user:{CANARY}-address@example.com/x {TOKEN}",
    "-----BEGIN RSA PRIVATE KEY-----",
    "MIIEcanarykeyline1",
    "-----END RSA PRIVATE KEY-----",
    "the end",
)


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Job:
    monkeypatch.setenv("THE_SOURCE", f"{CANARY}-source")
    client = Client(MemoryBackend(script=Script(default=Outcome(exit_code=3, lines=SAID))))
    spec = MPIJob(
        name="leaky",
        workers=2,
        command=("train", "--password", f"{CANARY}-arg", f"{CANARY}-env"),
        env={"API_TOKEN": f"{CANARY}-env", "LR": "0.1"},
        secrets=(Secret(env="WANDB", source="env:THE_SOURCE"),),
        description=f"auth {CANARY}-described",
    )
    handle = client.submit(spec)
    handle.wait(60)
    return handle


class WithSecrets(MemoryBackend):
    """An engine that has the secrets itself, as a cluster's Secret objects."""

    def secret_values(self, ref: JobRef, secrets: tuple[Secret, ...]) -> tuple[str, ...]:
        return (f"{CANARY}-object",)


@pytest.mark.thorough
@pytest.mark.security
@pytest.mark.req("D-sanitize")
def test_what_only_the_engine_knows_of_secrets_is_masked_too(tmp_path: Path) -> None:
    said = Script(default=Outcome(lines=(f"using {CANARY}-object",)))
    client = Client(WithSecrets(script=said))
    secrets = (Secret(env="WANDB", source="planted/key"),)
    job = client.run(MPIJob(name="leaky", workers=1, command=("train",), secrets=secrets))
    made = job.bundle(tmp_path / "b.tar.gz")
    found = contents(Path(made.path))
    assert {name for name, text in found.items() if CANARY.encode() in text} == set()
    assert any(b"using ***" in text for text in found.values())


def contents(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as packed:
        found = {}
        for member in packed.getmembers():
            file = packed.extractfile(member)
            assert file is not None
            found[member.name.partition("/")[2]] = file.read()
        return found


@pytest.mark.thorough
@pytest.mark.security
def test_no_file_of_a_bundle_holds_a_secret(job: Job, tmp_path: Path) -> None:
    files = contents(Path(job.bundle(tmp_path / "b.tar.gz").path))
    assert {name for name, data in files.items() if b"canary" in data or TOKEN.encode() in data} == set()
    assert b"the end" in files["logs/rank-0.log"]
    assert b'"LR": "0.1"' in files["plan.json"].replace(b'"LR":"0.1"', b'"LR": "0.1"')


@pytest.mark.thorough
def test_everything_known_is_in_it_and_it_says_what_is(job: Job, tmp_path: Path) -> None:
    made = job.bundle(tmp_path / "b.tar.gz")
    files = contents(Path(made.path))
    expected = ["MANIFEST.json", "README.txt", "census.json", "doctor.json", "events.jsonl", "findings.json",
                "logs/rank-0.log", "logs/rank-1.log", "plan.json", "samples.jsonl", "spec.yaml", "state.json",
                "versions.json", "warnings.json"]  # fmt: skip
    assert [entry.name for entry in made.files] == sorted(files) == expected
    listing = msgspec.json.decode(files["MANIFEST.json"])
    assert {entry["name"] for entry in listing} == set(files) - {"MANIFEST.json", "README.txt"}
    assert all(len(files[entry["name"]]) == entry["size"] for entry in listing)
    assert b"worker 0 failed" in files["findings.json"]
    assert all(name.encode() in files["README.txt"] for name in ("spec.yaml", "logs/rank-0.log"))


@pytest.mark.thorough
@pytest.mark.security
def test_only_its_owner_may_read_it_and_nothing_is_written_over(job: Job, tmp_path: Path) -> None:
    path = tmp_path / "b.tar.gz"
    before = os.umask(0)
    try:
        job.bundle(path)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(Conflict, match="exists already"):
        job.bundle(path)
    trap = tmp_path / "link.tar.gz"
    trap.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Conflict):
        job.bundle(trap)
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.thorough
def test_the_same_job_gives_the_same_listing_with_the_jobs_own_date(job: Job, tmp_path: Path) -> None:
    def listing(path: Path) -> list[tuple[str, float, int, str]]:
        with tarfile.open(path) as packed:
            return [(one.name, one.mtime, one.mode, one.uname) for one in packed.getmembers()]

    job.bundle(tmp_path / "one.tar.gz")
    job.bundle(tmp_path / "two.tar.gz")
    assert listing(tmp_path / "one.tar.gz") == listing(tmp_path / "two.tar.gz")
    assert {entry[1:] for entry in listing(tmp_path / "one.tar.gz")} == {
        (int(job.state().created), 0o600, "")
    }


def a_line(rank: int, number: int) -> LogLine:
    return LogLine(number * 1_000_000_000, b"line %06d" % number, Role.RANK, rank=rank)


def test_long_logs_keep_their_beginning_and_their_end_within_the_bound() -> None:
    parts = LogParts(20_000, BundleRedactor())
    for number in range(5000):
        parts.add(a_line(number % 2, number))
    files = dict(parts.files())
    assert sum(map(len, files.values())) <= 20_200
    assert "line 000000\n" in files["logs/rank-0.log"]
    assert files["logs/rank-1.log"].endswith("line 004999\n")
    (gap,) = re.findall(r"… (\d+) lines are left out here", files["logs/rank-0.log"])
    assert int(gap) + files["logs/rank-0.log"].count("\n") - 1 == 2500


@pytest.mark.security
@pytest.mark.parametrize("before", range(16_384 - 24, 16_384))
def test_a_secret_where_a_long_line_is_cut_is_hidden_too(before: int) -> None:
    seal = BundleRedactor(("S3cr3tValue-0123456789",))
    parts = LogParts(1 << 20, seal)
    parts.add(LogLine(0, b"x" * before + b" S3cr3tValue-0123456789 tail", Role.RANK, rank=0))
    ((_, text),) = parts.files()
    assert "S3c" not in seal.text(text)


@pytest.mark.security
@pytest.mark.parametrize("end", [b"", b" MIIB -----END PRIVATE KEY-----"])
def test_a_private_key_that_begins_in_a_line_that_is_cut_is_hidden_to_its_end(end: bytes) -> None:
    seal = BundleRedactor()
    parts = LogParts(1 << 20, seal)
    rest = () if end else (b"MIIBVQ", b"-----END PRIVATE KEY-----")
    for line in (b"x" * 17_000 + b"-----BEGIN PRIVATE KEY-----" + end, *rest, b"innocent"):
        parts.add(LogLine(0, line, Role.RANK, rank=0))
    ((_, text),) = parts.files()
    sealed = seal.text(text)
    assert ("MIIB" in sealed, "innocent" in sealed) == (False, True)


@pytest.mark.thorough
def test_a_bundle_is_bounded_as_a_whole(tmp_path: Path) -> None:
    client = Client(MemoryBackend(script=Script(default=Outcome(lines=("x" * 900,) * 3000))))
    job = client.submit(MPIJob(name="loud", workers=4, command=("true",)))
    job.wait(60)
    made = client.bundle("loud", tmp_path / "b.tar.gz", most_bytes=1 << 20)
    assert sum(entry.size for entry in made.files) <= 1 << 20


@pytest.mark.security
@pytest.mark.parametrize("name", ["../../etc/passwd", "/abs", "a b\n", "..", ".hidden", "-rf", "naïve"])
def test_names_are_plain_whatever_a_job_is_called(name: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*", bundle.plain(name))


@pytest.mark.security
@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("password=hunter22", "password=***"),
        ('{"aws_secret_access_key": "abcd/efgh"}', '{"aws_secret_access_key": "***"}'),
        ("Authorization: Bearer abc.def.ghi", "Authorization: ***"),
        ("run --api-key s3cr3tvalue now", "run --api-key *** now"),
        ("postgres://me:pa55w0rd@db/x", "postgres://***@db/x"),
        ("the token has expired", "the token has expired"),
        ("token that was given", "token that was given"),
        ("12 tokens rejected", "12 tokens ***"),
        ("loss 0.1, step 3", "loss 0.1, step 3"),
    ],
)
def test_values_behind_suspicious_names_are_hidden(line: str, shown: str) -> None:
    assert BundleRedactor().line(line) == shown


@pytest.mark.thorough
@pytest.mark.security
@given(st.text(max_size=300), st.text(alphabet="abcdef0123456789", min_size=8, max_size=20))
def test_a_known_value_never_passes(text: str, value: str) -> None:
    assert value not in BundleRedactor((value,)).text(f"{text}{value}{text}")


@pytest.mark.thorough
@pytest.mark.security
def test_sealing_a_long_hostile_line_takes_no_time() -> None:
    assert BundleRedactor().line("token" * 40_000 + "=" * 40_000 + "a:" * 40_000)


@pytest.mark.thorough
def test_the_command_says_what_is_in_it_and_prints_where_it_is(tmp_path: Path) -> None:
    cli = Cli(home=str(tmp_path / "home"))
    cli.finished("hello")
    shown = cli("bundle", "hello", "-O", str(tmp_path / "b.tar.gz"))
    assert shown.stdout.strip() == str(tmp_path / "b.tar.gz")
    assert "logs/rank-0.log" in shown.stderr
    assert "secrets are masked" in shown.stderr
