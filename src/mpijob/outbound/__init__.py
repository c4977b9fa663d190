"""Every connection that leaves this process for a server other than the API server: one policy, one way out.

`policy` says where a process may connect and how much it takes from there, `guard` connects to addresses that were
checked, `http` asks services that speak JSON, `s3` object stores. The client of the Kubernetes API server
(`backends/kubernetes/transport`) and that of registries (`backends/registry/lines`) have lines of their own.
"""
