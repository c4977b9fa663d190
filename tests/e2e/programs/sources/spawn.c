/* The world spawns as many again; parents and children add up their ranks over the intercommunicator. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv) {
  int rank, size, sum, remote;
  MPI_Comm parent, other, merged;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_get_parent(&parent);
  if (parent == MPI_COMM_NULL)
    MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &other, MPI_ERRCODES_IGNORE);
  else
    other = parent;
  MPI_Comm_remote_size(other, &remote);
  MPI_Intercomm_merge(other, parent != MPI_COMM_NULL, &merged);
  int mine = rank + 1;
  MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, merged);
  if (parent == MPI_COMM_NULL) printf("rank %d of %d remote %d sum %d\n", rank, size, remote, sum);
  MPI_Comm_free(&merged);
  MPI_Comm_disconnect(&other);
  MPI_Finalize();
  return 0;
}
