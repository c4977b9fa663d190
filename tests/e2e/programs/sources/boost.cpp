#include <boost/mpi.hpp>
#include <iostream>
#include <sstream>
#include <string>

int main(int argc, char **argv) {
  boost::mpi::environment environment(argc, argv);
  boost::mpi::communicator world;
  std::string all;
  boost::mpi::all_reduce(world, std::string(1, 'a' + world.rank()), all, std::plus<std::string>());
  std::ostringstream line;
  line << "rank " << world.rank() << " of " << world.size() << " got " << all << "\n";
  std::cout << line.str() << std::flush;
}
