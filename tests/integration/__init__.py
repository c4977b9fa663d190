"""The local engine with real MPI, real processes and real signals, as a hostile and a clumsy user meet it."""
