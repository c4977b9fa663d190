"""The live job index, event streams and WebSockets."""
