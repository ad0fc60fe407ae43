"""Requests to qwen-run serve as proxies, probes, browsers and libraries of other languages write them. serve.py calls these."""
import gzip
import hashlib
import http.client
import os
import pathlib
import re
import socket

from server import Server


def wire(head):
    """The bytes of the head of a request."""
    return head.encode("latin-1").replace(b"\n", b"\r\n") + b"\r\n\r\n"


def raw(server, head, body=b""):
    """Status, headers and body of the answer to a request."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
        client.sendall(wire(head) + body)
        response = http.client.HTTPResponse(client, method=head.split()[0])
        response.begin()
        return response.status, response.headers, response.read().decode()


def other_clients(checks, server):
    """Requests as proxies, probes and libraries of other languages write them."""
    host = "\nHost: localhost\nConnection: close"
    for head, status in (
            ("GET /health HTTP/1.0", 200), ("HEAD /livez HTTP/1.0", 200), ("OPTIONS / HTTP/1.0", 200),
            ("GET /health HTTP/1.1\nConnection: close", 400), ("GET /health HTTP/1.1\nHost: example.org" + host, 400),
            ("GET /health HTTP/1.0\nHost: example.org", 403), ("GET /health HTTP/1.1" + host.replace("l", "L"), 200),
            ("GET http://127.0.0.1:1/v1/models?x=/y HTTP/1.1" + host, 200), ("GET http://LOCALHOST HTTP/1.1" + host, 200),
            ("GET http://example.org/health HTTP/1.1" + host, 403), ("GET https://a@localhost/health HTTP/1.1" + host, 403),
            ("GET http://localhost/health HTTP/1.0", 200), ("GET http://example.org/health HTTP/1.0", 403),
            ("GET //v1//models/ HTTP/1.1" + host, 200), ("GET /models/stories/ HTTP/1.1" + host, 200),
            ("GET /v1/models/%73tories HTTP/1.1" + host, 200), ("GET /v1/models/stories%2500 HTTP/1.1" + host, 404),
            ("GET /v1/models/stories%00 HTTP/1.1" + host, 400), ("GET /%g1 HTTP/1.1" + host, 400), ("GET /%ff HTTP/1.1" + host, 404),
            ("OPTIONS * HTTP/1.1" + host, 200), ("OPTIONS /nothing HTTP/1.1" + host, 404), ("DELETE /v1/models HTTP/1.1" + host, 405),
            # Java's HttpClient asks for HTTP/2 so.
            ("GET /health HTTP/1.1\nHost: localhost\nConnection: Upgrade, HTTP2-Settings, close\nUpgrade: h2c\nHTTP2-Settings: AAMAAABkAAQAAP__", 200)):
        got, headers, text = raw(server, head)
        checks.expect(f"{head!r}: {text}", (got, headers["Server"]), (status, "qwen-run"))
        checks.check(re.fullmatch(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", headers["Date"] or ""), f"Date is {headers['Date']!r}")
        checks.expect(f"Allow of {head!r}", "Allow" in headers, status == 405 or status == 200 and head.startswith("OPTIONS"))
    body = b'{"prompt": "Hi"}'
    chunks = b"5\r\n" + body[:5] + b"\r\nb;x=y\r\n" + body[5:] + b"\r\n0\r\nX-Trailer: x\r\n\r\n"
    plain = f"POST /v1/tokenize/ HTTP/1.1{host}\nContent-Length: {len(body)}\n"
    for head, data, status in (
            (plain + "Content-Type: Application/JSON ; charset=UTF-8", body, 200), (plain + "Content-Type: application/jsonl", body, 400),
            (plain + "Accept: */*", body, 400), (plain + "content-type:application/json\nContent-Encoding: Identity", body, 200),
            (plain + "Content-Type: application/json\nContent-Encoding: gzip", body, 415),
            (plain + "Content-Type: application/json\nContent-Encoding: gzip, deflate", body, 415),
            (plain + "Content-Type: application/json\nTransfer-Encoding: gzip, chunked", chunks, 400),
            *((f"POST /tokenize HTTP/1.1{host}\nContent-Type: application/json\nTransfer-Encoding: {encoding}", chunks, status)
              for encoding, status in (("Chunked", 200), ("gzip, chunked", 501), ("gzip", 501), ("gzip\nTransfer-Encoding: chunked", 501))),
            (plain.replace("localhost", "example.org") + "Expect: 100-continue", b"", 403),
            (f"POST /tokenize HTTP/1.1{host}\nContent-Type: application/json\nTransfer-Encoding: chunked\nTrailer: X-Trailer", chunks, 200),
            ("\n\n" + plain + "Content-Type: application/json", body, 200)):
        got, headers, text = raw(server, head, data)
        checks.expect(f"{head!r}: {text}", (got, headers["Accept-Encoding"]), (status, "identity" if status == 415 else None))
    # The client of a large body that is refused can read why.
    checks.expect("a large body", raw(server, f"POST / HTTP/1.1{host}\nContent-Length: 30000000", bytes(30000000))[0], 413)
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
        client.sendall(wire("HEAD /health HTTP/1.1\nHost: localhost")
                       + wire(plain.replace("close", "keep-alive") + "Content-Type: application/json\nExpect: 100-continue") + body + b"\r\n"
                       + wire("GET /livez HTTP/1.1\nHost: localhost")
                       # A body without a length has none, and HTTP/1.0 knows no interim answer.
                       + wire("POST /tokenize HTTP/1.0\nContent-Type: application/json\nExpect: 100-continue"))
        text = b"".join(iter(lambda: client.recv(65536), b""))
        checks.expect("requests at once", re.findall(rb"HTTP/1.. (\d+)", text), [b"200", b"100", b"200", b"200", b"400"])


DIST = pathlib.Path(__file__).resolve().parents[2] / "web" / "dist"
POLICY = ("default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; connect-src 'self'; img-src 'self' data:; "
          "form-action 'none'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'")
# The headers of each file of the page, whatever the server's answer has besides.
PAGE = {"Content-Security-Policy": POLICY, "Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff", "Vary": "Accept-Encoding"}


def page(checks, model):
    """Each file of web/dist answers as it is and compressed, without a key, and only under its name."""
    server = Server(model, env={**os.environ, "QWEN_RUN_API_KEY": "k"})

    def get(path, method="GET", **headers):
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
            lines = "".join(f"\n{name.replace('_', '-')}: {value}" for name, value in headers.items())
            client.sendall(wire(f"{method} {path} HTTP/1.1\nHost: localhost\nConnection: close{lines}"))
            response = http.client.HTTPResponse(client, method=method)
            response.begin()
            return response.status, response.headers, response.read()

    files = {"/" + file.relative_to(DIST).as_posix(): file.read_bytes() for file in DIST.rglob("*") if file.is_file()}
    types = {".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
             ".txt": "text/plain; charset=utf-8", ".woff2": "font/woff2", ".svg": "image/svg+xml", ".png": "image/png"}
    for path, data in {"/": files["/index.html"], **files}.items():
        hashed = hashlib.sha256(data).hexdigest()[:16]
        status, headers, body = get(path)
        checks.expect(f"{path} as it is", (status, body == data, headers["Content-Encoding"], headers["ETag"], headers["Cache-Control"]),
                      (200, True, None, f'"{hashed}"', "no-cache"))
        checks.expect(f"headers of {path}", {name: headers[name] for name in PAGE}, PAGE)
        checks.expect(f"type of {path}", headers["Content-Type"], types[pathlib.Path(path).suffix or ".html"])
        zipped_status, zipped, body = get(path + "?v=" + hashed, Accept_Encoding="br, gzip")
        checks.expect(f"{path} by its hash", (zipped_status, zipped["Cache-Control"]), (200, "max-age=31536000, immutable"))
        if zipped["Content-Encoding"] == "gzip":
            checks.check(len(body) < 0.9 * len(data), f"{path}: gzip saves nothing")
            body = gzip.decompress(body)
        checks.expect(f"{path} compressed", body == data, True)
        checks.expect(f"{path} by another hash", get(path + "?v=" + hashed[::-1])[1]["Cache-Control"], "no-cache")
        head = get(path, "HEAD")
        checks.expect(f"HEAD {path}", (head[0], head[1]["Content-Length"], head[2]), (200, str(len(data)), b""))
        for answer, coding in ((headers, "identity"), (zipped, "gzip")):
            status, again, body = get(path, If_None_Match=f'"x", {answer["ETag"]}', Accept_Encoding=coding)
            checks.expect(f"{path} that the client has", (status, again["ETag"], again["Cache-Control"], again["Content-Length"], body),
                          (304, answer["ETag"], "no-cache", None, b""))
        if zipped["Content-Encoding"]:
            checks.expect(f"{path} with the tag of another coding", get(path, If_None_Match=zipped["ETag"])[0], 200)
        checks.expect(f"POST {path}", get(path, "POST")[0], 405)
    for path in ("/../index.html", "/%2e%2e/index.html", "/dist/index.html", "/index.html%00", "/INDEX.html", "/index", "/package.json", "/..%2findex.html"):
        checks.check(get(path)[0] in (400, 401, 404), f"{path} answers")
    checks.expect("the API without a key", [get(path)[0] for path in ("/openapi.json", "/v1/models", "/metrics")], [401] * 3)
    checks.expect("paths of the description", "/" in server.send("GET", "/openapi.json", headers={"Authorization": "Bearer k"})[2].split('"'), False)
    server.stop()
    without = Server(model, "--no-page")
    checks.expect("/ without a page", without.send("GET", "/")[::2], (200, '{"status":"ok"}'))
    checks.expect("a file without a page", without.send("GET", "/index.html")[0], 404)
    without.stop()


def cross_origin(checks, server, model):
    """Only pages of --cors-origins may send requests."""
    allowed = Server(model, "--cors-origins", "https://a.example,https://b.example", env={**os.environ, "QWEN_RUN_API_KEY": "k"})
    for other, origin, expected in ((server, "https://a.example", (200, None)), (allowed, "https://c.example", (401, None)),
                                    (allowed, "https://b.example", (200, "https://b.example"))):
        status, headers, _ = other.send("OPTIONS", "/v1/models", headers={"Origin": origin})
        checks.expect(f"a preflight of {origin}", (status, headers["Access-Control-Allow-Origin"]), expected)
    status, headers, _ = allowed.send("GET", "/health", headers={"Origin": "https://b.example"})
    checks.expect("an answer to a page", (status, headers["Access-Control-Allow-Origin"], headers["Vary"]), (200, "https://b.example", "Origin"))
    # openai-node sends these, among others.
    asked = "authorization,content-type,openai-beta,openai-organization,x-stainless-arch,x-stainless-retry-count"
    status, headers, _ = allowed.send("OPTIONS", "/chat/completions", headers={
        "Origin": "https://b.example", "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": asked + ",a b"})
    checks.expect("a preflight", (status, headers["Access-Control-Allow-Headers"], headers["Access-Control-Allow-Methods"], headers["Vary"]),
           (200, asked.replace(",", ", "), "POST, GET, HEAD, OPTIONS", "Origin, Access-Control-Request-Headers"))
    key = {"Origin": "https://b.example", "Authorization": "bearer k"}
    for method, path, body, header in (("GET", "/v1/models", None, "Date"), ("GET", "/completions", None, "Allow"),
                                       ("POST", "/v1/completions", {"prompt": "x", "stream": True, "max_tokens": 1}, "X-Accel-Buffering")):
        _, headers, _ = allowed.send(method, path, body, key)
        exposed = headers["Access-Control-Expose-Headers"].split(", ")
        basic = ("Access-Control-Allow-Origin", "Access-Control-Expose-Headers", "Vary", "Connection", "Content-Type", "Content-Length",
                 "Cache-Control", "Transfer-Encoding")
        checks.expect(f"headers of {path} that a page cannot read", (header in headers, [h for h in headers if h not in (*exposed, *basic)]), (True, []))
    status, headers, _ = allowed.send("GET", "/v1/models", headers={"Origin": "https://b.example"})
    checks.expect("a page without a key", (status, headers["Access-Control-Allow-Origin"]), (401, "https://b.example"))
    allowed.stop()
