"""Pages of the site that are made from archlab itself when it is built, so that no fact has two homes."""
