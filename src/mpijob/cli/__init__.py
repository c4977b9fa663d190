"""The command line: parse, ask the client, show. No command does more than that."""
