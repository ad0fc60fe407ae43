"""What the page does: a case for each feature."""
import dataclasses
import json
import threading
import time

from browser import Tab, context_of
from fake_server import answer

STORY = "Once upon a time there was a king."


@dataclasses.dataclass
class Setup:
    checks: object
    browser: object
    fake: object
    # The real server, and the text of axe-core or nothing.
    server: object
    axe: str

    def expect(self, *arguments):
        self.checks.expect(*arguments)

    def tab(self, address=None, **options):
        tab = Tab(context_of(self.browser, **options), address or self.fake.address)
        return tab

    def end(self, tab):
        """Closes the tab's profile; no case may break the policy or throw."""
        self.expect("faults", tab.faults, [])
        tab.page.context.close()


def held(before, event, after="", **finish):
    """A script that waits for an event between two texts."""
    def script(stream):
        stream.text(before)
        event.wait(10)
        if after:
            stream.text(after)
        stream.finish(**finish)
        stream.end()
    return script


def streams(s):
    tab, event = s.tab(), threading.Event()
    s.fake.script = held("First **part**, ", event, "last part.")
    live = tab.ask("Hi")
    live.get_by_text("First").wait_for()
    s.expect("a part while the rest is written", (live.locator("strong").inner_text(), "last" in tab.text(live)), ("part", False))
    s.expect("the button while an answer is written", tab.button.get_attribute("aria-label"), "Stop")
    event.set()
    tab.settled(live)
    s.expect("the whole answer", tab.text(live), "First part, last part.")
    body = s.fake.asked()[0]
    s.expect("the request", (body["messages"], body["stream"], "top_logprobs" in body, body.get("logprobs")),
             ([{"role": "user", "content": "Hi"}], True, False, None))
    s.fake.script = answer("Second.")
    tab.answer_to("Go on")
    s.expect("the conversation", [m["content"] for m in s.fake.asked()[1]["messages"]], ["Hi", "First **part**, last part.", "Go on"])
    s.expect("numbers of an answer", bool(tab.answers.last.get_by_text("tokens/s").count()), True)
    s.end(tab)


def markdown(s):
    tab = s.tab()
    s.fake.script = answer("# Title\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```python\ndef f():\n    return 1\n```\n\n$$\\frac{a}{b}$$ and $x^2$\n\n- one\n- two\n\n"
                           "[link](https://example.org/)\n\nمرحبا بالعالم\n\nHello", size=5)
    last = tab.answer_to("Hi")
    for selector, count in (("h1", 1), ("td", 2), ("pre code", 1), (".katex", 2), ("li", 2), ("pre .code-keyword", 2)):
        s.expect(f"elements {selector}", last.locator(selector).count(), count)
    link = last.get_by_role("link", name="link")
    s.expect("a link", (link.get_attribute("target"), "noopener" in link.get_attribute("rel")), ("_blank", True))
    directions = last.evaluate("element => [...element.querySelectorAll('p')].slice(-2).map((p) => getComputedStyle(p).direction)")
    s.expect("directions of texts", directions, ["rtl", "ltr"])
    s.end(tab)


def stops(s):
    tab, event = s.tab(), threading.Event()
    for way in (lambda: tab.button.click(), lambda: tab.page.keyboard.press("Escape")):
        s.fake.script = held("A part. ", event, "Never.")
        live = tab.ask("Hi")
        live.get_by_text("A part.").wait_for()
        way()
        tab.settled(live)
        s.expect("a stopped answer", (tab.text(live).strip(), live.get_by_text("You stopped this answer.").count()), ("A part.", 1))
    event.set()
    s.end(tab)


