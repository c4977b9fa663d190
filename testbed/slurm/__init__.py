"""A real Slurm cluster of several nodes on this machine, from Debian's packages: `make slurm`, `make test-slurm`.

Each machine of it (controller, login node, a laptop without Slurm, four nodes) has network, host name, mounts,
processes and /tmp of its own. The packages are in a root directory in the cache; nothing is installed on this machine.
"""
