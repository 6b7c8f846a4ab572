"""``python -m kbindex``."""

from kbindex.cli import app


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
