"""The test bed: a real single-node Kubernetes for the cluster tests, made on this machine from source.

Nothing here is shipped. `python -m testbed up` builds what is missing, starts it in namespaces of its own and
leaves nothing outside its cache and its run state; `python -m testbed down` takes it away again.
"""
