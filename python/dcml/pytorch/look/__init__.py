"""What a compiled module does, for people to look at."""
