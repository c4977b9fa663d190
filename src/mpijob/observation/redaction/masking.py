"""Masks secrets in what is shown: specs, plans, log lines.

A spec names its secrets by reference, but users also put tokens into plain variables and arguments. What
looks like a secret by its name, or equals the value of one, is shown as `***`. `escape` makes control bytes
visible.
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
# A shorter value ("1", "true") would hide harmless text wherever it occurs.
SHORTEST = 6
# The line lengths of base64: `base64` and Python, openssl.
_COLUMNS = (76, 64)

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
# The forms of well-known services' tokens. Each pattern is linear in the text.
_SHAPES = (
    r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{20,}|hf_[A-Za-z0-9]{20,}"
    r"|sha256~[\w-]{20,}|A(?:KIA|SIA)[A-Z0-9]{16}|AIza[\w-]{35}|xox[abeoprs]-[\w-]{10,}"
    r"|sk-(?:[a-z]+-)?[A-Za-z0-9_-]{20,}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)"
    r"|(?<=[Bb]earer )[\w.~+/=-]{8,}|(?<=[Bb]asic )[A-Za-z0-9+/]{8,}={0,2}(?![\w-])"
    r"|(?<=://)[^\s/:@]{0,64}:[^\s/@]{1,256}(?=@)"
)
# `password=x`, `"api_key": "x"`: the name shows that the value is a secret.
_ASSIGNED = (
    r"""(?i)((?:\b|_)(?:password|passwd|passphrase|secret|token|api[_-]?key|access[_-]?key|credentials?)["']?\s?[=:]\s?)"""
    r"""(["']?)[^\s"',;&]{6,}\2"""
)
# Whatever the patterns match contains one of these. Most lines contain none, and a search for fixed words takes a fifth
# of the time of one pattern.
_HINTS = ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "hf_", "sha256~", "AKIA", "ASIA", "AIza",
          "xox", "sk-", "eyJ", "earer ", "asic ", "://")  # fmt: skip
_NAMES = ("passw", "passphrase", "secret", "token", "apikey", "api_key", "api-key", "accesskey", "access_key",
          "access-key", "credential")  # fmt: skip


def looks_secret(name: str) -> bool:
    """Return whether a variable's or option's name shows that its value is a secret."""
    if name in ("PWD", "OLDPWD"):
        # The shell's working directories.
        return False
    words = {word.lower() for word in _WORDS.findall(name)}
    return any(word in _SUSPECT or word.removesuffix("s") in _SUSPECT for word in words)


