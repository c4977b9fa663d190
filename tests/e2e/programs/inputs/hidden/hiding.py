"""Start a program as its first argument says: the plan cannot see which it is."""

import ctypes
import os
import subprocess
import sys

way, *argv = sys.argv[1:]
if way == "child":
    sys.exit(subprocess.run(argv, close_fds=False).returncode)
elif way == "empty environment":
    sys.exit(subprocess.run(argv, env={"PATH": os.environ["PATH"]}, close_fds=False).returncode)
elif way == "closed descriptors":
    sys.exit(subprocess.run(argv, close_fds=True).returncode)
elif way == "without":  # the first argument: beginnings of variables' names
    beginnings = tuple(argv.pop(0).split(","))
    environ = {name: value for name, value in os.environ.items() if not name.startswith(beginnings)}
    os.execvpe(argv[0], argv, environ)
elif way == "later":
    import time

    time.sleep(3)
    environ = {"PATH": os.environ["PATH"]}
    sys.exit(subprocess.run(argv, env=environ, close_fds=False).returncode)
elif way == "orphan":  # ends before the program that it starts does
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            code = subprocess.run(argv, env={"PATH": os.environ["PATH"]}, close_fds=False).returncode
            os.write(writing, b"%d" % code)
        os._exit(0)
    os.wait()
    sys.exit(int(os.read(reading, 3)))
elif way == "loaded":  # Open MPI, by hand
    mpi = ctypes.CDLL(argv[0], ctypes.RTLD_GLOBAL)
    size = ctypes.c_int()
    mpi.MPI_Init(None, None)
    mpi.MPI_Comm_size(ctypes.byref(ctypes.c_char.in_dll(mpi, "ompi_mpi_comm_world")), ctypes.byref(size))
    print(f"rank {os.environ.get('MPIJOB_RANK')} of {size.value}", flush=True)
    mpi.MPI_Finalize()
