/* Calls of every kind whose bytes and receivers are known: test_mpi_profile.py adds them up. For three ranks or more. */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
  int rank, size, level, in_half, half_size, counts[64], places[64];
  static char big[1 << 20];
  static double numbers[4096], results[4096];
  MPI_Request requests[2];
  MPI_Comm half;
  MPI_Win window;
  double *memory;

  MPI_Init_thread(&argc, &argv, MPI_THREAD_SINGLE, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  int next = (rank + 1) % size, before = (rank + size - 1) % size;

  for (int i = 0; i < 4; i++) { /* 4 messages of 700 bytes to the next */
    MPI_Irecv(results, 700, MPI_CHAR, before, 1, MPI_COMM_WORLD, &requests[0]);
    MPI_Send(numbers, 700, MPI_CHAR, next, 1, MPI_COMM_WORLD);
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
  }
  MPI_Sendrecv(numbers, 10, MPI_DOUBLE, next, 2, results, 10, MPI_DOUBLE, before, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Send_init(numbers, 5, MPI_INT, next, 3, MPI_COMM_WORLD, &requests[0]);
  MPI_Recv_init(results, 5, MPI_INT, before, 3, MPI_COMM_WORLD, &requests[1]);
  for (int i = 0; i < 3; i++) { /* 3 of 20 bytes */
    MPI_Startall(2, requests);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
  }
  MPI_Request_free(&requests[0]);
  MPI_Request_free(&requests[1]);
  MPI_Send(numbers, 9, MPI_CHAR, MPI_PROC_NULL, 4, MPI_COMM_WORLD); /* nothing, to nobody */

  if (rank == 0) { /* one large message; rank 1 is late for it */
    MPI_Send(big, sizeof big, MPI_CHAR, 1, 5, MPI_COMM_WORLD);
  } else if (rank == 1) {
    usleep(300000);
    MPI_Recv(big, sizeof big, MPI_CHAR, MPI_ANY_SOURCE, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }

  for (int i = 0; i < 6; i++)
    MPI_Allreduce(numbers, results, 1000, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  MPI_Bcast(numbers, 500, MPI_DOUBLE, 1, MPI_COMM_WORLD);
  MPI_Reduce(numbers, results, 30, MPI_DOUBLE, MPI_SUM, 2, MPI_COMM_WORLD);
  MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, results, 11, MPI_FLOAT, MPI_COMM_WORLD);
  for (int i = 0; i < size; i++)
    counts[i] = rank + i + 1, places[i] = 100 * i;
  int theirs[64];
  for (int i = 0; i < size; i++)
    theirs[i] = rank + i + 1;
  MPI_Alltoallv(numbers, counts, places, MPI_CHAR, results, theirs, places, MPI_CHAR, MPI_COMM_WORLD);

  MPI_Comm_split(MPI_COMM_WORLD, rank == 1, -rank, &half); /* all but rank 1, in reverse order */
  MPI_Comm_rank(half, &in_half);
  MPI_Comm_size(half, &half_size);
  if (rank != 1) { /* the last of the world is number 0 there */
    MPI_Bcast(numbers, 77, MPI_CHAR, 0, half);
    if (in_half == 0)
      MPI_Ssend(numbers, 13, MPI_CHAR, half_size - 1, 6, half);
    if (in_half == half_size - 1)
      MPI_Recv(results, 13, MPI_CHAR, 0, 6, half, MPI_STATUS_IGNORE);
  }
  MPI_Comm_free(&half);

  MPI_Win_allocate(8000, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
  MPI_Win_fence(0, window);
  MPI_Put(numbers, 4, MPI_DOUBLE, next, 0, 4, MPI_DOUBLE, window);
  MPI_Win_fence(0, window);
  MPI_Get(results, 6, MPI_DOUBLE, before, 0, 6, MPI_DOUBLE, window);
  MPI_Win_fence(0, window);
  MPI_Win_free(&window);

  MPI_Pcontrol(0); /* not looked at */
  MPI_Barrier(MPI_COMM_WORLD);
  usleep(200000);
  MPI_Pcontrol(1);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  return 0;
}
