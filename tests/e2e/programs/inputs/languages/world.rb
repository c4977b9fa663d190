require "mpi"
MPI.Init()
world = MPI::Comm::WORLD
puts "rank #{world.rank} of #{world.size}"
MPI.Finalize()
