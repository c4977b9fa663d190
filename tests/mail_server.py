"""A real SMTP server of tests, with STARTTLS, TLS and a login where they are wanted."""

from __future__ import annotations

import email
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import EmailMessage
from email.policy import default
from pathlib import Path
from typing import Any, NamedTuple

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, Session
from tests.servers import free_port


class Mail(NamedTuple):
    """One mail that was taken: whom the sender named to the server, and what it says."""

    to: tuple[str, ...]
    message: EmailMessage
    by_starttls: bool
    user: str

    @property
    def text(self) -> str:
        """What the mail says."""
        return str(self.message.get_content())


class _Taker:
    """Takes every mail."""

    def __init__(self, mails: list[Mail], refuse_first: int) -> None:
        self._mails, self._refuse = mails, refuse_first

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        if self._refuse:
            self._refuse -= 1
            return "451 try again later"
        content = envelope.content
        assert isinstance(content, bytes)
        message = email.message_from_bytes(content, policy=default)
        given: Any = session.auth_data
        user = given.login.decode() if given else ""
        mail = Mail(tuple(envelope.rcpt_tos), message, session.ssl is not None, user)
        self._mails.append(mail)
        return "250 OK"


@contextmanager
def mail_server(
    *, certificate: tuple[Path, Path] | None = None, starttls: bool = False, login: tuple[str, str] | None = None,
    refuse_first: int = 0,
) -> Iterator[tuple[int, list[Mail]]]:  # fmt: skip
    """Yield the port of a server on 127.0.0.1, and the mails that it has taken."""
    mails: list[Mail] = []
    context = None
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)

    def right(server: SMTP, session: Session, envelope: Envelope, way: str, given: Any) -> AuthResult:
        good = login is not None and (given.login.decode(), given.password.decode()) == login
        return AuthResult(success=good, handled=good, auth_data=given if good else None)

    more: dict[str, Any] = (
        {"authenticator": right, "auth_required": True, "auth_require_tls": starttls} if login else {}
    )
    if starttls:
        more |= {"tls_context": context, "require_starttls": True}
    port = free_port()
    server = Controller(
        _Taker(mails, refuse_first), "127.0.0.1", port, ssl_context=None if starttls else context, **more
    )
    server.start()
    try:
        yield port, mails
    finally:
        server.stop()
