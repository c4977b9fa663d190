"""What several unit tests share: an API server as Kubernetes has one, over real TLS, and a line to it."""

from __future__ import annotations

import pytest
from tests.unit.kube_support import connected, made_certificates, served

certificates = pytest.fixture(scope="session")(made_certificates)
server = pytest.fixture(served)
api = pytest.fixture(connected)
