"""The shim that counts a rank's MPI calls: its C sources, and where its binary comes from."""
