"""Jobs that are gone: fallback reads, accounts, backup and restore."""
