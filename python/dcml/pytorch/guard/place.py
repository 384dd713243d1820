"""How messages end: with the ways out of what is refused, and the user's line."""
import linecache

WAYS_OUT = ': torch.compile(model, backend="dcml") splits the graph there, or move the line out of forward'


def place(file, line):
    """' (file:line: code)'."""
    return f" ({file}:{line}: {linecache.getline(file, line).strip()})"
