"""Secrets are not shown: by their name, by their value, by their shape."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.cli_support import Cli

from mpijob.errors import Finding, Fix
from mpijob.model import MPIJob, Program, Secret
from mpijob.observation.redaction import masking

SECRETS = (
    "API_TOKEN",
    "DB_PASSWORD",
    "AWS_SECRET_ACCESS_KEY",
    "wandbApiKey",
    "HF_TOKENS",
    "DB_PASS",
    "AUTH",
    "my-key",
)
FORMATS = ("table", "json", "yaml")
INNOCENT = ("LR", "MONKEY_COUNT", "KEYBOARD", "AUTHOR", "PASSES", "TOKENIZER", "PWD", "OMP_NUM_THREADS")


@pytest.mark.parametrize("name", SECRETS)
def test_a_name_that_says_secret_is_recognised(name: str) -> None:
    assert masking.looks_secret(name)


@pytest.mark.parametrize("name", INNOCENT)
def test_an_innocent_name_is_left_alone(name: str) -> None:
    assert not masking.looks_secret(name)


@pytest.mark.security
@pytest.mark.req("D-sanitize")
@pytest.mark.parametrize(
    "token",
    [
        "ghp_" + "a" * 36,
        "hf_" + "b" * 30,
        "AKIA" + "C" * 16,
        "eyJhbGciOiJI.eyJzdWIiOiIx.c2ln",
        "sha256~" + "d" * 40,
        "github_pat_" + "e" * 22,
        "glpat-" + "f" * 20,
        "sk-proj-" + "g" * 24,
        "AIza" + "h" * 35,
        "xoxb-123456789-abc",
    ],
)
def test_the_shape_of_a_well_known_token_is_enough(token: str) -> None:
    assert masking.masked_text(f"using {token} now") == "using *** now"


def test_a_bearer_header_keeps_its_first_word() -> None:
    assert masking.masked_text("Authorization: Bearer abcdef123456") == "Authorization: Bearer ***"


@pytest.mark.thorough
@pytest.mark.security
@given(st.text(min_size=masking.SHORTEST, max_size=40).filter(lambda value: "*" not in value))
def test_no_secret_value_survives_in_a_text(value: str) -> None:
    job = MPIJob(name="a", env={"API_TOKEN": value})
    assert value not in masking.masked_text(f"x{value}y{value}", masking.secret_values(job))


def test_a_short_value_does_not_blot_out_innocent_text() -> None:
    job = MPIJob(name="a", env={"USE_KEY": "1"})
    assert masking.masked_text("step 1 of 10", masking.secret_values(job)) == "step 1 of 10"


def test_arguments_after_a_telling_option_are_masked() -> None:
    shown = masking.masked_argv(("x", "--password", "p", "--token=t", "--lr", "0.1", "--api-key", "--flag"))
    assert shown == ("x", "--password", "***", "--token=***", "--lr", "0.1", "--api-key", "--flag")


@pytest.mark.security
def test_programs_and_named_secrets_are_masked_in_a_spec() -> None:
    job = MPIJob(
        name="a",
        env={"PLAIN": "resolved"},
        secrets=(Secret(env="PLAIN", source="env:X"),),
        programs=(Program(ranks=1, command=("p", "--token", "t"), env={"MY_KEY": "k"}),),
    )
    shown = masking.masked_job(job)
    assert (shown.env, shown.programs[0].env) == ({"PLAIN": "***"}, {"MY_KEY": "***"})
    assert shown.programs[0].command == ("p", "--token", "***")


ADDRESS = "postgresql://bob:c0nnpw-hidden@db/x"


@pytest.mark.security
@pytest.mark.req("D-sanitize")
@pytest.mark.parametrize(
    "words",
    [
        ("describe", "j"),
        ("describe", "j", "-o", "json"),
        ("export", "j"),
        ("export", "j", "-o", "json"),
        ("get", "j", "-o", "yaml"),
        ("compare", "j", "k"),
        *(
            ("plan", "p", "--workers", "2", "--env", f"CONN={ADDRESS}", "-o", form, "--", "true")
            for form in FORMATS
        ),
    ],
)
def test_a_password_in_an_address_is_shown_by_no_command(words: tuple[str, ...]) -> None:
    cli = Cli()
    cli.ok("create", "j", "--workers", "2", "--env", f"CONN={ADDRESS}", "--", "true", "--url", ADDRESS)
    cli.ok("create", "k", "--workers", "2", "--env", "CONN=none", "--", "true")
    result = cli(*words)
    assert result.exit_code == 0, result.stderr
    assert "c0nnpw" not in result.output
    assert words[0] == "get" or "***@db/x" in result.stdout


@pytest.mark.security
def test_variables_are_masked_by_name_and_by_what_is_in_them() -> None:
    token = "ghp_" + "a" * 36
    env = {
        "LR": "0.1",
        "CONN": ADDRESS,
        "CACHE": "redis://:c0nnpw-hidden@cache:6379",
        "HEADERS": token,
        "KEY": "k",
    }
    shown = {"LR": "0.1", "CONN": "postgresql://***@db/x", "CACHE": "redis://***@cache:6379", "HEADERS": "***",
             "KEY": "***"}  # fmt: skip
    assert masking.masked_env(env) == shown
    assert masking.masked_names(MPIJob(name="a", env=env)) == ("CACHE", "CONN", "HEADERS", "KEY")


@pytest.mark.security
def test_jobs_differ_in_a_secret_that_is_not_shown() -> None:
    cli = Cli()
    for name, value in (("one", "hunter2hunter2"), ("two", "hunter3hunter3")):
        cli.ok("create", name, "--workers", "2", "--env", f"API_TOKEN={value}", "--", "echo", value)
    shown = cli.ok("compare", "one", "two")
    assert "API_TOKEN" in shown
    assert "hunter" not in shown


@pytest.mark.security
@pytest.mark.req("D-sanitize")
@pytest.mark.parametrize(
    "words", [("describe", "j"), ("describe", "j", "-o", "json"), ("export", "j"), ("get", "j", "-o", "yaml")]
)
def test_a_secret_variable_is_shown_by_no_command(words: tuple[str, ...]) -> None:
    cli = Cli()
    cli(
        "run",
        "j",
        "--workers",
        "2",
        "--env",
        "API_TOKEN=hunter2hunter2",
        "--",
        "tool",
        "--password",
        "s3cret!",
    )
    result = cli(*words)
    assert result.exit_code == 0, result.stderr
    assert "hunter2" not in result.output
    assert "s3cret" not in result.output


@pytest.mark.security
@pytest.mark.req("D-sanitize")
@pytest.mark.parametrize("format", ["table", "json", "yaml"])
def test_a_plan_shows_no_secret(format: str) -> None:
    flags = ("--workers", "2", "--env", "API_TOKEN=hunter2hunter2", "-o", format)
    result = Cli()("plan", "j", *flags, "--", "echo", "hunter2hunter2")
    assert result.exit_code == 0, result.stderr
    assert "***" in result.stdout
    assert "API_TOKEN" in result.stdout
    assert "hunter2hunter2" not in result.stdout


@pytest.mark.security
@pytest.mark.req("D-sanitize")
def test_a_secret_printed_by_a_rank_is_masked_in_logs() -> None:
    cli = Cli()
    script = "echo the token is hunter2hunter2"
    result = cli("run", "j", "--workers", "2", "--env", "API_TOKEN=hunter2hunter2", "--", "sh", "-c", script)
    assert result.stdout.splitlines()[0] == "[Rank-0] the token is ***"
    assert "hunter2" not in cli.ok("logs", "j", "-o", "json")


def test_export_says_which_values_are_missing() -> None:
    cli = Cli()
    cli.ok("create", "j", "--workers", "2", "--env", "API_TOKEN=hunter2hunter2", "--", "true")
    result = cli("export", "j")
    assert "API_TOKEN" in result.stderr
    assert "--secret" in result.stderr


@pytest.mark.security
@pytest.mark.req("D-sanitize")
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("password=hunter2hunter2", "password=***"),
        ('{"api_key": "abcdef123456", "lr": 1}', '{"api_key": "***", "lr": 1}'),
        ("WANDB_API_KEY=0123456789abcdef done", "WANDB_API_KEY=*** done"),
        ("s3://minio:topsecret@host/bucket", "s3://***@host/bucket"),
        ("redis://:topsecret@host:6379/0", "redis://***@host:6379/0"),
        ("train --api-key=abcdef123456 --lr 1", "train --api-key=*** --lr 1"),
        ("https://host/path?x=1", "https://host/path?x=1"),
        ("tokens: 4096 in 3 s", "tokens: 4096 in 3 s"),
        ("the tokenizer has a secret", "the tokenizer has a secret"),
    ],
)
def test_what_is_assigned_to_a_secrets_name_is_masked(text: str, shown: str) -> None:
    assert masking.masked_text(text) == shown


@pytest.mark.security
def test_a_secret_is_masked_in_its_lines_in_a_url_and_in_base64() -> None:
    value = "first+line/x\nsecond line"
    values = masking.spellings([value])
    for said in (
        "a first+line/x b",
        "second line",
        "first%2Bline%2Fx%0Asecond%20line",
        "Zmlyc3QrbGluZS94CnNlY29uZCBsaW5l",
    ):
        assert masking.MASK in masking.masked_text(said, values)


@pytest.mark.security
@pytest.mark.parametrize(
    "said",
    [
        quote,
        lambda value: urlencode({"t": value})[2:],
        json.dumps,
        repr,
        lambda value: json.dumps(value, ensure_ascii=False),
    ],
)
@pytest.mark.parametrize("value", ['pa"ss\\word1é', "it's/a path", "both ' and \"", "one/line\ntwo lines"])
def test_a_secret_is_masked_as_programs_quote_it(value: str, said: Callable[[str], str]) -> None:
    shown = masking.masked_text(f"it is {said(value)}", masking.spellings([value]))
    assert shown.removeprefix("it is ") in ("***", "'***'", '"***"')


@pytest.mark.security
@pytest.mark.parametrize(
    "said",
    [
        lambda value: value.hex(),
        lambda value: value.hex().upper(),
        lambda value: base64.urlsafe_b64encode(value).decode(),
        lambda value: base64.urlsafe_b64encode(value).decode().rstrip("="),
        lambda value: base64.b64encode(value).decode().rstrip("="),
    ],
)
@pytest.mark.parametrize("value", ["~~~???>>>é", "hunter2-SECRET"])
def test_a_secret_is_masked_as_programs_spell_its_bytes(value: str, said: Callable[[bytes], str]) -> None:
    assert masking.masked_text(f"it is {said(value.encode())}", masking.spellings([value])) == "it is ***"


LONG = "".join(f"{number:03}" for number in range(24))


@pytest.mark.security
@pytest.mark.parametrize("ending", ["", "\n"])
@pytest.mark.parametrize("columns", [76, 64])
@pytest.mark.parametrize("value", [LONG, LONG * 3, f"{LONG}\n{LONG}é"])
def test_a_secret_is_masked_in_the_lines_of_base64(value: str, columns: int, ending: str) -> None:
    whole = base64.b64encode((value + ending).encode()).decode()
    lines = [whole[at : at + columns] for at in range(0, len(whole), columns)]
    shown = [masking.masked_text(line, masking.spellings([value])) for line in lines]
    assert shown == ["***" if len(line) >= masking.SHORTEST else line for line in lines]


@pytest.mark.security
def test_a_short_last_line_of_base64_does_not_blot_out_innocent_text() -> None:
    value = "x" * 58
    assert base64.encodebytes(value.encode()).splitlines()[-1] == b"eA=="
    assert min(map(len, masking.spellings([value]))) >= masking.SHORTEST
    assert masking.masked_text("eA==", masking.spellings([value])) == "eA=="


@pytest.mark.security
def test_a_line_of_a_secret_is_masked_however_it_is_indented() -> None:
    values = masking.spellings(['{\n  "key": "0123456789",\n  "x": 1\n}'])
    assert masking.masked_text('- "key": "0123456789",', values) == "- ***"


@pytest.mark.thorough
@pytest.mark.security
@given(st.text(max_size=60) | st.from_regex(masking._ASSIGNED) | st.from_regex(masking._SHAPES))
def test_most_lines_are_left_alone_by_one_look_and_none_escapes_it(text: str) -> None:
    shapes, assigned = masking._patterns()
    whole = assigned.sub("", shapes.sub("", text))
    assert whole == text or masking.masked_text(text) != text or masking.MASK in text


@pytest.mark.parametrize(
    ("patch", "kept"),
    [
        ({"command": ["gdb", "--args", "./a.out", "--token", "s3cr3tvalue"]}, False),
        ({"command": ["gdb", "--args", "./a.out", "--token=other-value"]}, False),
        ({"command": ["gdb", "--args", "./a.out", "key:s3cr3tvalue"]}, False),
        ({"command": ["gdb", "--args", "./a.out", "--epochs", "3"]}, True),
        ({"env": {"PYTHONFAULTHANDLER": "1"}}, True),
    ],
)
@pytest.mark.security
def test_a_fix_that_would_repeat_a_secret_keeps_its_words_alone(patch: dict[str, Any], kept: bool) -> None:
    finding = Finding("SEGFAULT", "crashed", fixes=(Fix("let gdb run it", patch),))
    (told,) = masking.masked_findings((finding,), ("s3cr3tvalue",))
    assert told.fixes == (Fix("let gdb run it", patch if kept else {}),)
