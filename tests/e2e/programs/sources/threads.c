/* MPI_THREAD_MULTIPLE: two threads of each rank talk at the same time, each on its own tag. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>

static int rank, size, sums[2];

static void *talk(void *argument) {
  int tag = *(int *)argument, mine = (rank + 1) * (tag + 1), got;
  for (int round = 0; round < 20; round++) {
    MPI_Sendrecv(&mine, 1, MPI_INT, (rank + 1) % size, tag, &got, 1, MPI_INT, (rank + size - 1) % size, tag,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    sums[tag] += got;
  }
  return NULL;
}

int main(int argc, char **argv) {
  int provided, tags[2] = {0, 1};
  pthread_t threads[2];
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, talk, &tags[i]);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  printf("rank %d of %d sum %d %d level %s\n", rank, size, sums[0], sums[1],
         provided == MPI_THREAD_MULTIPLE ? "multiple" : "less");
  MPI_Finalize();
  return 0;
}
