"""Create a TrainJob with the Kubeflow SDK: `kubeflow_train.py NAMESPACE RUNTIME IMAGE NODES [warm]`.

Warm, it creates one for each line that it reads, and prints the seconds that `train` took.
"""

import sys
import time

from kubeflow.trainer import (  # type: ignore[import-not-found]  # it has an environment of its own
    CustomTrainerContainer,
    KubernetesBackendConfig,
    TrainerClient,
)

namespace, runtime, image, nodes, *warm = sys.argv[1:]
client = TrainerClient(backend_config=KubernetesBackendConfig(namespace=namespace))
trainer = CustomTrainerContainer(image=image, num_nodes=int(nodes))
if not warm:
    print(client.train(runtime=runtime, trainer=trainer))
else:
    known = client.get_runtime(runtime)
    for _ in sys.stdin:
        start = time.perf_counter()
        client.train(runtime=known, trainer=trainer)
        print(time.perf_counter() - start, flush=True)
