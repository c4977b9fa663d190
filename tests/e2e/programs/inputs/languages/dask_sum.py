import dask
from dask_mpi import initialize
from distributed import Client

dask.config.set({"distributed.worker.profile.enabled": False})
initialize(nthreads=1, dashboard=False, nanny=False)
with Client() as client:
    print("dask sum", client.submit(sum, [1, 2, 3]).result(), flush=True)
    client.retire_workers()
