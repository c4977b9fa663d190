/* Latency and bandwidth between two ranks, and of an allreduce over all: rank 0 prints microseconds, best and middle of
 * many rounds. For the cost of what stands between a program and its MPI library. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 400, EACH = 50, LARGE = 1 << 20 };
static char *buffer;
static double rounds[ROUNDS];

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void told(const char *name, int count, int rank) {
  qsort(rounds, (size_t)count, sizeof *rounds, by_size);
  if (rank == 0)
    printf("%s best=%.4f middle=%.4f\n", name, rounds[0] * 1e6, rounds[count / 2] * 1e6);
}

static void ping(const char *name, int size, int count, int each, int rank) {
  for (int round = 0; round < count; round++) {
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (int i = 0; rank < 2 && i < each; i++) {
      if (rank == 0) MPI_Send(buffer, size, MPI_CHAR, 1, 0, MPI_COMM_WORLD);
      MPI_Recv(buffer, size, MPI_CHAR, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      if (rank == 1) MPI_Send(buffer, size, MPI_CHAR, 0, 0, MPI_COMM_WORLD);
    }
    rounds[round] = (MPI_Wtime() - start) / each / 2;
  }
  told(name, count, rank);
}

static void reduce(const char *name, int doubles, int count, int each, int rank) {
  double *mine = (double *)buffer, *sum = malloc(sizeof(double) * (size_t)doubles);
  for (int round = 0; round < count; round++) {
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (int i = 0; i < each; i++) MPI_Allreduce(mine, sum, doubles, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    rounds[round] = (MPI_Wtime() - start) / each;
  }
  free(sum);
  told(name, count, rank);
}

int main(int argc, char **argv) {
  int rank;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  buffer = calloc(8, LARGE);
  ping("ping-pong-8", 8, ROUNDS, EACH, rank);
  ping("ping-pong-large", LARGE, 60, 2, rank);
  reduce("allreduce-8", 1, ROUNDS, EACH, rank);
  reduce("allreduce-large", LARGE, 30, 1, rank);
  MPI_Finalize();
  return 0;
}
