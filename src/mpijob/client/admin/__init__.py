"""Administration: limits, runtimes, images, doctor."""
