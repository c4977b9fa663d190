"""Launchers that are no MPI's and start ranks by ssh: they are given the job's workers by a script before them."""

from __future__ import annotations

import os

OWN_LAUNCHERS = ("horovodrun", "deepspeed")
WITH_HOSTS = os.path.join(os.path.dirname(__file__), "scripts", "with_hosts.sh")
