"""Which MPI libraries a machine has, which one a program is linked to, and whether its command can be found."""
