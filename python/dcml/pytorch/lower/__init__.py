"""From an exported program to a graph of the core."""
