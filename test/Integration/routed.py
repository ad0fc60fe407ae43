"""What the tests of routers send, and what they compare: answers through a router with the answers of a server alone."""
import concurrent.futures
import http.client
import json
import re
import socket

from server import JSON


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def request_of(number):
    """A path and a body; requests with the same remainder have the same beginning."""
    words = f"Once upon a time there was a king number {number % 5}. " * (1 + 12 * (number % 2))
    body = {"model": "stories", "seed": number, "max_tokens": 24, "stream": number % 3 == 0, "temperature": 1}
    if number % 2:
        return "/v1/chat/completions", {**body, "messages": [{"role": "user", "content": words}], "logprobs": True, "top_logprobs": 2}
    return "/v1/completions", {**body, "prompt": words, "logprobs": 2}


def tokens_of(parts):
    """What the parts of an answer say of each token, with the logs of their probabilities."""
    logprobs = []
    for part in parts:
        for choice in part["choices"]:
            found = choice.get("logprobs") or {}
            logprobs += found.get("content") or list(zip(found.get("tokens", ()), found.get("token_logprobs", ()), found.get("top_logprobs", ())))
    return logprobs


def answer_of(port, number):
    """What an answer says of each token; or its status and its text."""
    path, body = request_of(number)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("POST", path, json.dumps(body), JSON)
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    if response.status != 200:
        return response.status, text
    if not body["stream"]:
        return tokens_of([json.loads(text)])
    events = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
    if events[-1] != "[DONE]":
        return "a stream without its end", text
    return tokens_of(json.loads(event) for event in events[:-1])


def events_of(text):
    """The events of a stream, sorted by choice, without ids and what depends on time."""
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith(b"data: {")]
    kept = [event for event in events if event.get("type") != "ping"]
    kept.sort(key=lambda event: (event.get("choices") or [{}])[0].get("index", 0))
    return re.sub(r'id": "[^"]*"|"created(_at)?": \d+|"completed_at": \d+|"timings": {[^}]*}|"cache\w*_tokens": \d+|"input_tokens": \d+', "", json.dumps(kept))


def ids_of(text):
    """The number of ids in a stream."""
    return len(set(re.findall(rb'id":"([^"]*)"', text)))


def answers(port, numbers):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda number: answer_of(port, number), numbers))


def compare(checks, what, found, expected):
    wrong = [(number, each) for number, (each, right) in enumerate(zip(found, expected)) if each != right]
    checks.check(not wrong, f"{what}: {len(wrong)} of {len(expected)} answers differ, such as {str(wrong[:1])[:500]}")
