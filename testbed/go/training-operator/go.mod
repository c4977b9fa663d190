module testbed.local/training-operator

go 1.24.0

require github.com/kubeflow/training-operator v1.8.1
