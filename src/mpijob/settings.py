"""Settings of the user or administrator, read once and passed on as a value.

Environment variables override the settings file (`$XDG_CONFIG_HOME/mpijob/settings.toml`), which overrides
the defaults here. No other module reads settings from `MPIJOB_*` variables, except `MPIJOB_DEBUG`
(`cli/exit_codes`), which must work if the settings cannot be read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal, get_args

import msgspec

from mpijob import codec, ownership
from mpijob.errors import InvalidJob, UnsafePath

AddressingStyle = Literal["auto", "path", "virtual"]


class QuotaSetting(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The hard limits of one namespace on the local engine."""

    cpu: float | None = None
    memory: str | None = None
    gpu: int | None = None
    jobs: int | None = None


class KeepSetting(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many days the record of a namespace's jobs is kept after their end."""

    logs_days: float = 7.0
    record_days: float = 30.0
    accounts_days: float = 400.0


class RateSetting(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an hour of a core, of a GiB of memory and of a GPU costs a namespace."""

    core_hour: float = 0.0
    gib_hour: float = 0.0
    gpu_hour: float = 0.0
    currency: str = ""


class ModuleSetting(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `module load NAME` of a script stands for here: variables, and on a cluster an image.

    A value may name other variables, as in `/opt/gromacs/bin:$PATH`.
    """

    env: dict[str, str] = {}
    image: str = ""


class BudgetSetting(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a namespace may cost in a month."""

    monthly: float = 0.0


class ObjectsSetting(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An object store that speaks S3: for the lines of a cluster's record, or a data connection of this machine.

    Without keys those are used that the AWS libraries find: variables, profiles, web identity, a machine's role.
    """

    endpoint: str = ""
    bucket: str = ""
    prefix: str = ""
    region: str = "us-east-1"
    access_key: str = ""
    secret_key_file: str = ""
    session_token_file: str = ""
    addressing_style: AddressingStyle = "auto"
    ca_file: str = ""


class OutboundSetting(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the page's server may connect on behalf of its visitors, and how much it takes from there.

    Public addresses are allowed, and what `allow` names: networks, addresses, names, also with a port.
    """

    allow: tuple[str, ...] = ()
    seconds: float = 60.0
    download_seconds: float = 3600.0
    download_bytes: str = "10Gi"
    listed_objects: int = 10_000


class CallbackSetting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A receiver of job changes: its address, the signature key file, phases and namespaces.

    `shape` is what the receiver takes: `json`, `slack`, `teams` or `mail`. `page` is the page's address, for links.
    Jobs ask for it by its `name` in their `notify`. To a mail server, `smtps://HOST` or `smtp://HOST`, mails go from
    `sender` to `to`, and to addresses of `domains` that jobs name; `user` logs in, with the password in `secret_file`.
    """

    url: str
    name: str = ""
    secret_file: str = ""
    phases: tuple[str, ...] = ("Succeeded", "Failed", "Cancelled")
    namespaces: tuple[str, ...] = ()
    shape: Literal["json", "slack", "teams", "mail"] = "json"
    sender: str = ""
    to: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    user: str = ""
    page: str = ""
    allow_private: bool = False

    @property
    def by_smtp(self) -> bool:
        return self.url.startswith(("smtp://", "smtps://"))

    def takes(self, to: str) -> bool:
        """Return whether this receives the changes of a job that has `to` in its `notify`: this one's name,
        or an address.
        """
        name, at, domain = to.rpartition("@")
        if not at:
            return bool(to) and to == self.name and (not self.by_smtp or bool(self.to))
        return self.by_smtp and bool(name) and domain.lower() in {allowed.lower() for allowed in self.domains}


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every setting with its default."""

    home: str = ""
    engine: str = ""
    namespace: str = "default"
    max_workers: int = 100
    quota_request_url: str = ""
    quotas: dict[str, QuotaSetting] = {}
    cores: float | None = None
    memory: str | None = None
    gpus: int | None = None
    oversubscribe: bool = True
    isolation: str = "auto"
    local_nodes: bool = False
    cgroups: str = "off"
    cgroup: str = ""
    mpi_directories: dict[str, str] = {}
    templates: str = ""
    rules: str = ""
    slurm_directory: str = ""
    kubeconfig: str = ""
    context: str = ""
    contexts: tuple[str, ...] = ()
    image: str = ""
    service_image: str = ""
    image_check: Literal["warn", "refuse", "off"] = "warn"
    registries: dict[str, str] = {}
    warn_after_seconds: float = 120.0
    metric_patterns: tuple[str, ...] = ()
    traces: str = ""
    prometheus: str = ""
    prometheus_token_file: str = ""
    loki: str = ""
    loki_token_file: str = ""
    mlflow: str = ""
    mlflow_token_file: str = ""
    wandb: str = "https://wandb.ai"
    history: str = ""
    history_bytes: str = "10Gi"
    history_database: str = ""
    keep: dict[str, KeepSetting] = {}
    audit: str = "on"
    broker: str = ""
    broker_ca: str = ""
    audit_days: float = 90.0
    trusted_proxies: tuple[str, ...] = ()
    connections_per_address: int = 256
    rates: dict[str, RateSetting] = {}
    budgets: dict[str, BudgetSetting] = {}
    modules: dict[str, ModuleSetting] = {}
    callbacks: tuple[CallbackSetting, ...] = ()
    objects: ObjectsSetting = ObjectsSetting()
    connections: dict[str, ObjectsSetting] = {}
    outbound: OutboundSetting = OutboundSetting()
    model_registry: str = ""
    model_registry_token_file: str = ""


LOCAL, CLUSTER, SLURM = "local", "kubernetes", "slurm"
# A job or a client with this namespace uses the default one of its engine.
UNSET_NAMESPACE = "default"
_TEXTS = ("home", "engine", "namespace", "isolation", "cgroups", "cgroup", "memory", "templates", "rules",
          "slurm_directory", "kubeconfig",
          "context", "image", "service_image", "image_check", "history", "history_bytes", "audit", "broker",
          "broker_ca", "model_registry", "model_registry_token_file", "mlflow", "mlflow_token_file", "wandb",
          "prometheus", "prometheus_token_file", "loki", "loki_token_file")  # fmt: skip
_NUMBERS = ("cores", "gpus", "max_workers", "warn_after_seconds", "audit_days", "connections_per_address")
_SWITCHES = ("local_nodes",)
# Comma-separated in a variable.
_LISTS = ("trusted_proxies", "contexts")
# Settings that an environment variable MPIJOB_NAME can set.
VARIABLES = frozenset((*_TEXTS, *_NUMBERS, *_SWITCHES, *_LISTS))


def at(settings: Settings, place: str) -> Settings:
    """Return the settings for a context: `local`, a Slurm cluster, or a context of the kubeconfig.

    A Slurm cluster is `slurm`, `slurm:PARTITION` or `slurm+ssh://HOST`. "" is the kubeconfig's current
    context, unless an engine was set.
    """
    if place == LOCAL:
        return msgspec.structs.replace(settings, engine=LOCAL)
    if is_slurm(place):
        return msgspec.structs.replace(settings, engine=place)
    if settings.engine and not place:
        return settings
    return msgspec.structs.replace(settings, engine=CLUSTER, context=place or settings.context)


def is_slurm(place: str) -> bool:
    """Return whether a context, or an engine, is a Slurm cluster."""
    return place == SLURM or place.startswith((f"{SLURM}:", f"{SLURM}+ssh://"))


def namespace_at(settings: Settings, usual: str) -> str:
    """Return the namespace of the settings, else `usual`, the default of the engine (a kubeconfig's, for
    example).
    """
    return usual or UNSET_NAMESPACE if settings.namespace == UNSET_NAMESPACE else settings.namespace


def own_places(settings: Settings) -> tuple[str, ...]:
    """Return the directories of mpijob itself, which are never uploaded with a job."""
    return tuple(place for place in (settings.home, settings.history) if place)


def history_directory(settings: Settings, place: str) -> str:
    """Return the directory of the job history of a context; `history` of the settings is for clusters only."""
    if settings.history and place != LOCAL:
        return settings.history
    name = "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in place).lstrip(".")
    return os.path.join(settings.home, "history", name or CLUSTER)


def load(environ: Mapping[str, str] | None = None) -> Settings:
    """Return the settings of this user; raise InvalidJob or UnsafePath if they cannot be used."""
    environ = os.environ if environ is None else environ
    path = config_path(environ)
    values = _from_file(path)
    for field in (*_TEXTS, *_NUMBERS, *_SWITCHES):
        if text := environ.get(f"MPIJOB_{field.upper()}"):
            values[field] = text
    for field in _LISTS:
        if text := environ.get(f"MPIJOB_{field.upper()}"):
            values[field] = [item.strip() for item in text.split(",") if item.strip()]
    values.setdefault("home", _default_home(environ))
    try:
        # Not strict: variables are strings, also for numbers and booleans.
        return codec.convert(values, Settings, strict=False)
    except msgspec.ValidationError as error:
        raise _refusal(error, path, environ) from error


def _refusal(error: msgspec.ValidationError, path: str, environ: Mapping[str, str]) -> InvalidJob:
    """Return the error for an invalid value, with the name of the variable that has it."""
    # Imported here because commands must start quickly, and this is needed for errors only.
    import re

    place = re.search(r"`\$\.(\w+)`$", str(error))
    variable = f"MPIJOB_{place[1].upper()}" if place else ""
    if not environ.get(variable):
        return InvalidJob(f"settings in {path} or MPIJOB_* variables: {error}")
    needed = _needed(variable.removeprefix("MPIJOB_").lower(), str(error))
    return InvalidJob(
        f"{variable} is {environ[variable]!r}; expected {needed}", hint="correct it, or unset it"
    )


def _needed(field: str, error: str) -> str:
    """Return what a setting must be: a number, or one of its choices."""
    if field in _NUMBERS:
        return "a whole number" if "`int" in error else "a number"
    if field in _SWITCHES:
        return "true or false"
    kinds = {known.name: known.type for known in msgspec.structs.fields(Settings)}
    return f"one of {', '.join(map(str, get_args(kinds[field])))}"


def config_path(environ: Mapping[str, str]) -> str:
    if path := environ.get("MPIJOB_SETTINGS"):
        return path
    base = environ.get("XDG_CONFIG_HOME") or os.path.join(_user_home(environ), ".config")
    return os.path.join(base, "mpijob", "settings.toml")


def _from_file(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            # Checked on the open file: a path could be replaced between check and read.
            if problem := ownership.of_file(os.fstat(file.fileno())):
                raise UnsafePath(
                    f"settings file {path} is not trusted: {problem}",
                    hint=f"settings name programs that are run: chown it to you, and chmod go-w {path}",
                )
            text = file.read()
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise InvalidJob(f"settings file {path}: {error.strerror}") from error
    # Imported here because commands must start quickly, and most users have no settings file.
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidJob(f"settings file {path}: {error}") from error


def _default_home(environ: Mapping[str, str]) -> str:
    base = environ.get("XDG_STATE_HOME") or os.path.join(_user_home(environ), ".local", "state")
    return os.path.join(base, "mpijob")


def _user_home(environ: Mapping[str, str]) -> str:
    return environ.get("HOME") or os.path.expanduser("~")
