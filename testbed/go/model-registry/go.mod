module testbed.local/model-registry

go 1.24.4

require github.com/kubeflow/model-registry v0.3.0

// Its own go.mod takes this from its tree.
replace github.com/kubeflow/model-registry/pkg/openapi => github.com/kubeflow/model-registry/pkg/openapi v0.3.0
