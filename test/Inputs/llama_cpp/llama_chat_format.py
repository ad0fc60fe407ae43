class Llava15ChatHandler:
    """Reads pictures, which these tests have not."""
