"""The admission webhook server, which the API server calls for each job.

Its port is open to all pods, because a network policy cannot select an API server. So requests are bounded
before they are parsed, one address gets only part of the request slots (`serving/concurrency`), and if the
API server presents a certificate (`--client-ca`), no other client is served. Certificates are renewed while
it runs; it may be killed at any time.
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
    from mpijob.cluster.webhook.admission_review import ClusterView

_log = logging.getLogger(__name__)
_MAX_CONNECTIONS, _MAX_CONNECTIONS_PER_ADDRESS = 1024, 256


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How the webhook is run; `address` is set if it is not a service of the cluster (see `names`).

    `client_ca` is the CA file of the API server's client certificate, `client_name` the name in that
    certificate.
    """

    name: str = NAME
    namespace: str = "mpijob-system"
    # The API server connects from outside the pod.
    host: str = "0.0.0.0"  # noqa: S104
    port: int = 8443
    address: str = ""
    client_ca: str = ""
    client_name: str = ""
    kubeconfig: str = ""
    context: str = ""
    renew_seconds: float = 60.0


def names(options: Options) -> tuple[str, ...]:
    """Return the names that the certificate is issued for."""
    if options.address:
        return (options.address,)
    service = f"{options.name}.{options.namespace}"
    return (f"{service}.svc", service, f"{service}.svc.cluster.local")


class Server(serving.Server):
    """Serves reviews; it is not ready before `cluster` is set."""

    def __init__(self, options: Options) -> None:
        self.reviews = app.Reviews(client_name=options.client_name if options.client_ca else None)
        self.context: ssl.SSLContext = serving.tls_context(client_ca=options.client_ca)
        sock = serving.listen(options.host, options.port, name="the webhook")
        super().__init__(
            app.application(self.reviews),
            sock,
            tls=self.context,
            max_connections=_MAX_CONNECTIONS,
            max_per_address=_MAX_CONNECTIONS_PER_ADDRESS,
        )

    @property
    def cluster(self) -> ClusterView | None:
        """What requests are reviewed with; None until it is loaded."""
        return self.reviews.cluster

    @cluster.setter
    def cluster(self, cluster: ClusterView | None) -> None:
        self.reviews.cluster = cluster

    def use_keys(self, keys: Keys) -> None:
        """Use these keys for all new connections."""
        # `load_cert_chain` reads files only.
        with tempfile.NamedTemporaryFile(dir=_memory_directory()) as file:
            file.write(keys.certificate + keys.key)
            file.flush()
            self.context.load_cert_chain(file.name)


def _memory_directory() -> str | None:
    """Return a directory in memory if there is one: the key need not be written to disk."""
    # The file is created by mkstemp with mode 0600.
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108


def renew_keys(
    api: Api, options: Options, use: Callable[[Keys], None], current: Keys | None = None
) -> Keys | None:
    """Renew the keys when due and publish the CA bundle; an error is retried later."""
    try:
        keys = tls_secret.ensure_keys(api, options.namespace, names(options), name=options.name)
        tls_secret.publish_bundle(api, keys.bundle, name=options.name)
    except ApiError as error:
        # A certificate that is due is valid for another third of its lifetime.
        _log.warning("could not renew or publish the certificates: %s", error)
        return current
    if keys != current:
        use(keys)
    return keys


def serve(options: Options, stop: threading.Event) -> None:
    """Serve until `stop` is set."""
    api: Any = Api(load(path=options.kubeconfig, context=options.context))
    server = Server(options)
    with WebhookCache(api) as cache:
        keys = None
        while keys is None and not stop.is_set():
            keys = renew_keys(api, options, server.use_keys)
            stop.wait(0 if keys else 1.0)
        with server:
            cache.wait_synced(10.0)
            # Without the limits every job would be admitted, so it is not ready before they are loaded.
            while not cache.limits_known() and not stop.wait(0.2):
                pass
            server.cluster = cache
            _log.warning("serving on port %s", server.port)
            while not stop.wait(options.renew_seconds):
                keys = renew_keys(api, options, server.use_keys, keys)
    api.close()


def main() -> None:
    """Read the options from the inherited file descriptor that the first argument names, and serve."""
    stop = until_ended()
    with os.fdopen(int(sys.argv[1]), "rb") as file:
        options = codec.decode(file.read(), Options)
    serve(options, stop)


if __name__ == "__main__":
    main()
