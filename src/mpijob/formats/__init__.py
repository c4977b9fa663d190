"""Other people's words and ours: job files, launch lines, manifests. Pure, both ways."""
