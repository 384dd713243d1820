"""What DCML_VERBOSE asks for: 1, or names of topics (capture, compile, dispatch) with commas between them; 1 is capture
and compile."""
import os
import sys


def wanted(topic):
    """Is this topic to be told?"""
    topics = os.environ.get("DCML_VERBOSE", "").split(",")
    return topic in topics or "1" in topics


def say(topic, text):
    """Writes one line to stderr if the topic is wanted."""
    if wanted(topic):
        print(f"dcml: {topic}: {text}", file=sys.stderr, flush=True)
