"""Code from git repositories, fetched by the git of this machine."""
