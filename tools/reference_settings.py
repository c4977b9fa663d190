"""The settings reference, written from the settings model: every setting, its type, default and variable.

The sentences are here, one for each field; a field without one is an error, so the page cannot fall behind.
`tools.reference` writes the page with the others.
"""

from __future__ import annotations

from typing import Any, get_args

import msgspec

from mpijob import settings
from mpijob.settings import Settings

_GROUPS: dict[str, dict[str, str]] = {
    "General": {
        "home": "Directory for state of local jobs. Default: `~/.local/state/mpijob`.",
        "engine": "Default engine: `local`, `kubernetes`, `slurm`, `slurm:PARTITION` or `slurm+ssh://HOST`.",
        "namespace": "Default namespace.",
        "contexts": "Contexts that `mpijob list --all-contexts` and the web UI include.",
        "context": "kubeconfig context. Default: the current context.",
        "kubeconfig": "Path of the kubeconfig. Default: `KUBECONFIG`, then `~/.kube/config`.",
        "templates": "Directory of shared job templates.",
        "rules": "File with the diagnosis rules of your site.",
        "metric_patterns": "Regular expressions with named groups that find training metrics in logs.",
        "warn_after_seconds": "Seconds without output or CPU time before a job is reported as hanging.",
    },
    "This machine": {
        "cores": "Number of CPU cores for jobs. Default: all.",
        "memory": "Memory for jobs, such as `64Gi`. Default: all.",
        "gpus": "Number of GPUs for jobs. Default: all.",
        "oversubscribe": "Whether jobs may request more cores than the machine has.",
        "max_workers": "Maximum number of workers of a job.",
        "isolation": "Isolation of workers: `auto`, `namespaces` or `process-groups`.",
        "local_nodes": "Whether each worker is a separate node to MPI.",
        "cgroups": "cgroups for workers: `auto`, `on` or `off`.",
        "cgroup": "The cgroup v2 directory that your administrator delegated to you.",
        "mpi_directories": "Installation prefix of each MPI family.",
        "modules": "What `module load NAME` of a script sets: variables, and an image on a cluster.",
        "quotas": "Quota of each namespace.",
        "quota_request_url": "URL that quota errors link to.",
    },
    "Slurm": {
        "slurm_directory": "Directory for jobs on a file system that login nodes and compute nodes share.",
    },
    "Images": {
        "image": "Default container image on a cluster.",
        "service_image": "Image of the mpijob services, for sidecars and schedules.",
        "image_check": "What to do if the registry has no such image: `warn`, `refuse`, or `off` to skip the check.",
        "registries": "Registry mirrors to ask instead of a registry, or `off`.",
    },
    "History, accounting and audit": {
        "history": "Directory of the job history of clusters.",
        "history_bytes": "Maximum size of the history.",
        "history_database": "PostgreSQL connection string of the history. Default: SQLite in the history directory.",
        "objects": "Object store (S3) for the logs of the history.",
        "keep": "Retention in days of each namespace; `*` for all others.",
        "rates": "Prices of each namespace, for accounting.",
        "budgets": "Monthly budget of each namespace.",
        "audit": "Audit log: `on`, `off`, or `required` to refuse actions that cannot be logged.",
        "audit_days": "Retention of the audit log in days, at least 90.",
    },
    "Other services": {
        "broker": "URL of the fit broker.",
        "broker_ca": "CA certificate of the fit broker.",
        "prometheus": "URL of the cluster's Prometheus.",
        "prometheus_token_file": "File with the bearer token of Prometheus.",
        "loki": "URL of Loki, for logs of deleted pods.",
        "loki_token_file": "File with the bearer token of Loki.",
        "mlflow": "URL of the MLflow server.",
        "mlflow_token_file": "File with the bearer token of MLflow.",
        "wandb": "URL of the Weights & Biases server, for links.",
        "traces": "URL of an OTLP collector for traces of finished jobs.",
        "model_registry": "URL of the Kubeflow model registry.",
        "model_registry_token_file": "File with the bearer token of the model registry.",
        "callbacks": "Receivers of the notifier ([callbacks](../how-to/users/callbacks.md)).",
        "connections": "Data connections: object stores (S3) by name.",
    },
    "Web UI server": {
        "connections_per_address": "Maximum number of connections per client address; 0 for no limit.",
        "trusted_proxies": "Networks whose `X-Forwarded-For` header is trusted.",
        "outbound": "Limits of connections that the server opens for users.",
    },
}
_PARTS: dict[str, tuple[type[msgspec.Struct], dict[str, str]]] = {
    "[quotas.NAMESPACE]": (
        settings.QuotaSetting,
        {"cpu": "CPU cores.", "memory": "Memory.", "gpu": "GPUs.", "jobs": "Number of unfinished jobs."},
    ),
    "[keep.NAMESPACE]": (
        settings.KeepSetting,
        {
            "logs_days": "Days to keep logs.",
            "record_days": "Days to keep the record.",
            "accounts_days": "Days to keep accounting data.",
        },
    ),
    "[rates.NAMESPACE]": (
        settings.RateSetting,
        {
            "core_hour": "Price of a core hour.",
            "gib_hour": "Price of a GiB hour of memory.",
            "gpu_hour": "Price of a GPU hour.",
            "currency": "Currency code, such as `EUR`.",
        },
    ),
    "[budgets.NAMESPACE]": (settings.BudgetSetting, {"monthly": "Monthly budget."}),
    "[modules.NAME]": (
        settings.ModuleSetting,
        {"env": "Environment variables; values may use others, as in `$PATH`.", "image": "Container image."},
    ),
    "[objects] and [connections.NAME]": (
        settings.ObjectsSetting,
        {
            "endpoint": "URL of the object store. Default: AWS.",
            "bucket": "Bucket.",
            "prefix": "Prefix of all keys.",
            "region": "Region.",
            "access_key": "Access key. Default: the credential chain of the AWS libraries.",
            "secret_key_file": "File with the secret key.",
            "session_token_file": "File with the session token.",
            "addressing_style": "Addressing style: `auto`, `path` or `virtual`.",
            "ca_file": "CA certificate of the object store.",
        },
    ),
    "[[callbacks]]": (
        settings.CallbackSetting,
        {
            "url": "URL to call, or `smtps://HOST`, `smtp://HOST`.",
            "name": "Name that jobs use in `notify`.",
            "secret_file": "File with the signature key, or the SMTP password.",
            "phases": "Phases to report.",
            "namespaces": "Namespaces to report. Default: all.",
            "shape": "Format: `json`, `slack`, `teams` or `mail`.",
            "sender": "Sender of mails.",
            "to": "Receivers of mails.",
            "domains": "Mail domains that jobs may use in `notify`.",
            "user": "User name of the SMTP server.",
            "page": "URL of the web UI, for links.",
            "allow_private": "Whether private addresses, plain HTTP and SMTP without STARTTLS are allowed.",
        },
    ),
    "[outbound]": (
        settings.OutboundSetting,
        {
            "allow": "Networks, addresses and host names to allow besides public addresses.",
            "seconds": "Time limit of a request in seconds.",
            "download_seconds": "Time limit of a download in seconds.",
            "download_bytes": "Maximum size of a download.",
            "listed_objects": "Maximum number of listed objects.",
        },
    ),
}
_COMMAND_VARIABLES = {
    "MPIJOB_SETTINGS": "Path of the settings file.",
    "MPIJOB_DEBUG": "Print tracebacks of errors if set.",
    "NO_COLOR": "Disable colors if set.",
    "HTTPS_PROXY`, `HTTP_PROXY`, `NO_PROXY": "Proxies of outgoing connections.",
    "KUBECONFIG": "Path of the kubeconfig.",
}


