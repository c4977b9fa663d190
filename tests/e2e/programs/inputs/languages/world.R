suppressMessages(library(Rmpi))
total <- mpi.allreduce(as.integer(mpi.comm.rank(0) + 1), type = 1, op = "sum", comm = 0)
cat(sprintf("rank %d of %d sum %d\n", mpi.comm.rank(0), mpi.comm.size(0), total))
invisible(mpi.quit(save = "no"))
