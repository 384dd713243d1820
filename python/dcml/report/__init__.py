"""What a compiled function does, for people: as text and as an HTML page.  Imports nothing but the standard library."""
