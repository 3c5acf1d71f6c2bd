"""`python -m aspect` is the command `aspect`."""

from aspect.cli.main import main

if __name__ == "__main__":
    main()
