"""Mail by SMTP, under the same policy as every other connection: names are resolved once, addresses are checked.

`smtps://` is TLS from the beginning, and `smtp://` must offer STARTTLS. Only a server for which the
administrator allows private addresses may do without, and then only without a login. The text of mails is
written in `client/integrations/webhooks`.
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
    """User and password at the mail server; without a user, no login is attempted."""

    user: str = ""
    password: str = ""


class _Connection(smtplib.SMTP):
    def __init__(
        self, host: str, port: int, connections: guard.Guard, context: ssl.SSLContext | None
    ) -> None:
        self._guard, self._context = connections, context
        super().__init__(host, port, timeout=_SECONDS)

    # smtplib's own hook for subclasses: `SMTP_SSL` overrides it, too.
    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        sock = self._guard.connect(host, port, timeout)
        return sock if self._context is None else self._context.wrap_socket(sock, server_hostname=host)


def send(url: str, message: bytes, login: Login = Login(), *, allow_private: bool = False) -> None:  # noqa: B008 - a value
    """Send one mail to its `To` addresses.

    Raise InvalidJob if the URL or the server is not usable, BackendError if the mail could not be delivered to
    the server. With `allow_private`, private addresses and unencrypted servers are allowed.
    """
    try:
        parts, port = urlsplit(url), urlsplit(url).port
    except ValueError as error:
        raise InvalidJob(f"{url!r} is not a valid URL: {error}", hint="write smtps://HOST") from error
    if parts.scheme not in _PORTS or not parts.hostname or parts.username or parts.password:
        raise InvalidJob(
            f"{url!r} is not the URL of a mail server",
            hint="write smtps://HOST, and the user name into `user`",
        )
    context = ssl.create_default_context()
    implicit_tls = context if parts.scheme == "smtps" else None
    policy = UNRESTRICTED if allow_private else PUBLIC
    try:
        with guard.Guard(policy) as connections:
            connections.limit(_SECONDS)
            address = (parts.hostname, port or _PORTS[parts.scheme])
            with _Connection(*address, connections, implicit_tls) as server:
                encrypted = implicit_tls is not None or _start_tls(server, context)
                if not encrypted and (login.user or not allow_private):
                    raise InvalidJob(
                        "the mail server offers no STARTTLS", hint="use smtps://, or a server that offers it"
                    )
                if login.user:
                    server.login(login.user, login.password)
                server.send_message(email.message_from_bytes(message, policy=POLICY))
    except guard.Forbidden as error:
        raise InvalidJob(error.reason, hint="set allow_private for private mail servers") from error
    except (OSError, smtplib.SMTPException) as error:
        raise BackendError(f"cannot send mail through {parts.scheme}://{parts.netloc}: {error}") from error


def _start_tls(server: smtplib.SMTP, context: ssl.SSLContext) -> bool:
    """Encrypt the connection if the server offers it; return whether it does."""
    server.ehlo()
    if not server.has_extn("starttls"):
        return False
    server.starttls(context=context)
    return True
