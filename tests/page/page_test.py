#!/usr/bin/env python3
"""The page at / in Chromium. page_test.py BINARY MODEL SCREENSHOT_FOLDER [unittest arguments]"""
import os
import pathlib
import re
import signal
import sys
import unittest

from playwright.sync_api import expect, sync_playwright

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "daemon"))
from daemon import Daemon, wait_for  # noqa: E402

CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
SHORT = ("-np", "1", "-c", "1024", "-n", "12", "--ignore-eos")
ENDLESS = ("-np", "1", "-c", "1024", "--context-shift", "--ignore-eos")
# A tiny model writes thousands of tokens a second, faster than Chromium lays out a text that never ends.
if "BANKML_MODELS" in os.environ:
    ENDLESS += ("-m", os.path.join(os.environ["BANKML_MODELS"], "SmolLM2-135M-Instruct.Q4_1.gguf"))
DESK = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 844}
CATS = "What do cats do all day long, and why do they never seem to be tired of it?"
TIDES = "Explain how the tides come about; begin with the moon and end with the harbour of a small town."

expect.set_options(timeout=60_000)  # nothing is measured by it
screenshots = None


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.playwright = sync_playwright().start()
        cls.browser = cls.playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.playwright.stop()

    def start(self, *flags, **options):
        daemon = Daemon(*flags, **options)
        self.addCleanup(daemon.__exit__)
        return daemon

    def open(self, daemon, viewport=None, scheme="light"):
        """The page in a tab of its own. What it says on the console and where it asks is looked at in the end."""
        context = self.browser.new_context(viewport=viewport or DESK, color_scheme=scheme, reduced_motion="reduce")
        self.addCleanup(context.close)
        page = context.new_page()
        self.complaints, self.asked = [], []
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", lambda message: self.complaints.append(message.text) if message.type == "error" else None)
        page.on("request", lambda request: self.asked.append(request.url))
        page.goto(f"http://127.0.0.1:{daemon.port}/")
        return page

    def conversation(self, page, number=1):
        return page.locator(f"#conversation-{number}")

    def say(self, page, text, number=1):
        """Sends a message and waits for the end of the answer."""
        conversation = self.conversation(page, number)
        answers = conversation.locator(".message.assistant")
        before = answers.count()
        conversation.get_by_label("Message", exact=True).fill(text)
        conversation.get_by_role("button", name="Send").click()
        expect(answers).to_have_count(before + 1)
        expect(conversation.get_by_role("button", name="Send")).to_be_visible()
        return answers.last

    def row(self, page, name):
        return page.locator(f'.track[aria-label^="{name}:"]')

    def expect_in_row(self, page, name, *titles):
        for title in titles:
            expect(self.row(page, name)).to_have_attribute("aria-label", re.compile(re.escape(title[:20])))

    def screenshot(self, page, name):
        page.screenshot(path=os.path.join(screenshots, f"{name}.png"))


