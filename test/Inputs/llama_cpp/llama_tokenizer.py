class LlamaHFTokenizer:
    """A tokenizer of another library, which these tests do not ask for."""
