"""Mail by SMTP, under the same policy as every other connection: names are resolved once, addresses are checked.

`smtps://` is TLS from the beginning, `smtp://` must offer STARTTLS; only where an administrator allows private
addresses may a server of theirs do without.
"""

from __future__ import annotations

import email
import smtplib
import socket
import ssl
from email.policy import SMTP as POLICY
from typing import NamedTuple
from urllib.parse import urlsplit

from mpijob.errors import BackendError, InvalidJob
from mpijob.outbound import guard
from mpijob.outbound.policy import PUBLIC, UNRESTRICTED

_PORTS = {"smtp": 587, "smtps": 465}
_SECONDS = 20.0


class Login(NamedTuple):
    """With which name and password to log in; none where there is no name."""

    user: str = ""
    password: str = ""


class _Connection(smtplib.SMTP):
    """An SMTP connection over a socket that the policy has allowed."""

    def __init__(self, host: str, port: int, opened: guard.Guard, context: ssl.SSLContext | None) -> None:
        self._opened, self._context = opened, context
        super().__init__(host, port, timeout=_SECONDS)

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        plain = self._opened.connect(host, port, timeout)
        return plain if self._context is None else self._context.wrap_socket(plain, server_hostname=host)


def send(url: str, message: bytes, login: Login = Login(), *, allow_private: bool = False) -> None:  # noqa: B008 - a value
    """Send one mail to whom its `To` names; raise InvalidJob or BackendError where it was not taken."""
    try:
        parts, port = urlsplit(url), urlsplit(url).port
    except ValueError as error:
        raise InvalidJob(f"{url!r} is not a valid URL: {error}", hint="write smtps://HOST") from error
    if parts.scheme not in _PORTS or not parts.hostname or parts.username or parts.password:
        raise InvalidJob(f"{url!r} is not a mail server", hint="write smtps://HOST; the name into user")
    context = ssl.create_default_context()
    wrapped = context if parts.scheme == "smtps" else None
    policy = UNRESTRICTED if allow_private else PUBLIC
    try:
        with guard.Guard(policy) as opened:
            opened.limit(_SECONDS)
            with _Connection(parts.hostname, port or _PORTS[parts.scheme], opened, wrapped) as server:
                encrypted = wrapped is not None or _encrypted(server, context)
                if not encrypted and (login.user or not allow_private):
                    raise InvalidJob(
                        "the mail server offers no STARTTLS", hint="use smtps://, or one that does"
                    )
                if login.user:
                    server.login(login.user, login.password)
                server.send_message(email.message_from_bytes(message, policy=POLICY))
    except guard.Forbidden as error:
        raise InvalidJob(error.reason, hint="set allow_private for private mail servers") from error
    except (OSError, smtplib.SMTPException) as error:
        raise BackendError(f"{parts.scheme}://{parts.netloc} did not take a mail: {error}") from error


def _encrypted(server: smtplib.SMTP, context: ssl.SSLContext) -> bool:
    """Encrypt a connection where the server offers it; return whether it does."""
    server.ehlo()
    if not server.has_extn("starttls"):
        return False
    server.starttls(context=context)
    return True
