"""Job files: YAML reader, writer, edits and JSON Schema."""
