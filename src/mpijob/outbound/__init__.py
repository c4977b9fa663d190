"""Outgoing connections: one HTTP layer, and one policy for the addresses that may be reached.

`connection` is HTTP for all clients, also for the Kubernetes API (`backends/kubernetes/client`) and
registries (`backends/registry`). `policy` defines where a process may connect on behalf of a user and how
much it reads, `guard` connects to checked addresses, `http` sends requests to JSON services, `s3` to object
stores.
"""
