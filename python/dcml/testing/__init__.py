"""Helpers for tests and measurements."""
