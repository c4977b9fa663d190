/* Heat that spreads over a grid, cut into strips: each rank exchanges its border rows with its neighbours in every step,
 * and all of them look at the greatest change now and then. Rank 0 prints the seconds of so many steps. */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 256, COLUMNS = 512, STEPS = 3000 };

int main(int argc, char **argv) {
  int rank, size;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  int rows = ROWS / size, up = rank ? rank - 1 : MPI_PROC_NULL, down = rank < size - 1 ? rank + 1 : MPI_PROC_NULL;
  double(*now)[COLUMNS] = calloc((size_t)rows + 2, sizeof *now), (*next)[COLUMNS] = calloc((size_t)rows + 2, sizeof *next);
  if (rank == 0)
    for (int x = 0; x < COLUMNS; x++) now[0][x] = next[0][x] = 100;
  MPI_Barrier(MPI_COMM_WORLD);
  double start = MPI_Wtime(), change = 0, greatest = 0;
  for (int step = 0; step < STEPS; step++) {
    MPI_Request requests[4];
    MPI_Irecv(now[0], rank ? COLUMNS : 0, MPI_DOUBLE, up, 0, MPI_COMM_WORLD, &requests[0]);
    MPI_Irecv(now[rows + 1], COLUMNS, MPI_DOUBLE, down, 1, MPI_COMM_WORLD, &requests[1]);
    MPI_Isend(now[1], COLUMNS, MPI_DOUBLE, up, 1, MPI_COMM_WORLD, &requests[2]);
    MPI_Isend(now[rows], COLUMNS, MPI_DOUBLE, down, 0, MPI_COMM_WORLD, &requests[3]);
    MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
    change = 0;
    for (int y = 1; y <= rows; y++)
      for (int x = 1; x < COLUMNS - 1; x++) {
        next[y][x] = 0.25 * (now[y - 1][x] + now[y + 1][x] + now[y][x - 1] + now[y][x + 1]);
        change = fmax(change, fabs(next[y][x] - now[y][x]));
      }
    double(*last)[COLUMNS] = now;
    now = next, next = last;
    if (step % 10 == 0) MPI_Allreduce(&change, &greatest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  }
  if (rank == 0) printf("change=%g seconds=%.6f steps=%d\n", greatest, MPI_Wtime() - start, STEPS);
  MPI_Finalize();
  return 0;
}
