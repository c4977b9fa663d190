/* MPI-IO: collective and independent writes into one file, read back by another rank, with a file view. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv) {
  int rank, size, mine, got, later;
  MPI_File file;
  MPI_Offset bytes;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  mine = rank + 1;
  MPI_File_open(MPI_COMM_WORLD, "shared.bin", MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
  MPI_File_write_at_all(file, rank * sizeof(int), &mine, 1, MPI_INT, MPI_STATUS_IGNORE);
  MPI_File_sync(file);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_File_read_at(file, (rank + 1) % size * sizeof(int), &got, 1, MPI_INT, MPI_STATUS_IGNORE);
  MPI_File_set_view(file, size * sizeof(int), MPI_INT, MPI_INT, "native", MPI_INFO_NULL);
  mine *= 10;
  MPI_File_write_at_all(file, rank, &mine, 1, MPI_INT, MPI_STATUS_IGNORE);
  MPI_File_read_at_all(file, rank, &later, 1, MPI_INT, MPI_STATUS_IGNORE);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_File_get_size(file, &bytes);
  MPI_File_close(&file);
  printf("rank %d of %d got %d %d bytes %d\n", rank, size, got, later, (int)bytes);
  MPI_Finalize();
  return 0;
}
