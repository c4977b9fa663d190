! Fortran with the mpi module.
program legacy
  use mpi
  integer :: rank, size, error, mine, total
  call mpi_init(error)
  call mpi_comm_rank(mpi_comm_world, rank, error)
  call mpi_comm_size(mpi_comm_world, size, error)
  mine = rank + 1
  call mpi_allreduce(mine, total, 1, mpi_integer, mpi_sum, mpi_comm_world, error)
  print '(a,i0,a,i0,a,i0)', 'rank ', rank, ' of ', size, ' sum ', total
  call mpi_finalize(error)
end program