def branches(s):
    tab = s.tab()
    s.fake.script = answer("One.")
    tab.answer_to("First")
    s.fake.script = answer("Two.")
    edit = tab.prompts.last
    tab.named("button", "Edit", edit).click()
    edit.locator("textarea").fill("Changed")
    tab.named("button", "Send as a new branch", edit).click()
    tab.page.get_by_text("Two.", exact=True).first.wait_for()
    tab.settled()
    s.expect("an edited message", [m["content"] for m in s.fake.asked()[-1]["messages"]], ["Changed"])
    tab.named("button", "Previous branch").first.click()
    tab.page.locator("article.assistant").get_by_text("One.", exact=True).wait_for()
    s.expect("the old branch", (tab.prompts.last.locator(".body").inner_text(), tab.text(tab.answers.last)), ("First", "One."))
    s.fake.script = answer("Three.")
    tab.named("button", "Another answer, with a new seed", tab.answers.last).click()
    tab.page.locator("article.assistant").get_by_text("Three.", exact=True).wait_for()
    tab.settled()
    s.expect("a new seed", s.fake.asked()[-1].get("seed"), None)
    s.expect("branches of answers", tab.answers.last.get_by_role("group", name="Branch 2 of 2").count(), 1)
    tab.prompt.press("ArrowUp")
    s.expect("the last message by a key", tab.prompts.last.locator("textarea").input_value(), "First")
    s.end(tab)


def same_again(s):
    tab = s.tab()
    s.fake.script = answer("Chance.")
    tab.answer_to("Hi")
    for text, told in (("Chance.", "Same text, bit for bit"), ("Other.", "Not the same text")):
        s.fake.script = answer(text)
        count = len(s.fake.asked())
        tab.named("button", "Same again", tab.answers.last).click()
        tab.page.get_by_text(told).wait_for()
        tab.settled()
        s.expect("requests", len(s.fake.asked()), count + 1)
        s.expect("the seed of the same", s.fake.asked()[-1]["seed"], 7)
        tab.named("button", "Previous branch", tab.answers.last).click()
        tab.page.get_by_text(told).wait_for(state="detached")
    s.end(tab)


def reasoning(s):
    tab = s.tab()

    def script(stream):
        stream.reasoning("Let me think.")
        stream.text("Done.")
        stream.finish()
        stream.end()
    s.fake.script = script
    last = tab.answer_to("Hi")
    details = last.locator("details")
    s.expect("reasoning is folded", (details.get_attribute("open"), tab.text(last)), (None, "Done."))
    details.locator("summary").click()
    details.get_by_text("Let me think.").wait_for()
    s.end(tab)


def settings(s):
    """Each option of the sampler that the server tells has a field with its help; what is set is sent, and nothing else."""
    properties = json.loads(s.fake.facts["/openapi.json"])["paths"]["/v1/chat/completions"]["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"]
    samplers = {name: row for name, row in properties.items() if row.get("x-group") == "sampling"}
    s.checks.check(len(samplers) > 15, f"{len(samplers)} samplers")
    tab = s.tab()
    tab.named("button", "Settings").click()
    dialog = tab.page.get_by_role("dialog", name="Settings")
    for name, row in samplers.items():
        field = dialog.locator(f"#set-{name}")
        s.expect(f"fields of {name}", field.count(), 1)
        told = tab.page.locator(f"#set-{name}-help").text_content()
        s.checks.check(row["description"] in told, f"the help of {name} is {told!r}")
        if isinstance(row["default"], list):
            continue
        s.expect(f"default of {name}", float(field.get_attribute("placeholder") or field.input_value()), float(row["default"]))
    dialog.locator("#set-temperature").fill("9")
    s.expect("a value that is too large", dialog.locator("#set-temperature-problem").is_visible(), True)
    dialog.locator("#set-temperature").fill("0.5")
    dialog.locator("#set-system").fill("Be brief.")
    dialog.locator("#set-seed").fill("18446744073709551615")
    tab.page.keyboard.press("Escape")
    s.expect("the focus after a dialog", tab.page.evaluate("document.activeElement.id"), "settings")
    tab.answer_to("Hi")
    body = s.fake.asked()[-1]
    s.expect("what is sent", (body["messages"][0], body["seed"], {name: body[name] for name in samplers if name in body}),
             ({"role": "system", "content": "Be brief."}, 18446744073709551615, {"temperature": 0.5}))
    s.end(tab)


