"""Captures on disk, for processes that call the same module again."""
