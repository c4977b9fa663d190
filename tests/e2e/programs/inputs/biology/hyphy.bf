fprintf(stdout, "rank ", MPI_NODE_ID, " of ", MPI_NODE_COUNT, "\n");