def presets(s):
    told = json.loads(s.fake.facts["/openapi.json"]).get("x-presets")
    if not told:
        return
    tab = s.tab()
    for preset in told:
        tab.named("button", "Settings").click()
        tab.page.locator("button.preset", has_text=preset["name"]).first.click()
        tab.page.keyboard.press("Escape")
        tab.answer_to("Hi")
        body = s.fake.asked()[-1]
        s.expect(f"preset {preset['name']}", {name: body.get(name) for name in preset["settings"]}, preset["settings"])
    s.end(tab)


def progress(s):
    tab, event, second = s.tab(), threading.Event(), threading.Event()

    def script(stream):
        stream.progress(512, 2048)
        event.wait(10)
        stream.text("Read.")
        second.wait(10)
        stream.finish()
        stream.end()
    s.fake.script = script
    live = tab.ask("Hi")
    live.get_by_text("512 of 2,048").wait_for()
    s.expect("the bar", live.locator("progress").evaluate("bar => bar.value / bar.max"), 0.25)
    event.set()
    live.get_by_text("Read.").wait_for()
    second.set()
    tab.settled(live)
    s.expect("tokens/s", "tokens/s" in live.inner_text(), True)
    s.end(tab)


def tokens(s):
    tab = s.tab()

    def script(stream):
        stream.token("King", -0.105, [("King", -0.105), ("Queen", -2.3)])
        stream.token(" sat", -1.2, [(" stood", -0.5), (" sat", -1.2)])
        stream.finish()
        stream.end()
    s.fake.script = script
    tab.answer_to("Hi")
    s.expect("probabilities before the view", [name for name in ("logprobs", "top_logprobs") if s.fake.asked()[-1].get(name)], [])
    tab.named("button", "Tokens and their alternatives", tab.answers.last).click()
    dialog = tab.page.get_by_role("dialog")
    dialog.get_by_role("option").nth(1).wait_for()
    body = s.fake.asked()[-1]
    s.expect("probabilities on demand", (body["logprobs"], body["top_logprobs"] > 1, body["seed"]), (True, True, 7))
    dialog.get_by_role("option").first.click()
    table = dialog.get_by_role("table").inner_text()
    s.checks.check("90.0%" in table and "Queen" in table and "10.0%" in table, f"alternatives are {table!r}")
    tab.page.keyboard.press("ArrowRight")
    s.checks.check("stood" in dialog.get_by_role("table").inner_text(), "the arrow keys do not go on")
    tab.page.keyboard.press("Escape")
    dialog.wait_for(state="detached")
    s.end(tab)


def keeps(s):
    """Conversations outlive the tab, are found by their text, and go out and in as files."""
    tab = s.tab()
    s.fake.script = answer("A walrus answers.")
    tab.answer_to("About the sea")
    tab.named("button", "New conversation").first.click()
    s.fake.script = answer("A camel answers.")
    tab.answer_to("About the sand")
    tab.page.reload()
    rows = tab.page.locator("#sidebar .conversation .title")
    rows.nth(1).wait_for()
    s.expect("conversations after a reload", rows.all_inner_texts(), ["About the sand", "About the sea"])
    tab.page.keyboard.press("Control+k")
    tab.page.keyboard.type("walrus")
    rows.nth(1).wait_for(state="detached")
    s.expect("what a search finds", rows.all_inner_texts(), ["About the sea"])
    rows.first.click()
    tab.page.get_by_text("A walrus answers.").first.wait_for()
    tab.page.get_by_role("button", name="More for this conversation").first.click()
    with tab.page.expect_download() as download:
        tab.named("button", "Export this conversation").click()
    text = open(download.value.path()).read()
    saved = json.loads(text)
    s.expect("an export", ([m["content"] for m in saved["messages"]], saved["seed"]), (["About the sea", "A walrus answers."], 7))
    status, _, told = s.server.send("POST", "/v1/chat/completions", {**saved, "messages": saved["messages"][:1], "max_tokens": 1})
    s.expect(f"the server takes an export: {told}", status, 200)
    tab.page.locator("#sidebar input[type=file]").set_input_files({"name": "other.json", "mimeType": "application/json", "buffer": text.replace("walrus", "seal").encode()})
    tab.page.locator("article.assistant").get_by_text("A seal answers.").wait_for()
    for bad in ("{", "[]", '{"messages": 3}', '{"messages": [{"role": "system", "content": {}}]}'):
        tab.page.locator("#sidebar input[type=file]").set_input_files({"name": "bad.json", "mimeType": "application/json", "buffer": bad.encode()})
        tab.page.get_by_text("bad.json is not a conversation").wait_for()
    s.end(tab)


