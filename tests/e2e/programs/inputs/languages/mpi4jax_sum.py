"""A sum over ranks inside a compiled function of JAX, and its gradient."""

import jax
import jax.numpy as jnp
import mpi4jax
from mpi4py import MPI

world = MPI.COMM_WORLD


def summed(values):
    """Return the sum of all ranks' squares."""
    found = mpi4jax.allreduce(values * values, op=MPI.SUM, comm=world)
    return (found[0] if isinstance(found, tuple) else found).sum()


mine = jnp.arange(1.0, 5.0) + world.rank
total, gradient = jax.jit(jax.value_and_grad(summed))(mine)
print(
    f"rank {world.rank} of {world.size} sum {float(total):.3f} gradient {float(gradient.sum()):.3f}",
    flush=True,
)
