"""Chromium for the tests of the page: one process, and tabs that know the page's controls."""
import contextlib
import dataclasses
import shutil

from playwright.sync_api import sync_playwright

# A test that waits so long has failed.
LIMIT = 15000


@contextlib.contextmanager
def chromium():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        yield browser
        browser.close()


def context_of(browser, **options):
    """A browser's profile of its own."""
    context = browser.new_context(**{"locale": "en-US", "reduced_motion": "reduce", "viewport": {"width": 1200, "height": 800}, **options})
    context.set_default_timeout(LIMIT)
    return context


class Tab:
    """A tab with the page of a server. `faults` has what no test may cause: errors of scripts, and all that the policy blocks."""

    def __init__(self, context, address):
        self.page = context.new_page()
        self.faults, self.dialogs, self.navigations, self.requests = [], [], 0, []
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("console", self.console)
        self.page.on("dialog", self.dialog)
        self.page.on("framenavigated", lambda frame: self.navigated(frame))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.prompt = self.page.locator("#prompt")
        self.button = self.page.locator("#send")
        self.answers = self.page.locator("article.assistant")
        self.prompts = self.page.locator("article.user")
        # The settings come after the page.
        with self.page.expect_response("**/openapi.json") as told:
            self.page.goto(address)
        told.value.finished()
        self.prompt.wait_for()
        self.navigations = 0

    def console(self, message):
        # The browser tells each status of an error itself.
        expected = "the server responded with a status" in message.text or "net::ERR" in message.text
        if message.type == "error" and not expected and len(self.faults) < 3:
            self.faults.append(message.text[:200])

    def dialog(self, dialog):
        self.dialogs.append(dialog.message)
        dialog.dismiss()

    def navigated(self, frame):
        if frame == self.page.main_frame:
            self.navigations += 1

    def named(self, role, name, within=None):
        return (within or self.page).get_by_role(role, name=name, exact=True)

    def ask(self, text):
        """Sends a message and returns its answer, which may still be written."""
        count = self.answers.count()
        self.prompt.fill(text)
        self.prompt.press("Enter")
        answer = self.answers.nth(count)
        answer.wait_for()
        return answer

    def settled(self, answer=None):
        """Waits until no answer is written; returns the last one."""
        self.page.locator("article.live").wait_for(state="detached")
        self.page.locator("#send:not(.stops)").wait_for()
        answer = answer or self.answers.last
        answer.locator("footer button").first.wait_for()
        return answer

    def answer_to(self, text):
        return self.settled(self.ask(text))

    def text(self, answer):
        """What an answer says, without its buttons."""
        return answer.locator(".body").inner_text()


@dataclasses.dataclass
class Setup:
    """What a case gets."""
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
