"""Programs of the distribution's packages, compared with plain mpirun (`make test-programs`)."""
