"""The errors of qwen-run serve (errors.py checks them; docs/testing.md says how to add one)."""
from errors_files import Request

CHAT, TEXT = "POST /v1/chat/completions", "POST /v1/completions"
HI = {"messages": [{"role": "user", "content": "Hi"}]}

ROWS = [
    # Parameters.
    Request("an unknown parameter", TEXT, {"prompt": "x", "colour": 1}, 400, "colour", "unknown_parameter",
            "unknown parameter colour"),
    Request("an empty prompt", TEXT, {"prompt": ""}, 400, "prompt", None,
            "prompt is empty"),
    Request("an id that is too large", TEXT, {"prompt": [4096]}, 400, "prompt", None,
            "prompt: token id 4096 is out of vocabulary: the model has 4096 tokens"),
    Request("a prompt that is too long", TEXT, {"prompt": [1] * 1025}, 400, "prompt", "context_length_exceeded",
            "prompt has 1025 tokens when the model was compiled for a context of 1024", {"n_prompt_tokens": 1025, "n_ctx": 1024}),
    Request("a text that is too long", TEXT, {"prompt": "x" * 100_000}, 400, "prompt", "context_length_exceeded",
            "the prompt has 100000 bytes, which is more than 1024 tokens"),
    Request("too many logprobs", TEXT, {"prompt": "x", "logprobs": 21}, 400, "logprobs", None,
            'logprobs must be an integer from 0 to 20, not "21"'),
    Request("another model", TEXT, {"prompt": "x", "model": "other"}, 404, "model", "model_not_found",
            'no such model: "other"; this server has "stories"'),
    Request("too many choices", TEXT, {"prompt": ["x"] * 40, "n": 2}, 400, "n", None,
            "n must make at most 64 choices of all prompts, not 80"),
    Request("no messages", CHAT, {}, 400, "messages", None,
            "messages is missing"),
    Request("tools", CHAT, {**HI, "tools": [{}]}, 400, "tools", None,
            "tools is not supported; only [] is accepted"),
    Request("a number as text", CHAT, {**HI, "temperature": "hot"}, 400, "temperature", None,
            'temperature must be a number from 0 to 2, not "\\"hot\\""'),
    Request("vectors that are too long", "POST /v1/embeddings", {"input": "x", "dimensions": 9999}, 400, "dimensions", None,
            "dimensions must be at most 256, the size of the model's hidden values"),
    Request("an empty input", "POST /v1/embeddings", {"input": ""}, 400, "input", None,
            "input is empty"),
    Request("a negative id", "POST /detokenize", {"tokens": [-1]}, 400, "tokens", None,
            "tokens: token id -1 is out of vocabulary: the model has 4096 tokens"),
    # The model has two tokens for "yes".
    Request("a model that cannot rerank", "POST /v1/rerank", {"query": "x", "documents": ["y"]}, 400, None, None,
            'the model cannot rerank: its tokenizer has 2 tokens for "yes" when one is needed'),
    Request("no documents", "POST /v1/rerank", {"query": "x"}, 400, "documents", None,
            "documents is missing"),
    Request("no query", "POST /v1/rerank", {"documents": ["x"]}, 400, "query", None,
            "query is missing"),
    Request("a document that is a number", "POST /v1/rerank", {"query": "x", "documents": [1]}, 400, "documents", None,
            "documents must be an array of texts, or of objects with a text"),
    Request("no results wanted", "POST /v1/rerank", {"query": "x", "documents": ["x"], "top_n": 0}, 400, "top_n", None,
            'top_n must be an integer from 1 to 2147483647, not "0"'),

    # Keys.
    *(Request(name, "GET /v1/models", None, 401, None, "invalid_api_key",
              "an API key is needed: Authorization: Bearer KEY", headers=headers, options=("--api-key-file", "key"))
      for name, headers in (("no key", {}), ("another key", {"Authorization": "Bearer secreT"}), ("a key of another scheme", {"Authorization": "Basic secret"}))),

    # HTTP.
    Request("a body that is not JSON", TEXT, b"{", 400, None, None,
            "the body is not JSON"),
    Request("a body that is a list", TEXT, b"[1]", 400, None, None,
            "the body has an array when a JSON object is needed"),
    Request("a body of another type", TEXT, b"{}", 400, None, None,
            'the content type must be application/json, not "text/plain"', headers={"Content-Type": "text/plain"}),
    Request("another path", "POST /nothing", b"{}", 404, None, None,
            'no such path: "/nothing"'),
    Request("another method", "GET /v1/completions", None, 405, None, None,
            "/v1/completions takes POST, not GET"),
    Request("a body that is too large", TEXT, b" " * 300_000, 413, None, None,
            "the body has more than 200000 bytes", options=("--max-body", "200000")),
    Request("headers that are too long", "GET /health", None, 431, None, None,
            "the header has more than 16384 bytes", headers={"X-Long": "y" * 20_000}),
    Request("another host", "GET /health", None, 403, None, None,
            'the host "example.org" is not this machine; the server listens on 127.0.0.1:0', headers={"Host": "example.org"}),
]