def files(s):
    tab = s.tab()
    tab.page.evaluate("""() => {
      const data = new DataTransfer();
      data.items.add(new File(['print(1)\\n'], 'a.py'));
      data.items.add(new File([new Uint8Array([0, 255, 0])], 'b.bin'));
      for (const kind of ['dragover', 'drop']) document.body.dispatchEvent(new DragEvent(kind, {dataTransfer: data, bubbles: true, cancelable: true}));
    }""")
    tab.page.get_by_text("a.py", exact=True).wait_for()
    s.expect("a file that is not text", tab.page.get_by_text("b.bin is not a file of text.").count(), 1)
    tab.answer_to("Explain")
    sent = s.fake.asked()[-1]["messages"][0]["content"]
    s.checks.check("print(1)" in sent and "a.py" in sent and "Explain" in sent, f"the file is sent as {sent!r}")
    s.end(tab)


def keyboard(s):
    tab = s.tab()
    tab.answer_to("Hi")
    tab.page.keyboard.press("Control+,")
    tab.page.get_by_role("dialog", name="Settings").wait_for()
    tab.page.keyboard.press("Escape")
    tab.page.get_by_role("dialog").wait_for(state="detached")
    tab.page.keyboard.press("Control+Shift+O")
    tab.answers.first.wait_for(state="detached")
    s.expect("the focus in a new conversation", tab.page.evaluate("document.activeElement.id"), "prompt")
    tab.prompt.fill("a")
    tab.prompt.press("Shift+Enter")
    s.expect("a new line", tab.prompt.input_value(), "a\n")
    seen = set()
    for _ in range(40):
        tab.page.keyboard.press("Tab")
        seen.add(tab.page.evaluate("document.activeElement.id || document.activeElement.textContent"))
    s.checks.check({"search", "settings", "prompt"} <= seen, f"Tab reaches {seen}")
    s.end(tab)


def languages(s):
    for locale, language, label in (("zh-CN", "zh", "消息"), ("zh-TW", "zh", None), ("fr-FR", "en", "Message")):
        tab = s.tab(locale=locale)
        s.expect(f"language of {locale}", tab.page.locator("html").get_attribute("lang")[:2], language)
        name = tab.prompt.get_attribute("aria-label")
        s.checks.check(not name.isascii() if language == "zh" else name == label, f"the prompt of {locale} is {name!r}")
        s.end(tab)


def themes(s):
    shade = "getComputedStyle(document.body).backgroundColor.match(/[\\d.]+/g).slice(0, 3).map(Number).reduce((a, b) => a + b) / 3"
    light, dark = s.tab(color_scheme="light"), s.tab(color_scheme="dark")
    s.checks.check(light.page.evaluate(shade) > 200 > 60 > dark.page.evaluate(shade), "the themes are not light and dark")
    light.named("button", "About this page").click()
    light.page.get_by_role("combobox", name="Theme").select_option("dark")
    light.page.keyboard.press("Escape")
    s.checks.check(light.page.evaluate(shade) < 60, "the theme does not change")
    light.page.reload()
    light.prompt.wait_for()
    s.checks.check(light.page.evaluate(shade) < 60, "the theme is forgotten")
    s.end(light), s.end(dark)


