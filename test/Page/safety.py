"""No hostile answer runs a script, sends a request, leaves the page, or covers it."""
from browser import Tab, context_of
from fake_server import Foreign, answer
from hostile import HOSTILE
from playwright.sync_api import Error

# What answers have that no answer may have, as the page stands.
LOOK = """(sanitized) => {
  const found = [];
  if (window.pwned) found.push('a script ran');
  delete window.pwned;
  const bodies = [...document.querySelectorAll('article.assistant .body')];
  for (const body of bodies) {
    for (const link of body.querySelectorAll('a[href], area[href]')) {
      const scheme = link.protocol || 'none';
      if (!sanitized) continue;
      if (!['http:', 'https:', 'mailto:'].includes(scheme)) found.push('a link with ' + scheme);
      if (scheme.startsWith('http') && !/noopener/.test(link.rel)) found.push('a link without noopener');
      if (link.ping) found.push('a ping');
    }
    if (!sanitized) continue;
    const bad = 'script, style, link, meta, base, form, input:not([type=checkbox]), textarea, select, iframe, frame, object, embed, template, dialog, video, audio, svg:not(.icon):not(.katex *), ' +
      '[style*=fixed], [autofocus], [popover], [id]:not(.katex *)';
    for (const element of body.querySelectorAll(bad)) found.push('an element ' + element.outerHTML.slice(0, 80));
    for (const element of body.querySelectorAll('*'))
      for (const {name} of element.attributes) if (/^on|^srcdoc$|^formaction$|^ping$/.test(name)) found.push('an attribute ' + name);
    for (const image of body.querySelectorAll('img')) if (!/^data:image/.test(image.src)) found.push('an image ' + image.src);
  }
  return found;
}"""
# Whether the page's own controls can be reached: nothing lies above them.
COVERED = """() => ['#prompt', '#send', '[data-testid=settings], #settings, header button'].filter((selector) => {
  const control = document.querySelector(selector);
  if (!control) return true;
  const {left, top, width, height} = control.getBoundingClientRect();
  if (width === 0) return true;
  const above = document.elementFromPoint(left + width / 2, top + height / 2);
  return !above || !(control === above || control.contains(above));
})"""
# Clicks what the reader might click: links that do not lead to another page.
CLICK = """() => {
  for (const link of document.querySelectorAll('article.assistant .body a, article.assistant .body area, article.assistant .body button[formaction]'))
    if (!/^https?:/.test(link.protocol || '')) link.dispatchEvent(new MouseEvent('click', {bubbles: true, cancelable: true}));
  for (const element of document.querySelectorAll('article.assistant .body *')) element.dispatchEvent(new MouseEvent('mouseover', {bubbles: true}));
}"""


def hostile(checks, browser, fake, sanitized):
    """Each hostile answer, streamed in pieces, with the bundle that `fake` serves. Without DOMPurify the policy alone is left: it knows no
    navigation, no hint such as preconnect, and no look."""
    kind = "with" if sanitized else "without"
    context, foreign = context_of(browser), Foreign()
    # A handler that calls it is HTML to markdown, also without quotes: pwned=1 would not be.
    context.add_init_script("window.pwn = () => { window.pwned = true; }")
    opened, left = [], []
    tab = Tab(context, fake.address)
    tab.page.get_by_text("Talk with stories").wait_for()
    context.on("page", lambda page: opened.append(page.url))
    if not sanitized:
        context.route(foreign.address + "/**", lambda route: (left.append(1), route.abort()) if leaves(route.request) else route.continue_())
    ours = {fake.address + path for path in ("/v1/chat/completions", "/metrics")}

    def show(name, text):
        where = f"{name} {kind} DOMPurify"
        before = len(tab.requests)
        fake.script = answer(text.replace("FOREIGN", foreign.address) + "\n\nThe end.", size=max(7, len(text) // 12))
        last = tab.answer_to(name)
        if sanitized:
            last.get_by_text("The end.").last.wait_for()
        tab.page.evaluate(CLICK)
        # A task of the browser passes, in which what was clicked and inserted would act.
        tab.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
        checks.expect(where, tab.page.evaluate(LOOK, sanitized), [])
        checks.expect(f"{where}: dialogs, requests elsewhere", (tab.dialogs, foreign.requests), ([], []))
        if not sanitized:
            return
        checks.expect(f"{where}: what is covered", tab.page.evaluate(COVERED), [])
        checks.expect(f"{where}: forms", tab.page.evaluate("document.forms.length"), 0)
        requests = [url for url in tab.requests[before:] if url not in ours and not url.startswith(("data:", "blob:")) and not url.split("?")[0].endswith((".woff2", ".js"))]
        checks.expect(f"{where}: requests", requests, [])
        checks.expect(f"{where}: tabs, navigations, connections", (opened, tab.navigations, foreign.connections), ([], 0, 0))
        checks.expect(f"{where}: what the policy blocked or a script threw", tab.faults, [])

    for name, text in HOSTILE.items():
        try:
            show(name, text)
        except Error as error:
            checks.check(left and not sanitized, f"{name} {kind} DOMPurify: {str(error)[:300]}")
            tab.page.goto(fake.address)
        fresh(tab, fake)
        opened.clear(), left.clear(), tab.dialogs.clear(), tab.faults.clear(), foreign.requests.clear()
        tab.navigations = foreign.connections = 0
    # A script that runs late, such as that of an image which is not there, is found with a later answer, or here.
    tab.page.wait_for_load_state("networkidle")
    checks.expect(f"the last answer {kind} DOMPurify", tab.page.evaluate(LOOK, sanitized), [])
    context.close()


def leaves(request):
    """Whether a request is for another page in place of this one."""
    return request.is_navigation_request() and request.frame.parent_frame is None


def fresh(tab, fake):
    """A new conversation, on a page that is as it was."""
    if tab.navigations or tab.page.evaluate("document.forms.length"):
        tab.page.goto(fake.address)
        tab.prompt.wait_for()
    if tab.answers.count():
        tab.named("button", "New conversation").first.click()
        tab.answers.first.wait_for(state="detached")
