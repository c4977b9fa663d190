"""A worker process: namespaces, cgroups, process tree."""
