"""Real failures of real software, provoked on purpose, with their truth written down beforehand."""
