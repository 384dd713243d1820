"""x

The one idea: 
Must not know: 
"""
__all__ = []