def secret_values(job: MPIJob, known: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the secret values in a spec and the given values of its secrets in all spellings, the longest first."""
    envs = [job.env, *(program.env for program in job.programs)]
    values = {value for env in envs for name, value in env.items() if looks_secret(name)}
    return spellings({*values, *known})


def spellings(values: Iterable[str]) -> tuple[str, ...]:
    """Return the forms in which secret values occur in a line, the longest first.

    Each line of a value; the whole value in a URL, in JSON, in Python's `repr`, in hexadecimal, and in base64
    of either alphabet, also wrapped.
    """
    found: set[str] = set()
    for value in values:
        found.update(line.strip() for line in value.splitlines())
        if len(value) >= SHORTEST:
            found |= {value, *_in_url(value), *_quoted(value), *_in_hexadecimal(value), *_in_base64(value)}
    return tuple(sorted((spelling for spelling in found if len(spelling) >= SHORTEST), key=len, reverse=True))


def _in_url(value: str) -> set[str]:
    # In a query, spaces are `+`.
    forms = {quote_plus(value, errors="replace")}
    return forms | {quote(value, safe=safe, errors="replace") for safe in ("", "/")}


def _quoted(value: str) -> set[str]:
    # Imported late for a quick start: most jobs have no secrets.
    import json

    return {text[1:-1] for text in (json.dumps(value), json.dumps(value, ensure_ascii=False), repr(value))}


def _in_hexadecimal(value: str) -> set[str]:
    digits = value.encode(errors="replace").hex()
    return {digits, digits.upper()}


def _in_base64(value: str) -> set[str]:
    # Whole, without padding, and wrapped; `echo` appends a newline.
    texts = [text.encode(errors="replace") for text in (value, value + "\n")]
    padded = [
        encode(text).decode() for text in texts for encode in (base64.b64encode, base64.urlsafe_b64encode)
    ]
    encoded = {*padded, *(text.rstrip("=") for text in padded)}
    lines = (
        text[at : at + columns]
        for text in encoded
        for columns in _COLUMNS
        for at in range(0, len(text), columns)
    )
    return {*encoded, *lines}


def masked_env(env: Mapping[str, str], secret_names: Iterable[str] = ()) -> dict[str, str]:
    """Return the variables with secrets masked: by name, or by the form of the value."""
    named = frozenset(secret_names)
    return {
        name: MASK if name in named or looks_secret(name) else masked_text(value)
        for name, value in env.items()
    }


def masked_argv(argv: Iterable[str]) -> tuple[str, ...]:
    """Return a command with the values of `--password x` and `--token=x` masked."""
    shown: list[str] = []
    hide_next = False
    for word in argv:
        option = _OPTION.fullmatch(word)
        is_secret = option is not None and looks_secret(option[1])
        if hide_next and option is None:
            word = MASK
        elif is_secret and option is not None and option[2]:
            word = f"{option[1]}={MASK}"
        hide_next = is_secret and option is not None and not option[2]
        shown.append(word)
    return tuple(shown)


def masked_text(text: str, values: Iterable[str] = ()) -> str:
    """Return a text without the given values and without tokens of well-known forms."""
    for value in values:
        # Checked first, because hardly any value occurs.
        if value in text and len(value) >= SHORTEST:
            text = text.replace(value, MASK)
    if not _has_hint(text):
        return text
    shapes, assigned = _patterns()
    return assigned.sub(lambda found: f"{found[1]}{found[2]}{MASK}{found[2]}", shapes.sub(MASK, text))


def _has_hint(text: str) -> bool:
    # As (?i) does: "\u017fecret" is a name too.
    lowered = text.casefold()
    # Runs for each line that is shown; `any` takes 50 % longer.
    for hints, where in ((_HINTS, text), (_NAMES, lowered)):
        for hint in hints:
            if hint in where:
                return True
    return False


@functools.cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    # Compiled when the first text is shown, for a quick start.
    return re.compile(_SHAPES), re.compile(_ASSIGNED)


def masked_findings(findings: Iterable[Finding], values: tuple[str, ...]) -> tuple[Finding, ...]:
    """Return findings with secrets masked, for storing and showing: they quote logs."""
    return tuple(
        msgspec.structs.replace(
            finding,
            message=masked_text(finding.message, values),
            evidence=tuple(masked_text(line, values) for line in finding.evidence),
            fixes=tuple(_safe_fix(fix, values) for fix in finding.fixes),
        )
        for finding in findings
    )


def _safe_fix(fix: Fix, values: tuple[str, ...]) -> Fix:
    # A patch that repeats a secret is removed: masked, it would fix nothing and run `***`.
    command = [*fix.patch.get("command", ())]
    safe = masked_tree(fix.patch, values) == fix.patch and [*masked_argv(command)] == command
    return fix if safe else msgspec.structs.replace(fix, patch={})


def masked_job(job: MPIJob) -> MPIJob:
    """Return the spec with secrets masked, also where its commands repeat them."""
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
    """Return the plan with secrets masked: spec, environment, launch command and documents."""
    values = (*secret_values(plan.job), *_resolved(plan))
    return msgspec.structs.replace(
        plan,
        job=masked_job(plan.job),
        env=masked_env(plan.env, (secret.env for secret in plan.job.secrets)),
        launch=_safe_argv(plan.launch, values),
        documents=tuple(masked_tree(document, values) for document in plan.documents),
    )


def masked_tree(tree: Any, values: tuple[str, ...]) -> Any:
    """Return a document of dicts, lists and strings with the secret values masked."""
    if isinstance(tree, Mapping):
        return {key: masked_tree(value, values) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [masked_tree(value, values) for value in tree]
    return masked_text(tree, values) if isinstance(tree, str) else tree


def masked_names(job: MPIJob) -> tuple[str, ...]:
    """Return the variables of a spec whose values are masked in full or in part when it is shown."""
    return tuple(sorted(name for name, value in masked_env(job.env).items() if value != job.env[name]))


def _resolved(plan: Plan) -> tuple[str, ...]:
    names = {secret.env for secret in plan.job.secrets}
    return tuple(value for name, value in plan.env.items() if name in names or looks_secret(name))
