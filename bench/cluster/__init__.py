"""Side-by-side measurements on a cluster: against kubectl, the Kubeflow SDK, and bare mpirun on the node.

`python -m bench.cluster` runs them all, in namespaces of their own that are removed afterwards; each module
holds one measurement and yields `Line`s. As in `bench`, a missed goal is reported, not raised.
"""
