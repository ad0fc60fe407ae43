"""How long the page of qwen-run serve keeps a reader waiting.

  page.py MODEL [PACKAGES]      MODEL is models/stories, compiled; PACKAGES keeps playwright (default: build/host/clients)

Prints a line of JSON: the time from the page's first byte to a field that takes text (the least of five loads, and all), and each task of more
than 50 ms (PerformanceObserver, longtask) while a conversation of 19,000 tokens is opened and while a scripted server streams 1,000 more.
"""
import json
import os
import pathlib
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
os.environ["PATH"] = f"{ROOT / 'build/host/bin'}:{os.environ['PATH']}"
sys.path[:0] = [str(ROOT / "test" / "Page"), str(ROOT / "test" / "Integration")]
from packages import import_from  # noqa: E402
from server import Server  # noqa: E402

PLAYWRIGHT = "playwright==1.65.2"
TOKENS_A_SECOND = 200
# 95 tokens of Qwen's tokenizer, of all that answers have.
PART = """## A part with a title

Some **words** of a paragraph, with `code`, *stress* and $a^2 + b^2 = c^2$, which is a formula, and a [link](https://example.org/).

- one
- two, which is longer

| a | b |
|---|---|
| 1 | 2 |

```python
def function(argument):
    return argument + 1
```

"""
# Before all else of the page: when it can take text, and tasks that take long.
WATCH = """
window.tasks = [];
new PerformanceObserver((list) => { for (const {duration, startTime} of list.getEntries()) tasks.push([Math.round(startTime), Math.round(duration)]); })
  .observe({type: 'longtask', buffered: true});
window.usable = new Promise((tell) => new MutationObserver((_, observer) => {
  if (!document.querySelector('#prompt')) return;
  observer.disconnect();
  requestAnimationFrame(() => setTimeout(() => tell(performance.now() - performance.getEntriesByType('navigation')[0].responseStart)));
}).observe(document, {childList: true, subtree: true}));
"""


def slow(stream):
    """1,000 tokens at the speed of a small model."""
    text = PART * 11
    for start in range(0, len(text), 3):
        stream.text(text[start:start + 3])
        time.sleep(1 / TOKENS_A_SECOND)
    stream.finish()
    stream.end()


def main():
    model, packages = sys.argv[1], pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else ROOT / "build" / "host" / "clients").resolve()
    if not import_from(PLAYWRIGHT, packages):
        sys.exit("playwright cannot be installed")
    from browser import Tab, chromium, context_of
    from fake_server import FakeServer
    server = Server(model)
    fake = FakeServer(ROOT / "web" / "dist", {path: server.send("GET", path)[2] for path in ("/health", "/openapi.json", "/v1/models", "/metrics")})
    messages = [message for number in range(20) for message in (
        {"role": "user", "content": f"Question {number}"}, {"role": "assistant", "content": PART * 10})]
    with chromium() as browser:
        usable = []
        for _ in range(5):
            context = context_of(browser)
            context.add_init_script(WATCH)
            tab = Tab(context, server.address)
            usable.append(round(tab.page.evaluate("usable")))
            context.close()
        context = context_of(browser)
        context.add_init_script(WATCH)
        tab = Tab(context, fake.address)
        tab.page.evaluate("usable")
        tab.page.wait_for_timeout(500)
        tab.page.evaluate("tasks.length = 0")
        tab.page.locator("#sidebar input[type=file]").set_input_files(
            {"name": "long.json", "mimeType": "application/json", "buffer": json.dumps({"messages": messages}).encode()})
        tab.answers.nth(19).wait_for()
        tab.page.locator("article.assistant h2").nth(199).wait_for()
        tab.page.wait_for_timeout(500)
        opened = tab.page.evaluate("tasks.splice(0)")
        fake.script = slow
        tab.settled(tab.ask("Go on"))
        tab.page.wait_for_timeout(500)
        print(json.dumps({"usable_ms": min(usable), "loads_ms": usable, "tasks_open_ms": [task[1] for task in opened],
                          "tasks_stream_ms": [task[1] for task in tab.page.evaluate("tasks")]}))
    server.stop()


main()