class Conversations(Page):
    def test_take_turns_and_their_states_move(self):
        page = self.open(self.start(*SHORT))
        expect(self.say(page, CATS)).to_contain_text("wrote 12 at")
        self.expect_in_row(page, "Slot", CATS)
        page.get_by_role("button", name="New conversation").click()
        self.say(page, TIDES, 2)
        self.expect_in_row(page, "Slot", TIDES)
        self.expect_in_row(page, "Host memory", CATS)
        expect(page.locator("#switch")).to_contain_text("made room and is kept in host memory")
        expect(self.conversation(page, 1).locator(".place")).to_contain_text("in host memory")
        expect(self.say(page, "And at night?")).to_contain_text(re.compile(r"used \d+ again, computed \d+"))
        self.expect_in_row(page, "Slot", CATS)
        self.expect_in_row(page, "Host memory", TIDES)
        expect(page.locator("#switch")).to_contain_text("came back from host memory")
        expect(page.locator("#saved")).to_contain_text(re.compile(r"Saved: [1-9]\d* of .* all clients since the start: [1-9]"))
        self.screenshot(page, "light")
        self.assertEqual(self.complaints, [])
        home = page.url
        self.assertEqual([url for url in self.asked if not url.startswith(home)], [])

    def test_are_still_there_when_the_page_is_loaded_again(self):
        page = self.open(self.start(*SHORT), scheme="dark")
        answer = self.say(page, CATS).inner_text()
        page.get_by_role("button", name="New conversation").click()
        self.say(page, "```\nlet tides = moon + sun;\n```\n" + TIDES, 2)
        page.reload()
        self.assertEqual(self.conversation(page).locator(".message.assistant").inner_text(), answer)
        self.expect_in_row(page, "Host memory", CATS)
        self.screenshot(page, "dark")

    def test_can_be_closed(self):
        page = self.open(self.start(*SHORT))
        page.get_by_role("button", name="New conversation").click()
        self.conversation(page, 1).get_by_role("button", name="Close this conversation").click()
        expect(page.locator(".conversation")).to_have_count(1)
        expect(self.conversation(page, 2).get_by_label("Message", exact=True)).to_be_focused()

    def test_have_settings_of_their_own(self):
        page = self.open(self.start(*SHORT))
        conversation = self.conversation(page)
        conversation.get_by_role("button", name="Settings").click()
        conversation.get_by_label("Tokens at most").fill("5")
        expect(self.say(page, CATS)).to_contain_text("wrote 5 at")


class Stopping(Page):
    def test_ends_the_answer_and_frees_the_slot(self):
        daemon = self.start(*ENDLESS)
        page = self.open(daemon)
        conversation = self.conversation(page)
        conversation.get_by_label("Message", exact=True).fill(CATS)
        conversation.get_by_role("button", name="Send").click()
        expect(conversation.locator(".message.assistant")).to_contain_text("wrote")
        expect(page.locator("#state")).to_have_class("state busy")
        conversation.get_by_role("button", name="Stop").click()
        expect(conversation.locator(".message.assistant .note").last).to_have_text("Stopped.")
        wait_for("the slot to be idle", daemon.is_idle)
        expect(page.locator("#state")).to_have_class("state ready")

    def test_of_one_conversation_leaves_the_other_its_turn(self):
        page = self.open(self.start(*ENDLESS))
        first, second = self.conversation(page, 1), self.conversation(page, 2)
        first.get_by_label("Message", exact=True).fill(CATS)
        first.get_by_role("button", name="Send").click()
        expect(first.locator(".message.assistant")).to_contain_text("wrote")
        page.get_by_role("button", name="New conversation").click()
        second.get_by_label("Message", exact=True).fill(TIDES)
        second.get_by_role("button", name="Send").click()
        expect(second.locator(".message.assistant")).to_contain_text("waiting for its turn")
        first.get_by_role("button", name="Stop").click()
        expect(second.locator(".message.assistant")).to_contain_text("wrote")
        second.get_by_role("button", name="Stop").click()
        expect(second.locator(".message.assistant .note").last).to_have_text("Stopped.")


class Failures(Page):
    def test_of_a_request_are_shown_with_a_way_on(self):
        page = self.open(self.start(*SHORT, "-c", "256"))
        answer = self.say(page, "too long " * 400)
        expect(answer.get_by_role("alert")).to_contain_text("context")
        expect(answer.get_by_role("button", name="Try again")).to_be_visible()

    def test_of_the_daemon_are_survived(self):
        daemon = self.start(*SHORT)
        page = self.open(daemon)
        self.say(page, CATS)
        daemon.signal(signal.SIGKILL)
        daemon.wait_for_end()
        expect(page.locator("#state")).to_have_text("not reachable, trying again")
        answer = self.say(page, "And at night?")
        expect(answer.get_by_role("alert")).to_contain_text("can't be reached")
        self.start(*SHORT, port=daemon.port)
        expect(page.locator("#state")).to_have_class("state ready")
        expect(page.locator("#switch")).to_contain_text("started again")
        answer.get_by_role("button", name="Try again").click()
        expect(answer).to_contain_text("wrote 12 at")

    def test_in_the_middle_of_an_answer_keep_what_came(self):
        daemon = self.start(*ENDLESS)
        page = self.open(daemon)
        conversation = self.conversation(page)
        conversation.get_by_label("Message", exact=True).fill(CATS)
        conversation.get_by_role("button", name="Send").click()
        answer = conversation.locator(".message.assistant")
        expect(answer).to_contain_text("wrote")
        daemon.signal(signal.SIGKILL)
        expect(answer.get_by_role("alert")).to_contain_text("The connection was lost.")
        expect(answer).to_contain_text("wrote")


