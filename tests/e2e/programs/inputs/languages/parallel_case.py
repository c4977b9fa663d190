from mpi4py import MPI


def test_the_world_adds_up():
    world = MPI.COMM_WORLD
    assert world.size == 2
    assert world.allreduce(1) == world.size
