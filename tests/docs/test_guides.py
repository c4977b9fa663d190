"""The guides: the SDK page is one program that runs as it says, the local engine's commands work."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests import pages
from tests.docs.blocks import Command, Script, matches, steps
from tests.docs.readers import a_reader, an_environment
from tests.integration.buckets_support import s3_server, variables
from tests.integration.conftest import mpi_directories as mpi_directories
from tests.integration.models_support import a_registry

from mpijob import settings
from mpijob.backends.local.supervisor import fault_injection

SDK = pages.read("python")
LOGS = pages.read("logs")
LOCAL = pages.read("local-engine")

AUDIT = pages.read("audit")
HISTORY = pages.read("history")

CALLBACKS = pages.read("callbacks")
DATA = pages.read("data")
NETWORK = pages.read("links")
PIPELINES = pages.read("pipelines")
ACCOUNTS = pages.read("accounting")


@pytest.mark.engine
@pytest.mark.req("C-history", "C-cost", "C-docs")
def test_the_commands_of_the_accounts_page_work(tmp_path: Path) -> None:
    wrong = a_reader(tmp_path).follow(ACCOUNTS)
    assert wrong == [], "\n".join(wrong)
    assert sum(isinstance(step, Command) for step in steps(ACCOUNTS)) >= 7


@pytest.mark.engine
@pytest.mark.req("C-cron", "PMV-004", "C-docs")
def test_the_page_about_recurring_jobs_and_chains_does_what_it_says(tmp_path: Path) -> None:
    wrong = a_reader(tmp_path).follow(PIPELINES)
    assert wrong == [], "\n".join(wrong)


@pytest.mark.engine
@pytest.mark.req("D-storage", "Q16", "C-docs")
def test_the_page_about_data_and_models_does_what_it_says(tmp_path: Path) -> None:
    reader = a_reader(tmp_path)
    with s3_server() as connection, a_registry() as registry:
        reader.environ = {
            **reader.environ,
            **variables(connection),
            "MPIJOB_MODEL_REGISTRY": registry.address,
        }
        wrong = reader.follow(DATA)
    assert wrong == [], "\n".join(wrong)
    assert [len(kept) for kept in registry.kept.values()] == [1, 1, 1]


def test_the_settings_of_the_data_page_are_settings(tmp_path: Path) -> None:
    (text,) = re.findall(r"^```toml\n(.*?)^```$", DATA, re.MULTILINE | re.DOTALL)
    (tmp_path / "settings.toml").write_text(text)
    found = settings.load({"MPIJOB_SETTINGS": str(tmp_path / "settings.toml")})
    assert found.connections["lake"].bucket == "training"


@pytest.mark.engine
@pytest.mark.req("PMV-012", "C-docs")
def test_the_page_about_the_network_does_what_it_says(
    tmp_path: Path, mpi_directories: dict[str, str]
) -> None:
    reader = a_reader(tmp_path)
    directories = "\n".join(f'{family} = "{place}"' for family, place in mpi_directories.items())
    (tmp_path / "settings.toml").write_text(f"[mpi_directories]\n{directories}\n")
    reader.environ = {**reader.environ, "MPIJOB_SETTINGS": str(tmp_path / "settings.toml")}
    wrong = reader.follow(NETWORK)
    assert wrong == [], "\n".join(wrong)


def test_the_settings_of_the_callbacks_page_are_settings(tmp_path: Path) -> None:
    (text,) = re.findall(r"^```toml\n(.*?)^```$", CALLBACKS, re.MULTILINE | re.DOTALL)
    (tmp_path / "settings.toml").write_text(text)
    found = settings.load({"MPIJOB_SETTINGS": str(tmp_path / "settings.toml")})
    assert [one.shape for one in found.callbacks] == ["json", "teams", "json"]


def test_the_settings_of_the_accounts_page_are_settings(tmp_path: Path) -> None:
    (text,) = re.findall(r"^```toml\n(.*?)^```$", ACCOUNTS, re.MULTILINE | re.DOTALL)
    (tmp_path / "settings.toml").write_text(text)
    found = settings.load({"MPIJOB_SETTINGS": str(tmp_path / "settings.toml")})
    assert (found.rates["*"].gpu_hour, found.budgets["team-cv"].monthly) == (2.5, 1000)


@pytest.mark.engine
@pytest.mark.req("FR-SDK-005", "FR-032")
def test_the_sdk_guide_runs_and_prints_what_it_says(tmp_path: Path) -> None:
    text = "\n".join(step.text for step in steps(SDK) if isinstance(step, Script))
    program = tmp_path / "guide.py"
    program.write_text(text)
    argv, environ = [sys.executable, str(program)], an_environment(tmp_path)
    done = subprocess.run(argv, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    expected = tuple(re.findall(r"print\(.*\)  # → (.*)$", text, re.MULTILINE))
    assert len(expected) >= 10
    assert matches(expected, done.stdout), done.stdout


@pytest.mark.engine
@pytest.mark.req("C-docs")
def test_the_commands_of_the_local_engine_page_work(tmp_path: Path) -> None:
    wrong = a_reader(tmp_path).follow(LOCAL)
    assert wrong == [], "\n".join(wrong)
    assert sum(isinstance(step, Command) for step in steps(LOCAL)) >= 3


@pytest.mark.engine
@pytest.mark.req("C-history", "C-docs")
def test_the_commands_of_the_history_page_work(tmp_path: Path) -> None:
    wrong = a_reader(tmp_path).follow(HISTORY)
    assert wrong == [], "\n".join(wrong)
    assert sum(isinstance(step, Command) for step in steps(HISTORY)) >= 6


@pytest.mark.engine
@pytest.mark.req("FR-026", "Q20", "C-docs")
def test_the_commands_of_the_audit_page_work(tmp_path: Path) -> None:
    wrong = a_reader(tmp_path).follow(AUDIT)
    assert wrong == [], "\n".join(wrong)
    assert sum(isinstance(step, Command) for step in steps(AUDIT)) >= 5


def test_the_settings_of_the_audit_page_are_settings(tmp_path: Path) -> None:
    (text,) = re.findall(r"^```toml\n(.*?)^```$", AUDIT, re.MULTILINE | re.DOTALL)
    (tmp_path / "settings.toml").write_text(text)
    found = settings.load({"MPIJOB_SETTINGS": str(tmp_path / "settings.toml")})
    assert (found.audit, found.audit_days) == ("required", 365)


def test_the_settings_of_the_history_page_are_settings(tmp_path: Path) -> None:
    texts = re.findall(r"^```toml\n(.*?)^```$", HISTORY, re.MULTILINE | re.DOTALL)
    (tmp_path / "settings.toml").write_text("\n".join(texts))
    found = settings.load({"MPIJOB_SETTINGS": str(tmp_path / "settings.toml")})
    assert (found.history_bytes, found.keep["team-cv"].logs_days) == ("10Gi", 14)
    assert found.loki.endswith("/application")
    assert found.loki_token_file.endswith("/token")


@pytest.mark.engine
@pytest.mark.req("AC2", "FR-021", "C-docs")
def test_the_commands_of_the_logs_page_work(tmp_path: Path) -> None:
    wrong = a_reader(tmp_path).follow(LOGS)
    assert wrong == [], "\n".join(wrong)
    assert sum(isinstance(step, Command) for step in steps(LOGS)) >= 10


def test_the_settings_of_the_local_engine_page_are_settings(tmp_path: Path) -> None:
    (text,) = re.findall(r"^```toml\n(.*?)^```$", LOCAL, re.MULTILINE | re.DOTALL)
    (tmp_path / "settings.toml").write_text(text)
    found = settings.load({"MPIJOB_SETTINGS": str(tmp_path / "settings.toml"), "MPIJOB_CORES": "3"})
    assert (found.cores, found.memory, found.quotas["team-cv"].jobs) == (3, "24Gi", 2)


def test_the_page_names_every_fault_and_each_label_is_one() -> None:
    named = re.findall(r"^\| `(fault\.mpijob/[\w-]+)=([\w.]+)`", LOCAL, re.MULTILINE)
    kinds = {fault.kind for fault in fault_injection.parse(dict(named))}
    assert len(kinds) == len(named)
    told = re.findall(r"(kill-\w+|stop-\w+|refuse-\w+|drop-\w+|clock-\w+)", fault_injection.__doc__ or "")
    assert kinds == set(told)
