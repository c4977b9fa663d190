"""Keep secrets out of what is shown: specs, plans, log lines.

A spec names its secrets by reference, but people also put tokens into plain variables and
arguments. Whatever looks like a secret by its name, or is the value of one, is shown as `***`.
Making control bytes visible is the business of the face that prints.
"""

from __future__ import annotations

import base64
import functools
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote, quote_plus

import msgspec

from mpijob.errors import Finding, Fix
from mpijob.model import MPIJob, Plan

MASK = "***"
SHORTEST = 6  # a shorter value ("1", "true") would blot out innocent text wherever it occurs
_COLUMNS = (76, 64)  # where `base64` and Python end a line of it, and where openssl does

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_SUSPECT = frozenset(
    (
        "token",
        "password",
        "passwd",
        "passphrase",
        "pass",
        "pwd",
        "secret",
        "key",
        "apikey",
        "credential",
        "auth",
    )
)
_OPTION = re.compile(r"(--?[A-Za-z][\w-]*)(=.*)?", re.DOTALL)
# The shapes that well-known services give their tokens; each pattern is linear in the text.
_SHAPES = (
    r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{20,}|hf_[A-Za-z0-9]{20,}"
    r"|sha256~[\w-]{20,}|A(?:KIA|SIA)[A-Z0-9]{16}|AIza[\w-]{35}|xox[abeoprs]-[\w-]{10,}"
    r"|sk-(?:[a-z]+-)?[A-Za-z0-9_-]{20,}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)"
    r"|(?<=[Bb]earer )[\w.~+/=-]{8,}|(?<=[Bb]asic )[A-Za-z0-9+/]{8,}={0,2}(?![\w-])"
    r"|(?<=://)[^\s/:@]{0,64}:[^\s/@]{1,256}(?=@)"
)
# `password=x`, `"api_key": "x"`, `--token x`: a name that says what its value is
_ASSIGNED = (
    r"""(?i)((?:\b|_)(?:password|passwd|passphrase|secret|token|api[_-]?key|access[_-]?key|credentials?)["']?\s?[=:]\s?)"""
    r"""(["']?)[^\s"',;&]{6,}\2"""
)
# One of these is in whatever the patterns can match. Most lines are done after this look, and looking for fixed words
# takes a fifth of the time of one pattern for all.
_HINTS = ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "hf_", "sha256~", "AKIA", "ASIA", "AIza",
          "xox", "sk-", "eyJ", "earer ", "asic ", "://")  # fmt: skip
_NAMES = ("passw", "passphrase", "secret", "token", "apikey", "api_key", "api-key", "accesskey", "access_key",
          "access-key", "credential")  # fmt: skip


def looks_secret(name: str) -> bool:
    """Return whether a variable's or option's name says that its value is a secret."""
    if name in ("PWD", "OLDPWD"):
        return False  # the shell's working directories
    words = {word.lower() for word in _WORDS.findall(name)}
    return any(word in _SUSPECT or word.removesuffix("s") in _SUSPECT for word in words)


