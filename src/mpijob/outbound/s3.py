"""A client of an object store (S3) on boto3, whose connections are made under a policy.

boto3 is the optional extra `s3` and loaded with the first client. It signs, retries, parses, finds credentials and
knows proxies; this module decides where it connects (`botocore_session`) and translates its errors.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

import msgspec

from mpijob.errors import BackendError, InvalidJob, MpiJobError, NotFound, Unsupported
from mpijob.outbound.guard import Guard
from mpijob.settings import AddressingStyle, ObjectsSetting

_CONNECT_SECONDS, _READ_SECONDS = 10.0, 60.0
_ATTEMPTS = 3
# the only words of an error's body that are shown: whatever else a server answers stays out of messages
_CODES = {
    "AccessDenied": "access is denied",
    "ExpiredToken": "the session token has expired",
    "InvalidAccessKeyId": "the access key is not known",
    "InvalidToken": "the session token is not valid",
    "RequestTimeTooSkewed": "the clock of this machine is wrong",
    "SignatureDoesNotMatch": "the secret key does not fit the access key",
    "SlowDown": "it asks for fewer requests",
}
_session_lock = threading.Lock()  # boto3 sessions are not thread-safe


class Connection(msgspec.Struct, frozen=True):
    """Everything that is needed to reach one bucket; it holds secrets and is never part of a plan or a log.

    Without keys, boto3's default credential chain supplies them: variables, profiles, web identity, a machine's role.
    """

    endpoint: str
    bucket: str
    access_key: str = ""
    secret_key: str = ""
    region: str = "us-east-1"
    prefix: str = ""
    session_token: str = ""
    addressing_style: AddressingStyle = "auto"
    ca_file: str = ""

    def __repr__(self) -> str:
        return f"<Connection {self.endpoint}/{self.bucket}>"

    @property
    def host(self) -> str:
        """Host and port of the endpoint, for messages."""
        return urlsplit(self.endpoint).netloc


def from_setting(setting: ObjectsSetting, name: str, section: str, kind: type[MpiJobError]) -> Connection:
    """Return the connection of a setting, whose keys are read from their files now; raise `kind` where they are not."""
    secret_key, session_token = (
        _content(path, name, section, kind) for path in (setting.secret_key_file, setting.session_token_file)
    )
    if bool(setting.access_key) != bool(secret_key):
        raise kind(
            f"{name} has an access key or a secret key, and needs both or none",
            hint=f"look at access_key and secret_key_file under [{section}]",
        )
    return Connection(
        setting.endpoint,
        setting.bucket,
        setting.access_key,
        secret_key,
        setting.region,
        setting.prefix,
        session_token,
        setting.addressing_style,
        setting.ca_file,
    )


def _content(path: str, name: str, section: str, kind: type[MpiJobError]) -> str:
    if not path:
        return ""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise kind(
            f"{name}: its key {path} cannot be read: {error}",
            hint=f"look at secret_key_file under [{section}]",
        ) from error


def check(endpoint: str, bucket: str, hint: str) -> None:
    """Raise InvalidJob where this cannot be an object store, Unsupported where boto3 is not installed."""
    try:
        parts = urlsplit(endpoint)
        valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        valid = False
    if not valid or not bucket or "@" in parts.netloc:
        raise InvalidJob(f"{endpoint!r} with bucket {bucket!r} is no object store", hint=hint)
    if find_spec("boto3") is None:
        raise Unsupported(
            "object storage needs boto3, which is not installed here", hint="run: pip install 'mpijob[s3]'"
        )


class Client:
    """boto3's client of one store (`api`), and the connections that it uses."""

    def __init__(self, store: Connection, guard: Guard) -> None:
        from botocore.utils import get_environ_proxies

        from mpijob.outbound.botocore_session import GuardedSession

        restricted = guard.policy.restricted
        if restricted and not (store.access_key and store.secret_key):
            # the default chain would sign a visitor's request with the server's own credentials
            raise InvalidJob(
                "the data connection holds no keys",
                hint="it needs AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
            )
        with _session_lock:
            ca_bundle = store.ca_file or _session()[0].get_config_variable("ca_bundle")
            self.api = _boto3_client(store)
        self._http = GuardedSession(
            guard,
            verify=ca_bundle or True,
            proxies={} if restricted else get_environ_proxies(store.endpoint),
            timeout=(_CONNECT_SECONDS, _READ_SECONDS),
        )
        # botocore's own hook for answering a request elsewhere: everything this client sends passes the guard
        self.api.meta.events.register("before-send.s3", lambda request, **_: self._http.send(request))

    def close(self) -> None:
        """Close the connections."""
        self._http.close()


