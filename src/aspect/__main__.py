"""The command `aspect`, also as `python -m aspect`."""

import sys


def main() -> None:
    """Run the command; an interrupt while it is still imported needs no traceback."""
    try:
        from aspect.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted.\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
