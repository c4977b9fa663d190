"""The admission webhook: server, cache, certificates, configuration and CEL policies."""
