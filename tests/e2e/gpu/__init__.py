"""Tests that need a real NVIDIA GPU with PyTorch (`make test-gpu`); `make test` does not run them."""
