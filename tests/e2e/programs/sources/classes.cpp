// C++: a vector travels, a function object reduces, and an exception is caught between two messages.
#include <mpi.h>

#include <iostream>
#include <numeric>
#include <sstream>
#include <stdexcept>
#include <vector>

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  std::vector<double> mine(100, rank + 0.5), sum(100);
  MPI_Allreduce(mine.data(), sum.data(), 100, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  int caught = 0;
  try {
    throw std::runtime_error("expected");
  } catch (const std::exception &) {
    caught = 1;
  }
  MPI_Barrier(MPI_COMM_WORLD);
  std::ostringstream line;
  line << "rank " << rank << " of " << size << " sum " << std::accumulate(sum.begin(), sum.end(), 0.0) << " caught "
       << caught << "\n";
  std::cout << line.str() << std::flush;
  MPI_Finalize();
}
