"""The commands that answer on paper, one module each: from a request to a document. Nothing here imports torch."""