def narrow(s):
    """Nothing of the page is wider than 320 pixels; what is wide scrolls by itself."""
    tab = s.tab(viewport={"width": 320, "height": 640})
    wide = "document.scrollingElement.scrollWidth"
    s.expect("width when empty", tab.page.evaluate(wide), 320)
    s.fake.script = answer("x" * 500 + "\n\n```\n" + "y" * 500 + "\n```\n\n|" + " long cell |" * 20 + "\n|" + "---|" * 20 + "\n\n$$" + "a+" * 90 + "b$$")
    tab.answer_to("word" * 80)
    s.expect("width with a long answer", tab.page.evaluate(wide), 320)
    tab.named("button", "Settings").click()
    tab.page.get_by_role("dialog", name="Settings").wait_for()
    s.expect("width with settings", tab.page.evaluate(wide), 320)
    tab.page.keyboard.press("Escape")
    tab.page.locator("#menu").click()
    tab.named("button", "New conversation").first.click()
    tab.answers.first.wait_for(state="detached")
    s.end(tab)


def dies(s):
    tab = s.tab()

    def script(stream):
        stream.text("Half of ")
        time.sleep(0.05)
        stream.die()
    s.fake.script = script
    last = tab.ask("Hi")
    failure = last.locator(".failure")
    failure.wait_for()
    s.expect("what a dead server left", (tab.text(last).strip(), "stopped in the middle" in failure.inner_text()), ("Half of", True))
    s.fake.script = answer("All of it.")
    tab.named("button", "Try again", last).click()
    last.get_by_text("All of it.").wait_for()
    tab.settled(last)
    s.expect("after a retry", (tab.text(last), last.locator(".failure").count()), ("All of it.", 0))
    s.end(tab)


def busy(s):
    tab, event = s.tab(), threading.Event()
    s.fake.facts["/metrics"] = 'vllm:num_requests_running{model_name="x"} 16\nvllm:num_requests_waiting{model_name="x"} 3\n'
    s.fake.script = held("Late.", event)
    tab.prompt.wait_for()

    def waits(stream):
        event.wait(10)
        answer("Late.")(stream)
    s.fake.script = waits
    live = tab.ask("Hi")
    live.get_by_text("16 requests run, 3 wait").wait_for()
    event.set()
    tab.settled(live)
    for status, told in ((429, "The server is busy and its queue is full."), (503, "too many requests wait")):
        s.fake.script = lambda stream, status=status: stream.refuse(status, "too many requests wait", {"Retry-After": "60"})
        last = tab.ask("Hi")
        last.locator(".failure").wait_for()
        s.checks.check(told in last.locator(".failure").inner_text(), f"{status} is not told")
        s.fake.script = answer("Now.")
        last.locator(".failure button").first.click()
        last.get_by_text("Now.").wait_for()
        tab.settled(last)
    s.end(tab)


def too_long(s):
    tab = s.tab()
    tab.answer_to("An old message. " * 50)
    s.fake.script = lambda stream: stream.refuse(400, "too long", code="context_length_exceeded", n_prompt_tokens=1100, n_ctx=1024)
    last = tab.ask("The last message.")
    failure = last.locator(".failure")
    failure.wait_for()
    s.checks.check("1,100" in failure.inner_text() and "1,024" in failure.inner_text(), f"the lengths are not told: {failure.inner_text()}")
    s.fake.script = answer("Short enough.")
    tab.named("button", "Leave out the oldest turn", last).click()
    last.get_by_text("Short enough.").wait_for()
    s.expect("what is left", [m["content"] for m in s.fake.asked()[-1]["messages"]], ["The last message."])
    s.end(tab)