def _boto3_client(store: Connection) -> Any:
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError

    config = Config(
        signature_version="s3v4",
        s3={"addressing_style": store.addressing_style},
        retries={"mode": "standard", "total_max_attempts": _ATTEMPTS},
        # many stores other than AWS refuse the trailing checksums that boto3 sends by default
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        user_agent_extra="mpijob",
    )
    try:
        return _session()[1].client(
            "s3",
            endpoint_url=store.endpoint,
            region_name=store.region,
            aws_access_key_id=store.access_key or None,
            aws_secret_access_key=store.secret_key or None,
            aws_session_token=store.session_token or None,
            config=config,
        )
    except (BotoCoreError, ValueError) as error:
        raise InvalidJob(
            f"boto3 takes no such settings for {store.endpoint!r}: {type(error).__name__}",
            hint="look at endpoint and region, and at AWS_PROFILE where it is set",
        ) from error


@functools.cache
def _session() -> tuple[Any, Any]:
    """Return botocore's and boto3's session: one for the process, for it reads a megabyte of descriptions."""
    import boto3.session
    import botocore.session

    core = botocore.session.get_session()
    return core, boto3.session.Session(botocore_session=core)


@contextmanager
def errors_of(
    store: Connection, guard: Guard, doing: str, hint: str, kind: type[BackendError] = BackendError
) -> Iterator[None]:
    """Translate what boto3 raises; a missing object is NotFound."""
    from botocore.exceptions import (
        BotoCoreError,
        ClientError,
        ConnectionError,
        HTTPClientError,
        IncompleteReadError,
        NoCredentialsError,
        ParamValidationError,
        PartialCredentialsError,
    )

    from mpijob.outbound.botocore_session import Redirected

    try:
        yield
    except ClientError as error:
        raise _refusal(store, doing, hint, kind, error) from error
    except (NoCredentialsError, PartialCredentialsError) as error:
        raise kind(
            f"no keys for the object store {store.host} were found, by its settings or in this environment",
            hint=hint,
        ) from error
    except ParamValidationError as error:
        raise kind(
            f"'{store.bucket}' or an object in it has a name that S3 does not take", hint=hint
        ) from error
    except Redirected as error:
        status = error.kwargs["status"]
        raise kind(
            f"the object store {store.host} answered {status} to {doing}: a redirect, which is not followed",
            hint="look at endpoint and region",
        ) from error
    except (ConnectionError, HTTPClientError, IncompleteReadError) as error:
        why = "" if guard.policy.restricted else f": {type(error).__name__}"
        raise kind(
            f"the object store {store.host} did not answer to {doing}{why}", hint=hint, passing=True
        ) from error
    except (BotoCoreError, ValueError, RecursionError) as error:  # the latter two of values in XML
        raise kind(
            f"the object store {store.host} answered to {doing} with something that is not S3", hint=hint
        ) from error


def _refusal(
    store: Connection, doing: str, hint: str, kind: type[BackendError], error: Any
) -> BackendError | NotFound:
    code = str(error.response.get("Error", {}).get("Code", ""))
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    if code == "NoSuchKey":
        return NotFound(f"the object store {store.host} holds no such object")
    if code == "NoSuchBucket":
        return kind(f"there is no bucket '{store.bucket}' at {store.host}", hint=hint)
    why = f": {_CODES[code]}" if code in _CODES else ""
    return kind(f"the object store {store.host} answered {status} to {doing}{why}", hint=hint)
