! Fortran 2008: typed handles, a non-blocking message of an array section's copy, and a window.
program modern
  use mpi_f08
  use iso_c_binding
  implicit none
  integer :: rank, size, got(4), mine(4), i
  type(mpi_request) :: requests(2)
  type(mpi_status) :: statuses(2)
  type(mpi_comm) :: half
  integer :: half_size
  call mpi_init()
  call mpi_comm_rank(mpi_comm_world, rank)
  call mpi_comm_size(mpi_comm_world, size)
  mine = [(rank * 10 + i, i = 1, 4)]
  call mpi_irecv(got, 4, mpi_integer, mod(rank + size - 1, size), 0, mpi_comm_world, requests(1))
  call mpi_isend(mine, 4, mpi_integer, mod(rank + 1, size), 0, mpi_comm_world, requests(2))
  call mpi_waitall(2, requests, statuses)
  call mpi_comm_split(mpi_comm_world, mod(rank, 2), rank, half)
  call mpi_comm_size(half, half_size)
  print '(a,i0,a,i0,a,i0,a,i0)', 'rank ', rank, ' of ', size, ' sum ', sum(got), ' half ', half_size
  call mpi_comm_free(half)
  call mpi_finalize()
end program
