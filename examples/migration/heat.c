/* Heat that spreads along a rod: each rank has a piece of it, and tells its neighbours the temperature at its ends. */
#include <mpi.h>
#include <stdio.h>

#define CELLS 100
#define STEPS 2000

int main(int argc, char **argv) {
  double now[CELLS + 2] = {0}, next[CELLS + 2] = {0}, mine = 0, total = 0;
  int rank, size;

  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  int left = rank > 0 ? rank - 1 : MPI_PROC_NULL;
  int right = rank < size - 1 ? rank + 1 : MPI_PROC_NULL;
  for (int step = 0; step < STEPS; step++) {
    if (rank == 0) now[0] = 100.0;
    MPI_Sendrecv(&now[CELLS], 1, MPI_DOUBLE, right, 0, &now[0], 1, MPI_DOUBLE, left, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    MPI_Sendrecv(&now[1], 1, MPI_DOUBLE, left, 1, &now[CELLS + 1], 1, MPI_DOUBLE, right, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    for (int cell = 1; cell <= CELLS; cell++) next[cell] = now[cell] + 0.25 * (now[cell - 1] - 2 * now[cell] + now[cell + 1]);
    for (int cell = 1; cell <= CELLS; cell++) now[cell] = next[cell];
  }
  for (int cell = 1; cell <= CELLS; cell++) mine += now[cell];
  MPI_Reduce(&mine, &total, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("%.0f degrees have come into the rod, in %d pieces\n", total, size);
  MPI_Finalize();
  return 0;
}
