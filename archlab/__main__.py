"""`python -m archlab` is `archlab`."""

from archlab.cli import main

if __name__ == "__main__":
    main()
