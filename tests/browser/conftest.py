"""Pages in a real browser, opened from the disk as a reader would; what they ask for is kept."""

import os
import shutil
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MISSING = (
    "The tests of the report need a browser: put one of these on the PATH: "
    f"{', '.join(BROWSERS)} (`make browser` installs chromium on Debian)."
)
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


@pytest.fixture(scope="session")
def browser():
    if os.environ.get("ASPECT_NO_BROWSER"):
        pytest.skip("ASPECT_NO_BROWSER is set: this machine is not to open a browser")
    found = [path for path in map(shutil.which, BROWSERS) if path]
    if not found:
        pytest.fail(MISSING)
    from playwright.sync_api import sync_playwright

    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=found[0], args=arguments)
        yield running
        running.close()


@dataclass
class Opened:
    """A page, and what happened on it that should not."""

    page: object
    errors: list = field(default_factory=list)
    requests: list = field(default_factory=list)

    def run(self, script, argument=None):
        return self.page.evaluate(script, argument)

    def check(self):
        """Nothing was complained of, nothing was asked for beside the page itself."""
        assert self.errors == []
        assert [each for each in self.requests if not each.startswith("file:")] == []
        assert len(self.requests) == 1, self.requests


@pytest.fixture
def opened(browser):
    """Open a file and check it in the end."""

    @contextmanager
    def open_file(path, viewport=DESKTOP, **options):
        context = browser.new_context(viewport=viewport, reduced_motion="reduce", **options)
        context.set_default_timeout(10_000)
        found = Opened(context.new_page())
        page = found.page

        def answer(route):
            found.requests.append(route.request.url)
            if route.request.url.startswith("file:"):
                route.continue_()
            else:
                route.abort()

        page.route("**/*", answer)
        page.on("pageerror", lambda error: found.errors.append(str(error)))
        page.on("dialog", lambda dialog: (found.errors.append(dialog.message), dialog.dismiss()))
        page.on(
            "console",
            lambda message: (
                message.type in ("error", "warning") and found.errors.append(message.text)
            ),
        )
        try:
            page.goto(path.as_uri())
            yield found
            found.check()
        finally:
            context.close()

    return open_file
