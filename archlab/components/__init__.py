"""One folder an axis. `spec.py` holds its choices on paper (no torch), `module.py` the same as nn.Modules."""
