#include <fftw3-mpi.h>
#include <stdio.h>

int main(int argc, char **argv) {
  int rank, size;
  ptrdiff_t rows, first;
  MPI_Init(&argc, &argv);
  fftw_mpi_init();
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  ptrdiff_t space = fftw_mpi_local_size_2d(16, 16, MPI_COMM_WORLD, &rows, &first);
  fftw_complex *data = fftw_alloc_complex(space);
  fftw_plan plan = fftw_mpi_plan_dft_2d(16, 16, data, data, MPI_COMM_WORLD, FFTW_FORWARD, FFTW_ESTIMATE);
  for (ptrdiff_t i = 0; i < rows * 16; i++) data[i][0] = first * 16 + i, data[i][1] = 0;
  fftw_execute(plan);
  printf("rank %d of %d rows %d first %.3f\n", rank, size, (int)rows, data[0][0]);
  MPI_Finalize();
  return 0;
}
