"""API keys of qwen-run serve, and what requests find in the prefix cache. serve.py calls this."""
import json
import os

PAGE = 64
#: The last token always runs.
PROMPT, FOUND = [5, 6, 7, 8] * 50, 3 * PAGE
A, B = {"Authorization": "Bearer a"}, {"x-api-key": "b"}


def needed(checks, start):
    """A key is needed if there is one."""
    server = start(env={**os.environ, "QWEN_RUN_API_KEY": "secret"})
    for headers, status in (({}, 401), ({"Authorization": "Bearer secreT"}, 401), ({"Authorization": "Bearer secret"}, 200),
                            ({"x-api-key": "secret"}, 200), ({"Authorization": "bearer  secret"}, 200)):
        checks.expect(f"key {headers}", server.send("GET", "/v1/models", headers=headers)[0], status)
    for path in ("/health", "/v1/health/", "//livez", "/"):
        checks.expect(f"{path} without a key", server.send("GET", path)[0], 200)
    server.stop()


def cached(server, headers, path="/v1/completions", **body):
    """The tokens that the prefix cache had of a prompt."""
    asked = {"prompt": PROMPT} if path == "/v1/completions" else {"messages": [{"role": "user", "content": "Once upon a time. " * 40}]}
    answer = json.loads(server.send("POST", path, {**asked, "max_tokens": 1, **body}, headers)[2])
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def caches(checks, start, folder):
    """Requests of two keys or two salts share no page, unless they are told to."""
    keys = folder / "keys"
    # A key that stands in two places is one.
    keys.write_text("a\nb\na\n")
    server = start("--api-key-file", keys)
    found = [cached(server, headers, **more) for headers, more in (
        (A, {}), (A, {}), (B, {}), (B, {}), ({"x-api-key": "a"}, {}),
        (A, {"cache_salt": "s"}), (A, {"cache_salt": "s"}), (A, {"cache_salt": "t"}), (B, {"cache_salt": "s"}),
        # A salt cannot pass for a key.
        (A, {"cache_salt": "1"}), (A, {"cache_salt": "b"}), (A, {}))]
    checks.expect("cached tokens of two keys", found, [0, FOUND, 0, FOUND, FOUND, 0, FOUND, 0, 0, 0, 0, FOUND])
    chat = [cached(server, headers, "/v1/chat/completions") for headers in (A, B, A, B)]
    checks.expect("cached tokens of chats", [chat[0], chat[1], chat[2] > PAGE, chat[2] == chat[3]], [0, 0, True, True])
    server.stop()

    server = start("--api-key-file", keys, "--cache-shared")
    found = [cached(server, headers, **more) for headers, more in ((A, {}), (B, {}), (B, {"cache_salt": "s"}), (A, {"cache_salt": "s"}))]
    checks.expect("cached tokens of keys that share", found, [0, FOUND, 0, FOUND])
    server.stop()

    server = start()
    found = [cached(server, headers, **more) for headers, more in ((A, {}), (B, {}), ({}, {}), ({}, {"cache_salt": "s"}))]
    checks.expect("cached tokens without keys", found, [0, FOUND, FOUND, 0])
    server.stop()
