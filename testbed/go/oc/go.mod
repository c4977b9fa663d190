module testbed.local/oc

go 1.24.0

require github.com/openshift/oc v0.0.0-alpha.0.0.20250108103617-ae1bd9e4a75b

// oc asks for a version of this that does not exist, and replaces it itself.
replace github.com/apcera/gssapi => github.com/openshift/gssapi v0.0.0-20161010215902-5fb4217df13b
