/* Windows: fences, locks, accumulate, fetch-and-op, and memory that the ranks of a node share. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv) {
  int rank, size, *memory, got, before, one = 1;
  MPI_Win window;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Win_allocate(2 * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
  memory[0] = 10 + rank;
  memory[1] = 0;
  MPI_Win_fence(0, window);
  MPI_Get(&got, 1, MPI_INT, (rank + 1) % size, 0, 1, MPI_INT, window);
  MPI_Win_fence(0, window);
  MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
  MPI_Fetch_and_op(&one, &before, MPI_INT, 0, 1, MPI_SUM, window);
  MPI_Win_unlock(0, window);
  MPI_Barrier(MPI_COMM_WORLD);
  int counted = 0;
  MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
  MPI_Get(&counted, 1, MPI_INT, 0, 1, 1, MPI_INT, window);
  MPI_Win_unlock(0, window);
  MPI_Win_free(&window);

  MPI_Comm node;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  int node_size, *shared, unit;
  MPI_Aint bytes;
  MPI_Comm_size(node, &node_size);
  MPI_Win_allocate_shared(sizeof(int), sizeof(int), MPI_INFO_NULL, node, &shared, &window);
  *shared = rank + 100;
  MPI_Win_fence(0, window);
  int *first;
  MPI_Win_shared_query(window, 0, &bytes, &unit, &first);
  printf("rank %d of %d got %d counted %d on node %d first %d\n", rank, size, got, counted, node_size, *first);
  MPI_Win_fence(0, window);
  MPI_Win_free(&window);
  MPI_Comm_free(&node);
  MPI_Finalize();
  return 0;
}
