"""What a reader does with the page: a case for each feature."""
import json
import threading

from fake_server import answer, held


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


def emphasis(s):
    """Chinese and Japanese have no spaces around emphasis, and punctuation of their own. Other texts are as in CommonMark."""
    strong = ("**“中文”**是", "**重点：**后面", "这是**「强调」**的", "**注意！**请", "他说**《三体》**很好", "**価格（税込）**です", "**第一，**第二", "版本**3.0（新）**发布",
              "**`code`**是", "在**[链接](https://example.org/)**中", "**注意**：请", "（**重点**）后", "**「强调」**is", "이것은**“강조”**의", "***“斜”***体")
    plain = ("2 ** 3 ** 4", "a**“b”**c", "这是 ** 不是 ** 的", "\\*\\*不是\\*\\*", "`**代码**`")
    tab = s.tab()
    s.fake.script = answer("\n\n".join((*strong, *plain, "~~「删除」~~的 *“斜”*体")), size=3)
    paragraphs = tab.answer_to("Hi").locator("p")
    marks = paragraphs.evaluate_all("all => all.map((p) => [p.querySelectorAll('strong').length, p.textContent.includes('*')])")
    s.expect("emphasis", marks, [[1, False]] * len(strong) + [[0, True]] * len(plain) + [[0, False]])
    s.expect("other marks", [paragraphs.last.locator(tag).inner_text() for tag in ("del", "em")], ["「删除」", "“斜”"])
    s.end(tab)


def links(s):
    """A reference may stand before its definition and in another block; half a definition is none."""
    tab, event = s.tab(), threading.Event()
    first = "[before][a], ![image][a] and [b].\n\n- [item][A  label]\n\n| [cell][b] |\n|---|\n\n[a]: https://example.org/ha"
    s.fake.script = held(first, event, "lf 'title'\n[b]: https://example.org/b\n[a]: https://example.org/second\n\n> [quote]\n>\n> [quote]: https://example.org/q\n\n"
                         "[behind][b] [none] [constructor]\n\n" + "A paragraph.\n\n" * 300 + "[far][b]\n\n[a label]: https://example.org/label")
    live = tab.ask("Hi")
    live.locator("td, th").wait_for()
    s.expect("links without definitions", live.locator("a").count(), 0)
    event.set()
    for what in ("streamed", "opened"):
        tab.settled(live)
        live.get_by_role("link", name="item").wait_for()
        found = live.locator(".body a").evaluate_all("all => all.map((a) => [a.textContent, a.href.replace('https://example.org/', ''), a.title])")
        s.expect(f"links, {what}", found, [["before", "half", "title"], ["🖼 image", "half", ""], ["b", "b", ""], ["item", "label", ""], ["cell", "b", ""], ["quote", "q", ""],
                                           ["behind", "b", ""], ["far", "b", ""]])
        s.checks.check("[none] [constructor]" in live.text_content(), "a reference without a definition is not text")
        tab.page.reload()
        tab.page.locator("#sidebar .conversation .title").first.click()
        live = tab.answers.first
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


def late_settings(s):
    tab, event = s.tab(), threading.Event()
    s.fake.waits["/openapi.json"] = event
    tab.page.reload(wait_until="commit")
    tab.named("button", "Settings").click()
    tab.page.get_by_text("The server did not tell its settings.").wait_for()
    event.set()
    tab.page.locator("#set-temperature").wait_for()
    tab.page.keyboard.press("Escape")
    tab.page.get_by_role("dialog").wait_for(state="detached")
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


def choices(s):
    """The choices of an answer, also those of a beam search, are branches."""
    tab = s.tab()

    def script(stream):
        for index in range(2):
            stream.text(f"Choice {index}.", index=index)
            stream.finish(index=index)
        stream.end()
    s.fake.script = script
    names = [name for name in ("n", "num_beams") if f'"{name}"' in s.fake.facts["/openapi.json"]]
    tab.named("button", "Settings").click()
    for name in names:
        tab.page.locator(f"#set-{name}").fill("2")
    tab.page.keyboard.press("Escape")
    last = tab.answer_to("Hi")
    s.expect("what is asked", [s.fake.asked()[-1][name] for name in names], [2] * len(names))
    last.get_by_role("group", name="Branch 1 of 2").wait_for()
    s.expect("the first choice", tab.text(last), "Choice 0.")
    tab.named("button", "Next branch", last).click()
    tab.page.locator("article.assistant").get_by_text("Choice 1.", exact=True).wait_for()
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