def secret_values(job: MPIJob, told: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the values in a spec that must not be shown, and those of its secrets as told, the longest first."""
    envs = [job.env, *(program.env for program in job.programs)]
    values = {value for env in envs for name, value in env.items() if looks_secret(name)}
    return spellings({*values, *told})


def spellings(values: Iterable[str]) -> tuple[str, ...]:
    """Return the forms in which secret values are found in a line, the longest first.

    Each of its lines; the whole as it stands in a URL, in JSON, in Python's `repr`, in hexadecimal, in base64 of either
    alphabet, also in the lines of it.
    """
    found: set[str] = set()
    for value in values:
        found.update(line.strip() for line in value.splitlines())
        if len(value) >= SHORTEST:
            found |= {value, *_in_url(value), *_quoted(value), *_in_hexadecimal(value), *_in_base64(value)}
    return tuple(sorted((one for one in found if len(one) >= SHORTEST), key=len, reverse=True))


def _in_url(value: str) -> set[str]:
    forms = {quote_plus(value, errors="replace")}  # a query's spaces are `+`
    return forms | {quote(value, safe=safe, errors="replace") for safe in ("", "/")}


def _quoted(value: str) -> set[str]:
    import json  # most jobs have no secrets: start-up is a feature

    return {said[1:-1] for said in (json.dumps(value), json.dumps(value, ensure_ascii=False), repr(value))}


def _in_hexadecimal(value: str) -> set[str]:
    digits = value.encode(errors="replace").hex()
    return {digits, digits.upper()}


def _in_base64(value: str) -> set[str]:
    """Return a value in base64, whole, without its padding and in lines; `echo` gives a newline along."""
    texts = [one.encode(errors="replace") for one in (value, value + "\n")]
    padded = [spelt(one).decode() for one in texts for spelt in (base64.b64encode, base64.urlsafe_b64encode)]
    wholes = {*padded, *(one.rstrip("=") for one in padded)}
    lines = (one[at : at + wide] for one in wholes for wide in _COLUMNS for at in range(0, len(one), wide))
    return {*wholes, *lines}


def masked_env(env: Mapping[str, str], secret_names: Iterable[str] = ()) -> dict[str, str]:
    """Return the variables with the secret ones masked: by their names, or what in them looks like a secret."""
    named = frozenset(secret_names)
    return {
        name: MASK if name in named or looks_secret(name) else masked_text(value)
        for name, value in env.items()
    }


def masked_argv(argv: Iterable[str]) -> tuple[str, ...]:
    """Return a command whose `--password x` and `--token=x` arguments are masked."""
    shown: list[str] = []
    hide_next = False
    for word in argv:
        option = _OPTION.fullmatch(word)
        suspect = option is not None and looks_secret(option[1])
        if hide_next and option is None:
            word = MASK
        elif suspect and option is not None and option[2]:
            word = f"{option[1]}={MASK}"
        hide_next = suspect and option is not None and not option[2]
        shown.append(word)
    return tuple(shown)


def masked_text(text: str, values: Iterable[str] = ()) -> str:
    """Return a text without the given values and without anything shaped like a well-known token."""
    for value in values:
        if value in text and len(value) >= SHORTEST:  # hardly any is
            text = text.replace(value, MASK)
    if not _hinted(text):
        return text
    shapes, assigned = _patterns()
    return assigned.sub(lambda found: f"{found[1]}{found[2]}{MASK}{found[2]}", shapes.sub(MASK, text))


def _hinted(text: str) -> bool:
    lowered = text.casefold()  # as (?i) does: "\u017fecret" is a name too
    for hints, where in (
        (_HINTS, text),
        (_NAMES, lowered),
    ):  # for each line that is shown: `any` takes half more time
        for hint in hints:
            if hint in where:
                return True
    return False


@functools.cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return the patterns, compiled when the first text is shown: start-up is a feature."""
    return re.compile(_SHAPES), re.compile(_ASSIGNED)


def masked_findings(findings: Iterable[Finding], values: tuple[str, ...]) -> tuple[Finding, ...]:
    """Return findings as they may be kept and shown: what they quote of a log hides what the log would hide."""
    return tuple(
        msgspec.structs.replace(
            one,
            message=masked_text(one.message, values),
            evidence=tuple(masked_text(line, values) for line in one.evidence),
            fixes=tuple(_safe_fix(fix, values) for fix in one.fixes),
        )
        for one in findings
    )


def _safe_fix(fix: Fix, values: tuple[str, ...]) -> Fix:
    """Return a fix without its patch where that repeats a secret: masked it would mend nothing, and run `***`."""
    command = [*fix.patch.get("command", ())]
    safe = masked_tree(fix.patch, values) == fix.patch and [*masked_argv(command)] == command
    return fix if safe else msgspec.structs.replace(fix, patch={})


def masked_job(job: MPIJob) -> MPIJob:
    """Return the spec as it may be shown: a secret's value is masked wherever the command repeats it."""
    names = tuple(secret.env for secret in job.secrets)
    values = secret_values(job)
    programs = tuple(
        program.replace(
            command=_safe_argv(program.command, values),
            args=_safe_argv(program.args, values),
            env=masked_env(program.env, names),
        )
        for program in job.programs
    )
    return job.replace(
        env=masked_env(job.env, names),
        command=_safe_argv(job.command, values),
        args=_safe_argv(job.args, values),
        programs=programs,
    )


def _safe_argv(argv: Iterable[str], values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(masked_text(word, values) for word in masked_argv(argv))


def masked_plan(plan: Plan) -> Plan:
    """Return the plan as it may be shown: spec, environment, launch line and documents."""
    values = (*secret_values(plan.job), *_resolved(plan))
    return msgspec.structs.replace(
        plan,
        job=masked_job(plan.job),
        env=masked_env(plan.env, (secret.env for secret in plan.job.secrets)),
        launch=_safe_argv(plan.launch, values),
        documents=tuple(masked_tree(document, values) for document in plan.documents),
    )


def masked_tree(tree: Any, values: tuple[str, ...]) -> Any:
    """Return a document of dicts, lists and texts with every secret value masked."""
    if isinstance(tree, Mapping):
        return {key: masked_tree(value, values) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [masked_tree(value, values) for value in tree]
    return masked_text(tree, values) if isinstance(tree, str) else tree


def masked_names(job: MPIJob) -> tuple[str, ...]:
    """Return the variables of a spec whose values are masked when it is shown, wholly or in part."""
    return tuple(sorted(name for name, value in masked_env(job.env).items() if value != job.env[name]))


def _resolved(plan: Plan) -> tuple[str, ...]:
    names = {secret.env for secret in plan.job.secrets}
    return tuple(value for name, value in plan.env.items() if name in names or looks_secret(name))
