/* Two halves of the world, joined by an intercommunicator; then a graph and a Cartesian topology. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv) {
  int rank, size, remote, sum, merged_rank;
  MPI_Comm half, other, merged, line, graph;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
  MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, rank % 2 ? 0 : 1, 7, &other);
  MPI_Comm_remote_size(other, &remote);
  int mine = rank + 1;
  MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, other);
  MPI_Intercomm_merge(other, rank % 2, &merged);
  MPI_Comm_rank(merged, &merged_rank);
  int periodic = 1, left, right, around;
  MPI_Cart_create(MPI_COMM_WORLD, 1, &size, &periodic, 0, &line);
  MPI_Cart_shift(line, 0, 1, &left, &right);
  MPI_Sendrecv(&mine, 1, MPI_INT, right, 0, &around, 1, MPI_INT, left, 0, line, MPI_STATUS_IGNORE);
  int next = (rank + 1) % size, degree = 1, in, out, weighted;
  MPI_Dist_graph_create(MPI_COMM_WORLD, 1, &rank, &degree, &next, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &graph);
  MPI_Dist_graph_neighbors_count(graph, &in, &out, &weighted);
  printf("rank %d of %d remote %d sum %d merged %d around %d graph %d %d\n", rank, size, remote, sum, merged_rank, around,
         in, out);
  MPI_Comm_free(&graph);
  MPI_Comm_free(&line);
  MPI_Comm_free(&merged);
  MPI_Comm_free(&other);
  MPI_Comm_free(&half);
  MPI_Finalize();
  return 0;
}
