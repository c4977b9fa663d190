/* Every kind of collective operation, of derived types and of communicators split off the world. */
#include <mpi.h>
#include <stdio.h>

enum { MOST = 64 };

int main(int argc, char **argv) {
  int rank, size, sum = 0, all[MOST] = {0}, to[MOST], from[MOST], counts[MOST], places[MOST];
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  int mine = rank + 1, least, prefix, first = rank == 0 ? 42 : 0;
  MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Bcast(&first, 1, MPI_INT, 0, MPI_COMM_WORLD);
  MPI_Reduce(&mine, &least, 1, MPI_INT, MPI_MIN, 0, MPI_COMM_WORLD);
  MPI_Bcast(&least, 1, MPI_INT, 0, MPI_COMM_WORLD);
  MPI_Scan(&mine, &prefix, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Gather(&mine, 1, MPI_INT, all, 1, MPI_INT, 0, MPI_COMM_WORLD);
  MPI_Scatter(all, 1, MPI_INT, &first, 1, MPI_INT, 0, MPI_COMM_WORLD);
  for (int i = 0; i < size; i++) {
    to[i] = rank * 10 + i;
    counts[i] = 1;
    places[i] = i;
  }
  MPI_Alltoall(to, 1, MPI_INT, from, 1, MPI_INT, MPI_COMM_WORLD);
  MPI_Allgatherv(&mine, 1, MPI_INT, all, counts, places, MPI_INT, MPI_COMM_WORLD);
  MPI_Request request;
  int later;
  MPI_Iallreduce(&mine, &later, 1, MPI_INT, MPI_PROD, MPI_COMM_WORLD, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Comm half;
  int half_size, half_sum;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
  MPI_Comm_size(half, &half_size);
  MPI_Allreduce(&mine, &half_sum, 1, MPI_INT, MPI_SUM, half);
  MPI_Comm_free(&half);
  MPI_Datatype pair;
  MPI_Type_contiguous(2, MPI_INT, &pair);
  MPI_Type_commit(&pair);
  int two[2] = {rank, size};
  MPI_Bcast(two, 1, pair, size - 1, MPI_COMM_WORLD);
  MPI_Type_free(&pair);
  MPI_Barrier(MPI_COMM_WORLD);
  printf("rank %d of %d sum %d %d %d %d %d %d %d %d/%d %d\n", rank, size, sum, first, least, prefix, from[size - 1],
         all[size - 1], later, half_size, half_sum, two[0]);
  MPI_Finalize();
  return 0;
}
