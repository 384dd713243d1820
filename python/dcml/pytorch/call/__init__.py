"""What a call of a captured module does, from arguments to results."""
