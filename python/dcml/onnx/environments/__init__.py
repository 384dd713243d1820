"""Packages outside of dcml that may run operators."""
