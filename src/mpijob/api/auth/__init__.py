"""Sessions, tokens, rate limits and client addresses."""
