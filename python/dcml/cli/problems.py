"""What a user got wrong."""


class BadInput(Exception):
    """A message that names the argument or the file, and what is wrong with it; the command ends with exit code 2."""


def one_line(text):
    """The text without line breaks."""
    return " ".join(str(text).split())
