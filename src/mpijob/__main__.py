"""`python -m mpijob` runs the command line."""

from mpijob.cli.main import main

if __name__ == "__main__":
    main()
