"""Experiments: what a text says of such models, done with real tensors and clocks on any composition."""