def elsewhere(s):
    """An answer goes on while another conversation is shown, and lands in its own; the reader can stop, rename and delete each."""
    tab, events = s.tab(), {name: threading.Event() for name in ("one", "two", "three")}
    rows, marks = tab.page.locator("#sidebar .conversation .title"), tab.page.get_by_role("img", name="The answer is being written.")
    new = tab.named("button", "New conversation").first

    def script(stream):
        name = stream.body["messages"][-1]["content"]
        held(f"To {name}", events[name], ", whole.")(stream)

    def part_of(name):
        live = tab.ask(name)
        live.get_by_text(f"To {name}").wait_for()
        s.expect("what another conversation shows", tab.answers.count(), 1)

    def open_(name, text):
        rows.get_by_text(name, exact=True).click()
        tab.page.locator("article.assistant").get_by_text(text, exact=True).wait_for()
    s.fake.script = script
    part_of("one")
    new.click()
    tab.answers.first.wait_for(state="detached")
    s.expect("the button in a new conversation", tab.button.get_attribute("aria-label"), "Send")
    part_of("two")
    marks.nth(1).wait_for()
    open_("one", "To one")
    s.expect("the button in a conversation with a part", tab.button.get_attribute("aria-label"), "Stop")
    events["two"].set()
    marks.nth(1).wait_for(state="detached")
    s.expect("the other answer", (tab.text(tab.answers.last), tab.answers.count(), tab.page.locator("article.live").count()), ("To one", 1, 1))
    tab.page.get_by_role("button", name="More for this conversation: one").click()
    tab.named("button", "Rename").click()
    tab.page.keyboard.type("renamed\n")
    rows.get_by_text("renamed", exact=True).wait_for()
    new.click()
    part_of("three")
    events["one"].set()
    marks.nth(1).wait_for(state="detached")
    tab.page.get_by_role("button", name="More for this conversation: three").click()
    tab.named("button", "Delete").click()
    tab.page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    marks.first.wait_for(state="detached")
    events["three"].set()
    for _ in range(2):
        open_("two", "To two, whole.")
        open_("renamed", "To one, whole.")
        s.expect("conversations", sorted(rows.all_inner_texts()), ["renamed", "two"])
        tab.page.reload()
        rows.nth(1).wait_for()
    # A busy server is asked again, too.
    s.fake.script = lambda stream: stream.refuse(429, "full", {"Retry-After": "1"})
    tab.ask("busy").locator(".failure").wait_for()
    s.fake.script = answer("Now.")
    open_("two", "To two, whole.")
    marks.first.wait_for(state="detached")
    open_("busy", "Now.")
    s.end(tab)


def drafts(s):
    tab = s.tab()
    file = {"name": "a.py", "mimeType": "text/x-python", "buffer": b"print(1)"}
    tab.prompt.fill("Half a\nmessage")
    tab.page.locator(".composer input[type=file]").set_input_files(file)
    tab.page.get_by_text("a.py", exact=True).wait_for()
    tab.page.reload()
    tab.page.get_by_text("a.py", exact=True).wait_for()
    s.expect("a draft after a reload", (tab.prompt.input_value(), tab.button.is_enabled(), tab.prompt.bounding_box()["height"] > 40), ("Half a\nmessage", True, True))
    tab.prompt.press("Enter")
    tab.settled(tab.answers.first)
    s.checks.check(s.fake.asked()[-1]["messages"][0]["content"].endswith("Half a\nmessage"), "the draft is not sent")
    # A file that is too large to be kept does not take the text along.
    tab.page.locator(".composer input[type=file]").set_input_files({**file, "buffer": b"\x01" * (2 << 20)})
    tab.page.locator(".chip").wait_for()
    tab.prompt.fill("More")
    tab.page.reload()
    tab.page.get_by_text("Talk with stories").wait_for()
    s.expect("a draft with a large file", (tab.prompt.input_value(), tab.page.locator(".chip").count()), ("More", 0))
    s.end(tab)


def imports(s):
    """An import without some of its settings says so."""
    tab = s.tab()
    body = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}], "temperature": 0.5, "seed": 3}

    def take(*files):
        tab.page.locator("#sidebar input[type=file]").set_input_files(
            [{"name": f"{i}.json", "mimeType": "application/json", "buffer": json.dumps(file).encode()} for i, file in enumerate(files)])
        notice = tab.page.locator(".notice")
        notice.get_by_text(f'Imported "{len(files) - 1}".').wait_for()
        return notice.locator("span").inner_text()
    s.expect("an import", take(body), 'Imported "0".')
    unknown = {"warp": 1, "<b>x</b>" + "y" * 99: {}, "none": None}
    told = take({**body, **unknown}, body)
    s.expect("an import with unknown settings", told,
             f'Imported "0". Left out, because the server has no such setting: warp, {("<b>x</b>" + "y" * 99)[:40]}…. Imported "1".')
    tab.page.locator("#sidebar .conversation .title").get_by_text("0", exact=True).first.click()
    tab.answer_to("More")
    s.expect("what is sent", {name: value for name, value in s.fake.asked()[-1].items() if name in body or name in unknown and name != "messages"},
             {"messages": body["messages"] + [{"role": "user", "content": "More"}], "temperature": 0.5, "seed": 3})
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


CASES = {case.__name__: case for case in (
    streams, markdown, emphasis, links, stops, branches, same_again, reasoning, settings, late_settings, presets, choices, progress, tokens, keeps,
    elsewhere, drafts, imports, files, keyboard)}
