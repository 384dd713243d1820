"""Calls of ATen written down while code runs on stand-ins for tensors, by nothing that takes long to import."""
