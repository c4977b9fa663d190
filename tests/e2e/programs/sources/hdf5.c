#include <hdf5.h>
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv) {
  int rank, size, mine, all[64] = {0}, sum = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  mine = rank + 1;
  hid_t access = H5Pcreate(H5P_FILE_ACCESS);
  H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL);
  hid_t file = H5Fcreate("hdf5.h5", H5F_ACC_TRUNC, H5P_DEFAULT, access);
  hsize_t extent = size, start = rank, one = 1;
  hid_t space = H5Screate_simple(1, &extent, NULL), memory = H5Screate_simple(1, &one, NULL);
  hid_t data = H5Dcreate2(file, "x", H5T_NATIVE_INT, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  H5Sselect_hyperslab(space, H5S_SELECT_SET, &start, NULL, &one, NULL);
  H5Dwrite(data, H5T_NATIVE_INT, memory, space, H5P_DEFAULT, &mine);
  H5Fflush(file, H5F_SCOPE_GLOBAL);
  MPI_Barrier(MPI_COMM_WORLD);
  H5Dread(data, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, all);
  for (int i = 0; i < size; i++) sum += all[i];
  H5Dclose(data);
  H5Fclose(file);
  printf("rank %d of %d sum %d\n", rank, size, sum);
  MPI_Finalize();
  return 0;
}
