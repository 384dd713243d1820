"""Helpers that the manual's examples use."""