class Keyboard(Page):
    def test_is_enough(self):
        page = self.open(self.start(*ENDLESS))
        first, second = self.conversation(page, 1), self.conversation(page, 2)
        expect(first.get_by_label("Message", exact=True)).to_be_focused()
        page.keyboard.type("first line")
        page.keyboard.press("Shift+Enter")
        page.keyboard.type("second line")
        page.keyboard.press("Enter")
        expect(first.locator(".message.user p")).to_have_text("first line\nsecond line")
        expect(first.locator(".message.assistant")).to_contain_text("wrote")
        page.keyboard.press("Escape")
        expect(first.locator(".message.assistant .note").last).to_have_text("Stopped.")
        page.keyboard.press("Alt+KeyN")
        expect(second.get_by_label("Message", exact=True)).to_be_focused()
        page.keyboard.press("Alt+Digit1")
        expect(first.get_by_label("Message", exact=True)).to_be_focused()
        # Everything that a pointer reaches is in the order of the tab key.
        page.keyboard.press("Shift+Tab")
        expect(first.locator(".transcript")).to_be_focused()
        page.keyboard.press("Shift+Tab")
        page.keyboard.press("Shift+Tab")
        expect(first.get_by_role("button", name="Settings")).to_be_focused()
        page.keyboard.press("Enter")
        expect(first.get_by_label("Instructions")).to_be_focused()


class Access(Page):
    def test_is_asked_for_once_and_kept_in_the_tab(self):
        daemon = self.start(*SHORT, "--api-key", "user", "--admin-key", "admin")
        page = self.open(daemon)
        key = page.get_by_label("Key", exact=True)
        key.fill("wrong")
        page.get_by_role("button", name="Use it").click()
        expect(page.locator("#key-error")).to_have_text("The server refused this key.")
        key.fill("user")
        page.keyboard.press("Enter")
        expect(page.locator("#state")).to_have_class("state ready")
        expect(page.locator("#rows")).to_contain_text("shown to admin keys only")
        expect(self.say(page, CATS)).to_contain_text("wrote 12 at")
        page.reload()
        expect(page.locator("#state")).to_have_class("state ready")
        self.assertFalse(page.locator("#key-dialog").is_visible())
        page.get_by_role("button", name="Enter key").click()
        key.fill("admin")
        page.keyboard.press("Enter")
        expect(page.locator("#rows")).not_to_contain_text("shown to admin keys only")

    def test_can_be_declined(self):
        page = self.open(self.start(*SHORT, "--api-key", "user"))
        page.get_by_role("button", name="Not now").click()
        expect(page.locator("#state")).to_have_text("needs a key")
        expect(page.get_by_role("button", name="Enter key")).to_be_visible()


class Phone(Page):
    def test_shows_one_conversation_at_a_time(self):
        page = self.open(self.start(*SHORT), viewport=PHONE)
        self.say(page, CATS)
        page.get_by_role("button", name="New conversation").click()
        self.say(page, TIDES, 2)
        self.expect_in_row(page, "Host memory", CATS)
        self.screenshot(page, "phone")
        self.assertLessEqual(page.evaluate("document.documentElement.scrollWidth"), PHONE["width"])
        page.locator(".tab").first.click()
        expect(self.conversation(page, 1)).to_be_in_viewport(ratio=0.9)
        expect(self.conversation(page, 2)).not_to_be_in_viewport()


if __name__ == "__main__":
    Daemon.binary, Daemon.model, screenshots = sys.argv[1:4]
    os.makedirs(screenshots, exist_ok=True)
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
