/* Blocking, non-blocking, persistent and synchronous messages around a ring; one large enough for rendezvous. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { LARGE = 1 << 18 };

int main(int argc, char **argv) {
  int rank, size, mine, got, probed;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  int right = (rank + 1) % size, left = (rank + size - 1) % size;
  mine = rank + 1;
  MPI_Sendrecv(&mine, 1, MPI_INT, right, 1, &got, 1, MPI_INT, left, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  int sum = got;

  int *out = malloc(LARGE * sizeof(int)), *in = malloc(LARGE * sizeof(int));
  for (int i = 0; i < LARGE; i++) out[i] = rank + i;
  MPI_Request requests[2];
  MPI_Irecv(in, LARGE, MPI_INT, left, 2, MPI_COMM_WORLD, &requests[0]);
  MPI_Isend(out, LARGE, MPI_INT, right, 2, MPI_COMM_WORLD, &requests[1]);
  MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
  sum += in[LARGE - 1];

  MPI_Request persistent;
  MPI_Recv_init(&got, 1, MPI_INT, left, 3, MPI_COMM_WORLD, &persistent);
  for (int round = 0; round < 3; round++) {
    MPI_Request sending;
    MPI_Start(&persistent);
    MPI_Issend(&mine, 1, MPI_INT, right, 3, MPI_COMM_WORLD, &sending);
    MPI_Wait(&persistent, MPI_STATUS_IGNORE);
    MPI_Wait(&sending, MPI_STATUS_IGNORE);
    sum += got;
  }
  MPI_Request_free(&persistent);

  MPI_Status status;
  MPI_Request sending;
  MPI_Isend(out, rank + 1, MPI_INT, right, 4, MPI_COMM_WORLD, &sending);
  MPI_Probe(left, 4, MPI_COMM_WORLD, &status);
  MPI_Get_count(&status, MPI_INT, &probed);
  MPI_Recv(in, probed, MPI_INT, left, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Wait(&sending, MPI_STATUS_IGNORE);
  printf("rank %d of %d sum %d probed %d\n", rank, size, sum, probed);
  free(out);
  free(in);
  MPI_Finalize();
  return 0;
}