def key(s):
    """The key is in the session unless "remember" is ticked, and in no URL, export or log."""
    s.fake.key = "secret-key"
    tab = s.tab()
    logged = []
    tab.page.on("console", lambda message: logged.append(message.text))
    dialog = tab.page.get_by_role("dialog")
    stores = "[sessionStorage, localStorage].map((store) => JSON.stringify(store).includes('secret-key'))"
    for remember in (False, True):
        dialog.wait_for()
        dialog.get_by_label("API key").locator("visible=true").last.fill("secret-key")
        dialog.get_by_role("checkbox").set_checked(remember)
        tab.named("button", "Use the key", dialog).click()
        dialog.wait_for(state="detached")
        tab.page.get_by_text("Talk with stories").wait_for()
        s.expect(f"where the key is ({remember})", tab.page.evaluate(stores), [not remember, remember])
        tab.answer_to("Hi")
        tab.page.get_by_role("button", name="More for this conversation").first.click()
        with tab.page.expect_download() as download:
            tab.named("button", "Export this conversation").click()
        s.expect("a key in an export", "secret" in open(download.value.path()).read(), False)
        tab.named("button", "Settings").click()
        tab.named("button", "Forget the key").click()
        s.expect("where the key is when it is forgotten", tab.page.evaluate(stores), [False, False])
        tab.page.reload()
    s.expect("a key in URLs or logs", [text for text in (*tab.requests, *logged, tab.page.url) if "secret" in text], [])
    kept = tab.page.evaluate("""async () => JSON.stringify(await Promise.all((await indexedDB.databases()).map(({name}) => new Promise((done) => {
      const request = indexedDB.open(name);
      request.onsuccess = () => {
        const database = request.result;
        const all = [...database.objectStoreNames].map((store) => new Promise((got) => (database.transaction(store).objectStore(store).getAll().onsuccess = (e) => got(e.target.result))));
        Promise.all(all).then((rows) => (database.close(), done(rows)));
      };
    }))))""")
    s.expect("a key in the database", ("secret" in kept, "Hi" in kept), (False, True))
    s.end(tab)


def models(s):
    first = json.loads(s.fake.facts["/v1/models"])["data"][0]
    tab = s.tab()
    s.expect("a choice of one model", tab.page.get_by_role("combobox", name="Model").is_visible(), False)
    s.end(tab)
    s.fake.facts["/v1/models"] = json.dumps({"object": "list", "data": [{**first, "id": name} for name in ("one", "two")]})
    tab = s.tab()
    choice = tab.page.get_by_role("combobox", name="Model")
    choice.select_option("two")
    tab.answer_to("Hi")
    s.expect("the chosen model", s.fake.asked()[-1]["model"], "two")
    s.end(tab)


def two_tabs(s):
    """Two tabs of one profile write answers at once; each sees what the other has kept."""
    context, event = context_of(s.browser), threading.Event()
    tabs = [Tab(context, s.fake.address) for _ in range(2)]
    s.fake.script = lambda stream: held("To " + stream.body["messages"][-1]["content"], event, ", whole.")(stream)
    live = []
    for number, tab in enumerate(tabs):
        tab.page.bring_to_front()
        live.append(tab.ask(f"tab {number}"))
        live[-1].get_by_text("To tab").wait_for()
    event.set()
    for number, tab in enumerate(tabs):
        tab.page.bring_to_front()
        tab.settled(live[number])
        s.expect(f"the answer in tab {number}", tab.text(live[number]), f"To tab {number}, whole.")
        rows = tab.page.locator("#sidebar .conversation .title")
        rows.nth(1).wait_for()
        s.expect(f"conversations in tab {number}", sorted(rows.all_inner_texts()), ["tab 0", "tab 1"])
    # One goes on with the other's conversation, and that one follows.
    tabs[1].page.locator("#sidebar .conversation .title", has_text="tab 0").click()
    tabs[1].page.get_by_text("To tab 0, whole.").first.wait_for()
    tabs[1].answer_to("more")
    tabs[0].page.bring_to_front()
    tabs[0].page.get_by_text("To more, whole.").first.wait_for()
    tabs[1].faults += tabs[0].faults
    s.end(tabs[1])


