"""Every connection that leaves this process: one HTTP layer, and one policy about addresses.

`connection` is HTTP for all clients, also for those of the Kubernetes API server (`backends/kubernetes/client`) and
of registries (`backends/registry`). `policy` says where a process may connect for somebody and how much it takes from
there, `guard` connects to addresses that were checked, `http` asks services that speak JSON, `s3` object stores.
"""
