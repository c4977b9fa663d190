"""The admission webhook: an HTTPS server that an API server asks about each job before it keeps it.

Its port is open to every pod, because no policy can name an API server. So what it reads is bounded before it is
parsed, one address gets only some of its turns (`serving/concurrency`), and where the API server shows a certificate
(`--client-ca`), nobody else is answered. Certificates are renewed while it serves; it may be killed at any time.
"""

from __future__ import annotations

import logging
import os
import ssl
import sys
import tempfile
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from mpijob import codec
from mpijob.backends.kubernetes.auth.kubeconfig import load
from mpijob.backends.kubernetes.client.api import Api, ApiError
from mpijob.client.services.shutdown import until_ended
from mpijob.cluster.webhook import app, tls_secret
from mpijob.cluster.webhook.cache import WebhookCache
from mpijob.cluster.webhook.certificates import Keys
from mpijob.cluster.webhook.configuration import NAME
from mpijob.serving import server as serving

if TYPE_CHECKING:
    from mpijob.cluster.webhook.admission_review import Known

_LOG = logging.getLogger(__name__)
_CONNECTIONS, _CONNECTIONS_OF_ONE = 1024, 256


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How the webhook is run; `address` is set where it is no service of the cluster (see `names`).

    `client_ca` is the file of the authority whose certificate the API server shows, `client_name` the name in it.
    """

    name: str = NAME
    namespace: str = "mpijob-system"
    host: str = "0.0.0.0"  # noqa: S104 - the API server comes from outside the pod
    port: int = 8443
    address: str = ""
    client_ca: str = ""
    client_name: str = ""
    kubeconfig: str = ""
    context: str = ""
    renew_seconds: float = 60.0


def names(options: Options) -> tuple[str, ...]:
    """Return the names that the certificate is for."""
    if options.address:
        return (options.address,)
    service = f"{options.name}.{options.namespace}"
    return (f"{service}.svc", service, f"{service}.svc.cluster.local")


class Server(serving.Server):
    """Serves reviews; `known` is what they are judged by, None until it is there."""

    def __init__(self, options: Options) -> None:
        self.reviews = app.Reviews(client_name=options.client_name if options.client_ca else None)
        self.context: ssl.SSLContext = serving.tls_context(client_ca=options.client_ca)
        sock = serving.listening(options.host, options.port, what="the webhook")
        super().__init__(
            app.application(self.reviews),
            sock,
            tls=self.context,
            most=_CONNECTIONS,
            of_one=_CONNECTIONS_OF_ONE,
        )

    @property
    def known(self) -> Known | None:
        """What requests are judged by."""
        return self.reviews.known

    @known.setter
    def known(self, known: Known | None) -> None:
        self.reviews.known = known

    def use(self, keys: Keys) -> None:
        """Serve these keys to every connection that begins from now on."""
        with tempfile.NamedTemporaryFile(dir=_private_place()) as file:
            file.write(keys.certificate + keys.key)
            file.flush()
            self.context.load_cert_chain(file.name)


def _private_place() -> str | None:
    """Return a directory in memory, where there is one: a key need not touch a disk."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108 - the file is mkstemp's, 0600


def keep_keys(
    api: Api, options: Options, use: Callable[[Keys], None], before: Keys | None = None
) -> Keys | None:
    """Renew the keys when they are due and let the API server know; what fails now is tried again later."""
    try:
        keys = tls_secret.ensure(api, options.namespace, names(options), name=options.name)
        tls_secret.publish(api, keys.bundle, name=options.name)
    except ApiError as error:
        _LOG.warning("the certificates could not be kept: %s", error)
        return before
    if keys != before:
        use(keys)
    return keys


def serve(options: Options, stop: threading.Event) -> None:
    """Serve until somebody says stop."""
    api: Any = Api(load(path=options.kubeconfig, context=options.context))
    made = Server(options)
    with WebhookCache(api) as knowledge:
        keys = None
        while keys is None and not stop.is_set():
            keys = keep_keys(api, options, made.use)
            stop.wait(0 if keys else 1.0)
        with made:
            knowledge.settled(10.0)
            while not knowledge.governed() and not stop.wait(0.2):
                pass  # without the limits everything would be let in: not ready yet
            made.known = knowledge
            _LOG.warning("serving on port %s", made.port)
            while not stop.wait(options.renew_seconds):
                keys = keep_keys(api, options, made.use, keys)
    api.close()


def main() -> None:
    """Read the options from the file descriptor that was handed over, and serve."""
    stop = until_ended()
    with os.fdopen(int(sys.argv[1]), "rb") as handed:
        options = codec.decode(handed.read(), Options)
    serve(options, stop)


if __name__ == "__main__":
    main()