def real(s):
    """With models/stories: the answer is that of the server, the same again has the same bits, and tokens have their alternatives."""
    tab = s.tab(s.server.address)
    tab.named("button", "Settings").click()
    tab.page.locator("#set-max_tokens").fill("40")
    tab.page.locator("#set-seed").fill("3")
    tab.page.keyboard.press("Escape")
    last = tab.answer_to(STORY)
    whole = s.server.post("/v1/chat/completions", messages=[{"role": "user", "content": STORY}], max_tokens=40, seed=3)
    s.expect("the answer", tab.text(last).split(), whole["choices"][0]["message"]["content"].split())
    tab.named("button", "Same again", last).click()
    tab.page.get_by_text("Same text, bit for bit").wait_for()
    tab.settled()
    tab.named("button", "Tokens and their alternatives", tab.answers.last).click()
    options = tab.page.get_by_role("dialog").get_by_role("option")
    options.nth(39).wait_for()
    options.nth(5).click()
    s.checks.check(tab.page.get_by_role("dialog").get_by_role("row").count() > 4, "a token has no alternatives")
    tab.page.keyboard.press("Escape")
    tab.ask("word " * 2000).locator(".failure").wait_for()
    ours = [url for url in tab.requests if not url.startswith((s.server.address, "data:", "blob:"))]
    s.expect("requests elsewhere", ours, [])
    s.end(tab)


def kept_blocks(s):
    """Of a long answer that grows, no finished block is built again (bench/page.py measures the time)."""
    tab, event = s.tab(), threading.Event()
    paragraph = "Some **words** of a paragraph with `code`.\n\n"
    s.fake.script = held(paragraph * 60 + "```\nx\n```\n\n", event, paragraph * 40 + "The end.")
    live = tab.ask("Hi")
    live.locator("pre").wait_for()
    tab.page.evaluate("""() => {
      const chunks = [...document.querySelectorAll('article.live .chunk:not(.tail)')];
      window.finished = chunks.flatMap((chunk) => [...chunk.children]);
      window.changed = 0;
      new MutationObserver((records) => {
        for (const {target, removedNodes} of records)
          if (removedNodes.length && target.closest?.('.chunk:not(.tail)')) window.changed += removedNodes.length;
      }).observe(document.querySelector('article.live .body'), {childList: true, subtree: true});
    }""")
    event.set()
    live.get_by_text("The end.").wait_for()
    tab.settled(live)
    kept, gone, changed, blocks = tab.page.evaluate(
        "[finished.length, finished.filter((each) => !each.isConnected).length, changed, document.querySelectorAll('article .body p').length]")
    s.checks.check(kept > 40, f"{kept} blocks were finished")
    s.expect("finished blocks that went or changed", (gone, changed, blocks >= 101), (0, 0, True))
    s.end(tab)


def accessible(s):
    """axe-core finds nothing serious in the main states, in both themes."""
    if not s.axe:
        return print("skipped: no axe-core")
    s.fake.script = answer("# Title\n\nText with `code`.\n\n```python\nx = 1\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n$$x^2$$")
    for scheme in ("light", "dark"):
        tab = s.tab(color_scheme=scheme, bypass_csp=True)
        tab.page.evaluate(s.axe)

        def look(state):
            found = tab.page.evaluate("axe.run(document, {resultTypes: ['violations']}).then(({violations}) => violations.filter(({impact}) => "
                                      "['serious', 'critical'].includes(impact)).map(({id, nodes}) => id + ': ' + nodes.slice(0, 3).map(({html}) => html.slice(0, 120)).join(' | ')))")
            s.expect(f"axe-core, {state}, {scheme}", found, [])
        look("empty")
        tab.answer_to("Hi")
        look("an answer")
        tab.named("button", "Settings").click()
        look("settings")
        tab.page.keyboard.press("Escape")
        tab.named("button", "About this page").click()
        look("about")
        tab.page.keyboard.press("Escape")
        s.fake.script, before = (lambda stream: stream.refuse(400, "no")), s.fake.script
        tab.ask("Hi").locator(".failure").wait_for()
        look("an error")
        tab.page.set_viewport_size({"width": 320, "height": 640})
        look("an error on a phone")
        tab.page.locator("#menu").click()
        look("conversations on a phone")
        s.fake.script = before
        tab.page.context.close()


CASES = {case.__name__: case for case in (
    streams, markdown, stops, branches, same_again, reasoning, settings, presets, progress, tokens, keeps, files, keyboard, languages, themes,
    narrow, dies, busy, too_long, key, models, two_tabs, real, kept_blocks, accessible)}