def intro() -> str:
    """Return the lead of the page."""
    return (
        "mpijob reads settings from `~/.config/mpijob/settings.toml` (`$XDG_CONFIG_HOME/mpijob/settings.toml`, or the "
        "file in `MPIJOB_SETTINGS`). The file must belong to you, and others must not be able to write it. "
        "An environment variable overrides the file; a command-line option such as `--context` overrides both. "
        "Unknown settings are errors."
    )


def body() -> str:
    """Return the tables of settings and of environment variables."""
    fields = {field.name: field for field in msgspec.structs.fields(Settings)}
    parts = ['```toml\nengine = "kubernetes"\nnamespace = "team-cv"\nimage = "quay.io/team/train:1"\n```\n\n']
    head = "| setting | type | default | variable | description |\n| --- | --- | --- | --- | --- |\n"
    for title, texts in _GROUPS.items():
        rows = "".join(_row(fields[name], text, _variable(name)) for name, text in texts.items())
        parts.append(f"## {title}\n\n{head}{rows}\n")
    for title, (kind, texts) in _PARTS.items():
        own = {field.name: field for field in msgspec.structs.fields(kind)}
        rows = "".join(_part_row(own[name], text) for name, text in texts.items())
        table = "| field | type | default | description |\n| --- | --- | --- | --- |\n"
        parts.append(f"## `{title}`\n\n{table}{rows}\n")
    return "".join([*parts, _variables()])


def described() -> dict[type[msgspec.Struct], set[str]]:
    """Return which fields of each settings type have a sentence."""
    own = {name for texts in _GROUPS.values() for name in texts}
    return {Settings: own, **{kind: set(texts) for kind, texts in _PARTS.values()}}


def _row(field: msgspec.structs.FieldInfo, text: str, variable: str) -> str:
    named = f"`{variable}`" if variable else ""
    return f"| `{field.name}` | {_type(field.type)} | {_default(field)} | {named} | {text} |\n"


def _part_row(field: msgspec.structs.FieldInfo, text: str) -> str:
    return f"| `{field.name}` | {_type(field.type)} | {_default(field)} | {text} |\n"


def _variable(name: str) -> str:
    return f"MPIJOB_{name.upper()}" if name in settings.VARIABLES else ""


def _type(kind: Any) -> str:
    """Return a type in the words of TOML."""
    simple = {str: "string", int: "integer", float: "number", bool: "boolean"}
    if kind in simple:
        return simple[kind]
    arguments = [one for one in get_args(kind) if one is not type(None)]
    if arguments and all(isinstance(one, str) for one in arguments):
        return "string"
    if len(arguments) == 1 and type(None) in get_args(kind):
        return _type(arguments[0])
    return "array" if str(kind).startswith("tuple") else "table"


def _default(field: msgspec.structs.FieldInfo) -> str:
    value = (
        field.default_factory()
        if field.default is msgspec.NODEFAULT and not field.required
        else field.default
    )
    if field.required:
        return "required"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        quoted = ", ".join(f'"{one}"' for one in value)
        return f"`[{quoted}]`" if value else ""
    if isinstance(value, str):
        return f'`"{value}"`' if value else ""
    return f"`{value:g}`" if isinstance(value, int | float) else ""


def _variables() -> str:
    rows = "".join(f"| `{name}` | {text} |\n" for name, text in _COMMAND_VARIABLES.items())
    return (
        "## Environment variables of commands\n\nIn addition to the variables in the tables above. Lists are separated "
        f"by commas.\n\n| variable | description |\n| --- | --- |\n{rows}\n"
        "For the variables that ranks get, such as `MPIJOB_RANK` and `MPIJOB_WORLD`, see "
        "[frameworks](../how-to/users/frameworks.md).\n"
    )
