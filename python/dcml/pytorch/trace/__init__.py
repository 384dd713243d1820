"""From a module to an exported program that says all that a call of it does."""
