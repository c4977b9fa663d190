"""Early warnings: hangs, exhaustion, network and MPI monitoring."""
