"""Headless Chromium for tests of pages. Where selenium or the browser is missing, they are skipped."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)


@contextmanager
def headless() -> Iterator[Any]:
    """A selenium driver of its own profile. Both paths are given, so that selenium looks for, and fetches, nothing."""
    needed = ("selenium.webdriver", "selenium.webdriver.chrome.service")
    webdriver, service = (pytest.importorskip(name, reason="needs selenium: pip install selenium") for name in needed)
    chromium = next(filter(None, map(shutil.which, BROWSERS)), None)
    chromedriver = shutil.which("chromedriver")
    if chromium is None or chromedriver is None:
        missing = "chromedriver" if chromium else " or ".join(BROWSERS)
        pytest.skip(f"needs Chromium and chromedriver on the PATH: there is no {missing}")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile, pytest.MonkeyPatch.context() as patch:
        patch.setenv("no_proxy", "localhost,127.0.0.1")  # chromedriver is not to be reached through a proxy
        for argument in (*ARGUMENTS, f"--user-data-dir={profile}"):
            options.add_argument(argument)
        driver = webdriver.Chrome(options=options, service=service.Service(executable_path=chromedriver))
        try:
            yield driver
        finally:
            driver.quit()


def console(driver: Any) -> list[str]:
    """What the console said since it was last asked."""
    return [entry["message"] for entry in driver.get_log("browser")]


def requests(driver: Any) -> list[str]:
    """The addresses that were asked for since this was last called."""
    events = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    return [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]


def tab(driver: Any) -> None:
    """Press the tabulator key."""
    driver.switch_to.active_element.send_keys("\ue004")


def screen(driver: Any, width: int, height: int, *, mobile: bool = False) -> None:
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def prefer(driver: Any, scheme: str) -> None:
    """The colour scheme that the user prefers: light or dark."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
