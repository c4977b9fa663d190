/* Pi by the midpoint rule: rank r takes every size-th slice. `mpicc -O2 pi.c -o pi -lm`, then the job file beside it. */
#include <math.h>
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv) {
  const long slices = 10000000;
  int rank, size;
  double own = 0.0, pi = 0.0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (long i = rank; i < slices; i += size) {
    double x = (i + 0.5) / slices;
    own += 4.0 / (1.0 + x * x) / slices;
  }
  MPI_Reduce(&own, &pi, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("RESULT pi=%.10f ranks=%d\n", pi, size);
  if (rank == 0 && fabs(pi - M_PI) > 1e-9) MPI_Abort(MPI_COMM_WORLD, 1);
  MPI_Finalize();
  return 0;
}
