"""The shim that counts a rank's MPI calls: its C sources, and its binary (docs/decisions/0057)."""
