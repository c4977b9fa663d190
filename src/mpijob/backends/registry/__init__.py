"""Read container images from a registry or a file, without a container engine and without unpacking to disk.

What the files of an image mean is decided in `formats/images` and `checks/images` (docs/decisions/0030).
"""
