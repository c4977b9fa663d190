"""Training runtimes: built-in ones, lint and smoke test."""
