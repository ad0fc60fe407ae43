"""The page with other readers, other windows and other servers: a case for each."""
import json
import threading
import time

from browser import Tab, context_of
from fake_server import answer, held

STORY = "Once upon a time there was a king."


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
        # A message that is no longer live has no inner text until the next frame.
        s.checks.check(told in last.locator(".failure").text_content(), f"{status} is not told")
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


def loading(s):
    """Where the server has several models, the page says which are loaded, how far a load is, and has the settings of the one that is."""
    first = json.loads(s.fake.facts["/v1/models"])["data"][0]
    kept = s.fake.facts["/v1/models"]

    def tell(**status):
        several = [{**first, "id": "one", "status": {"value": "unloaded"}}, {**first, "id": "two", "status": status}]
        s.fake.facts["/v1/models"] = json.dumps({"object": "list", "data": several})

    tell(value="unloaded")
    tab, event = s.tab(), threading.Event()
    choice = tab.page.get_by_role("combobox", name="Model")
    choice.select_option("two")
    tab.page.get_by_text("The server loads it with your first message.").wait_for()
    tell(value="loading", stage="compiles", progress=0.4)

    def script(stream):
        event.wait(10)
        answer("Loaded.")(stream)
    s.fake.script = script
    last = tab.ask("Hi")
    last.get_by_text("The server loads two. 40%").wait_for()
    choice.locator("option", has_text="two (loading 40%)").wait_for(state="attached")
    tell(value="loaded")
    with tab.page.expect_response("**/openapi.json?model=two"):
        event.set()
    tab.settled(last)
    s.expect("the chosen model", (s.fake.asked()[-1]["model"], choice.input_value()), ("two", "two"))
    s.end(tab)
    s.fake.facts["/v1/models"] = kept


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
    languages, themes, narrow, dies, busy, too_long, key, models, loading, two_tabs, real, kept_blocks, accessible)}
