"""An S3 client based on boto3 whose connections follow the outbound policy.

boto3 is the optional extra `s3`, imported with the first client. It signs, retries, parses, finds credentials
and uses proxies; this module decides where it connects (`botocore_session`) and translates its errors.
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
_MAX_ATTEMPTS = 3
# The only values of an error response that are shown: other text of the server stays out of messages.
_KNOWN_CODES = {
    "AccessDenied": "access denied",
    "ExpiredToken": "the session token has expired",
    "InvalidAccessKeyId": "unknown access key",
    "InvalidToken": "invalid session token",
    "RequestTimeTooSkewed": "the clock of this machine is wrong",
    "SignatureDoesNotMatch": "the secret key does not match the access key",
    "SlowDown": "rate limit exceeded",
}
# boto3 sessions are not thread-safe.
_session_lock = threading.Lock()


class Connection(msgspec.Struct, frozen=True):
    """Everything needed to use one bucket; it holds secrets and is never part of a plan or a log.

    Without keys, boto3's default credential chain is used: variables, profiles, web identity, instance role.
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
        return urlsplit(self.endpoint).netloc


def from_setting(
    setting: ObjectsSetting, name: str, section: str, error_type: type[MpiJobError]
) -> Connection:
    """Return the connection of a setting; key files are read now, and `error_type` is raised if that fails."""
    secret_key, session_token = (
        _read_key(path, name, section, error_type)
        for path in (setting.secret_key_file, setting.session_token_file)
    )
    if bool(setting.access_key) != bool(secret_key):
        raise error_type(
            f"{name} has only one of access key and secret key",
            hint=f"set both access_key and secret_key_file under [{section}], or neither",
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


def _read_key(path: str, name: str, section: str, error_type: type[MpiJobError]) -> str:
    if not path:
        return ""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise error_type(
            f"{name}: cannot read the key file {path}: {error}",
            hint=f"check secret_key_file under [{section}]",
        ) from error


def check_setting(endpoint: str, bucket: str, hint: str) -> None:
    """Raise InvalidJob if endpoint or bucket are invalid, Unsupported if boto3 is not installed."""
    try:
        parts = urlsplit(endpoint)
        valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        valid = False
    if not valid or not bucket or "@" in parts.netloc:
        raise InvalidJob(f"{endpoint!r} with bucket {bucket!r} is not a valid object store", hint=hint)
    if find_spec("boto3") is None:
        raise Unsupported(
            "object storage needs boto3, which is not installed", hint="run: pip install 'mpijob[s3]'"
        )


class Client:
    """boto3's client of one store (`api`) with its connections."""

    def __init__(self, store: Connection, guard: Guard) -> None:
        from botocore.utils import get_environ_proxies

        from mpijob.outbound.botocore_session import GuardedSession

        restricted = guard.policy.restricted
        if restricted and not (store.access_key and store.secret_key):
            # The default chain would sign a user's request with the credentials of this server.
            raise InvalidJob(
                "the data connection has no access keys",
                hint="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in its secret",
            )
        with _session_lock:
            ca_bundle = store.ca_file or _session()[0].get_config_variable("ca_bundle")
            self.api = _boto3_client(store)
        self._http = GuardedSession(
            guard,
            verify=ca_bundle or True,
            # A proxy would resolve the name again, to addresses that the policy has not checked.
            proxies={} if restricted else get_environ_proxies(store.endpoint),
            timeout=(_CONNECT_SECONDS, _READ_SECONDS),
        )
        # botocore's hook for sending a request: everything this client sends passes the guard.
        self.api.meta.events.register("before-send.s3", lambda request, **_: self._http.send(request))

    def close(self) -> None:
        self._http.close()


def _boto3_client(store: Connection) -> Any:
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError

    config = Config(
        signature_version="s3v4",
        s3={"addressing_style": store.addressing_style},
        retries={"mode": "standard", "total_max_attempts": _MAX_ATTEMPTS},
        # Many stores other than AWS reject the trailing checksums that boto3 sends by default.
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
            f"boto3 rejects the settings of {store.endpoint!r}: {type(error).__name__}",
            hint="check endpoint and region, and AWS_PROFILE if it is set",
        ) from error


@functools.cache
def _session() -> tuple[Any, Any]:
    # One per process: creating a session reads a megabyte of service descriptions.
    import boto3.session
    import botocore.session

    botocore_session = botocore.session.get_session()
    return botocore_session, boto3.session.Session(botocore_session=botocore_session)


@contextmanager
def translate_errors(
    store: Connection, guard: Guard, operation: str, hint: str, error_type: type[BackendError] = BackendError
) -> Iterator[None]:
    """Translate boto3's exceptions; a missing object becomes NotFound."""
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
        raise _service_error(store, operation, hint, error_type, error) from error
    except (NoCredentialsError, PartialCredentialsError) as error:
        raise error_type(
            f"no access keys for the object store {store.host}, neither in its settings nor in the environment",
            hint=hint,
        ) from error
    except ParamValidationError as error:
        raise error_type(
            f"invalid name of bucket '{store.bucket}' or of an object in it", hint=hint
        ) from error
    except Redirected as error:
        status = error.kwargs["status"]
        raise error_type(
            f"object store {store.host} returned {status} for {operation}: a redirect, which is not followed",
            hint="check endpoint and region",
        ) from error
    except (ConnectionError, HTTPClientError, IncompleteReadError) as error:
        # Its kind would reveal to a user which hosts exist inside the cluster.
        reason = "" if guard.policy.restricted else f": {type(error).__name__}"
        raise error_type(
            f"object store {store.host}: no response to {operation}{reason}", hint=hint, passing=True
        ) from error
    except (BotoCoreError, ValueError, RecursionError) as error:
        # The last two are raised for invalid values and for deep nesting in XML.
        raise error_type(
            f"object store {store.host} returned an invalid S3 response to {operation}", hint=hint
        ) from error


def _service_error(
    store: Connection, operation: str, hint: str, error_type: type[BackendError], error: Any
) -> BackendError | NotFound:
    code = str(error.response.get("Error", {}).get("Code", ""))
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    if code == "NoSuchKey":
        return NotFound(f"no such object in the object store {store.host}")
    if code == "NoSuchBucket":
        return error_type(f"no bucket '{store.bucket}' at {store.host}", hint=hint)
    reason = f": {_KNOWN_CODES[code]}" if code in _KNOWN_CODES else ""
    return error_type(f"object store {store.host} returned {status} for {operation}{reason}", hint=hint)
