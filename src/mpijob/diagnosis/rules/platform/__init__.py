"""Causes that whoever runs the job knows: this machine's supervisor, a cluster, a queue."""
