"""The page of a report as its reader meets it: opened from disk in a real Chromium, pressed, hovered and measured."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select, WebDriverWait

from endive.report.loading import load_materials
from endive.report.page import write_page
from endive.report.report import make_sections
from tests.report_folders import closed_loop, fail, outcomes, settings, write_experiment

BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
DESKTOP, PHONE = (1280, 900), (390, 844)
MEASURES = Path(__file__).with_name("page_measures.js").read_text(encoding="utf-8")
LOADS = 9
TABLES = (1, 2, 3, 4, 5, 6)

if BROWSER is None or DRIVER is None:
    pytest.skip("no chromium and chromedriver on the PATH to open the page in", allow_module_level=True)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of sweeps: small with all there is, of clients, large with one seed; and of a lone experiment."""
    root = tmp_path_factory.mktemp("runs")
    for store in ("s3", "s3x"):
        for tables in (1, 5):
            for scale_ms, of in ((400_000.0, 1), (100_000.0, 1), (25_000.0, 4 // tables + 1)):
                seeds = [
                    outcomes(scale_ms, 1, of, latency_ms=factor * 1000.0, per_attempt_io_ms=factor * 1000.0)
                    + outcomes(scale_ms, 1, of, latency_ms=9e3, operation_type="validated_overwrite")
                    for factor in (1.0, 1.2)
                ]
                changed = settings(scale_ms, "a", storage={"provider": store}, catalog={"num_tables": tables})
                write_experiment(root, changed, seeds)
    for scale_ms in (100_000.0 * (1.0 + place) for place in range(LOADS)):
        for tables in TABLES:
            changed = settings(scale_ms, "many", catalog={"num_tables": tables})
            write_experiment(root, changed, [outcomes(1e6, latency_ms=scale_ms / tables, per_attempt_io_ms=50.0)])
    for clients in (1, 2, 8):
        write_experiment(root, closed_loop(clients), [outcomes(1e6, of=clients)] * 2)
    write_experiment(root, settings(label="single"), [outcomes(1e6)])
    path = root.parent / "page.html"
    write_page(path, make_sections(load_materials(root, fail)), [])
    return path


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    options = Options()
    options.binary_location = BROWSER
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    try:
        yield driver
    finally:
        driver.quit()


@pytest.fixture
def opened(browser: webdriver.Chrome, page: Path) -> Iterator[webdriver.Chrome]:
    """The page, freshly opened on a desktop in the light; whatever is done with it, it must not complain."""
    show(browser, DESKTOP)
    browser.get(page.as_uri())
    yield browser
    assert [entry for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")] == []


def show(browser: webdriver.Chrome, size: tuple[int, int], *, is_dark: bool = False) -> None:
    scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size == PHONE}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def find(browser: webdriver.Chrome, selector: str) -> WebElement:
    return browser.find_element(By.CSS_SELECTOR, selector)


def find_all(browser: webdriver.Chrome, selector: str) -> list[WebElement]:
    found: list[WebElement] = browser.find_elements(By.CSS_SELECTOR, selector)
    return found


def count(browser: webdriver.Chrome, selector: str) -> int:
    return len(find_all(browser, selector))


def texts(browser: webdriver.Chrome, selector: str) -> list[str]:
    """The texts of elements, also of SVG and of what is scrolled away."""
    script = "return [...document.querySelectorAll(arguments[0])].map((each) => each.textContent)"
    found: list[str] = browser.execute_script(script, selector)
    return found


def press(browser: webdriver.Chrome, selector: str) -> None:
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", find(browser, selector))
    find(browser, selector).click()


def select(browser: webdriver.Chrome, identity: str, text: str) -> None:
    Select(find(browser, f"#{identity}")).select_by_visible_text(text)


def options_of(browser: webdriver.Chrome, identity: str) -> list[str]:
    return texts(browser, f"#{identity} option")


def sweep_named(browser: webdriver.Chrome, name: str) -> None:
    (button,) = (each for each in find_all(browser, "#sweeps button") if each.text == name)
    button.click()


def chart(browser: webdriver.Chrome) -> str:
    """What is drawn."""
    drawn = find(browser, "#chart").get_attribute("innerHTML")
    assert drawn is not None
    return drawn


def test_the_page_says_what_was_swept_found_and_made(opened: webdriver.Chrome) -> None:
    assert opened.title == "Endive: a, closed, many, single"
    assert "12 experiments of 2 seeds" in find(opened, "#description").text
    assert texts(opened, "#axes dt") == ["submissions per second", "tables", "store"]
    assert count(opened, "#finding-list li") >= 3
    assert texts(opened, "#provenance dt")[:2] == ["Experiments", "Runs"]
    assert texts(opened, "#provenance dd")[:2] == ["12", "24"]
    settings_lines = texts(opened, "#settings")[0].splitlines()
    assert "simulation.duration_ms = 2400000" in settings_lines
    links = [link.get_attribute("href") for link in find_all(opened, "#figure-list a")]
    assert links
    assert all(re.search(r"/(figures|tables)/a-[a-z-]+\.(png|svg|md|csv)$", link or "") for link in links)


def test_curves_are_drawn_with_a_point_for_each_experiment_hollow_where_few_commit(opened: webdriver.Chrome) -> None:
    assert count(opened, "#chart svg .point") == 6
    assert count(opened, "#chart svg .curve") == 2
    assert count(opened, "#chart .point[fill='var(--back)']") == 2
    assert "Hollow points" in find(opened, "#caption").text
    assert "Held at: 1 table." in find(opened, "#caption").text
    assert set(texts(opened, "#chart text")) >= {"commits per second", "submissions per second", "0.0025", "0.04"}


def test_bounds_are_drawn_where_they_are_near_and_told(opened: webdriver.Chrome) -> None:
    """A client without retries, and others beside it: half of two commit at most, or little more."""
    sweep_named(opened, "closed")
    select(opened, "control-y", "committed of finished (%)")
    assert "Dashed" in find(opened, "#caption").text
    (line,) = find_all(opened, "#chart .bound")
    assert line.get_attribute("clip-path") == "url(#inside)"
    find(opened, "#chart").send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert "2 clients" in find(opened, "#tooltip").text
    assert re.search(r"typical attempts allow: 50(\.\d)?$", find(opened, "#tooltip").text, re.MULTILINE)
    select(opened, "control-y", "commit latency, P50 (s)")
    assert count(opened, "#chart .bound") == 0
    assert "Dashed" not in find(opened, "#caption").text


def test_every_metric_and_axis_can_be_chosen(opened: webdriver.Chrome) -> None:
    seen = set()
    for metric in options_of(opened, "control-y"):
        select(opened, "control-y", metric)
        assert metric in texts(opened, "#chart text") or "no experiment has a value" in find(opened, "#chart").text
        seen.add(chart(opened))
    assert len(seen) == len(options_of(opened, "control-y")) > 20
    select(opened, "control-y", "committed of finished (%)")
    for across in options_of(opened, "control-x"):
        select(opened, "control-x", across)
        assert across in texts(opened, "#chart text") or "no experiment has a value" in find(opened, "#chart").text


def test_curves_can_stand_for_any_setting_or_operation_types(opened: webdriver.Chrome) -> None:
    for text, curves in (("tables", 2), ("operation type", 2), ("nothing", 1), ("store", 2)):
        select(opened, "control-series", text)
        assert count(opened, "#chart svg .curve") == curves, text
        assert count(opened, "#legend button") == (curves if curves > 1 else 0)
    select(opened, "control-series", "operation type")
    assert texts(opened, "#legend button") == ["fast appends", "validated overwrites"]
    select(opened, "control-x", "store")
    assert count(opened, "#chart svg .curve") == 0, "words are not joined"


def test_filters_hold_the_other_settings(opened: webdriver.Chrome) -> None:
    before = chart(opened)
    assert texts(opened, "#filters label option") == ["1", "5"]
    select(opened, "filter-1", "5")
    assert chart(opened) != before
    assert "Held at: 5 tables." in find(opened, "#caption").text
    select(opened, "control-operation", "validated overwrites")
    select(opened, "control-y", "commit latency, P50 (s)")
    ActionChains(opened).move_to_element(find(opened, "#chart .point")).perform()
    assert "commit latency, P50 (s): 9" in find(opened, "#tooltip").text


def test_a_logarithmic_scale_can_be_turned_off_and_on(opened: webdriver.Chrome) -> None:
    linear = chart(opened)
    assert "0" in texts(opened, "#chart text")
    press(opened, "#control-log")
    assert find(opened, "#control-log").is_selected()
    assert "0" not in texts(opened, "#chart text")
    assert chart(opened) != linear
    press(opened, "#control-log")
    assert chart(opened) == linear


def test_the_legend_hides_and_shows_curves(opened: webdriver.Chrome) -> None:
    first = "#legend button:first-of-type"
    press(opened, first)
    assert find(opened, first).get_attribute("aria-pressed") == "false"
    assert count(opened, "#chart svg .curve") == 1
    assert count(opened, "#chart svg .point") == 3
    press(opened, first)
    assert count(opened, "#chart svg .curve") == 2


def test_heatmaps_have_a_cell_for_each_pair(opened: webdriver.Chrome) -> None:
    press(opened, "#view-heatmap")
    assert count(opened, "#chart .cell") == 6
    assert count(opened, "#chart rect[fill='url(#hatch)']") == 2
    assert "Hatched" in find(opened, "#caption").text
    select(opened, "control-cell-y", "submissions per second")
    assert Select(find(opened, "#control-cell-x")).first_selected_option.text == "store"
    select(opened, "control-cell-x", "tables")
    assert count(opened, "#chart .cell") == 6
    select(opened, "control-metric", "commit latency, P99 (s)")
    assert "commit latency, P99 (s)." in find(opened, "#caption").text


def test_bars_tell_where_time_goes(opened: webdriver.Chrome) -> None:
    press(opened, "#view-breakdown")
    assert count(opened, "#chart .bar-part") == 3
    assert texts(opened, "#legend button") == ["manifest I/O"]
    press(opened, "#legend button")
    assert count(opened, "#chart .bar-part") == 0


def test_rates_over_time_are_drawn_with_the_edges_shaded(opened: webdriver.Chrome) -> None:
    press(opened, "#view-time")
    assert count(opened, "#chart .curve") == 2
    assert count(opened, "#chart .outside") == 2
    before = chart(opened)
    select(opened, "control-over", "transactions in flight")
    assert chart(opened) != before
    assert "transactions in flight" in texts(opened, "#chart text")


def test_pointing_at_a_value_tells_it_with_its_interval(opened: webdriver.Chrome) -> None:
    point = find_all(opened, "#chart .point")[0]
    opened.execute_script("arguments[0].scrollIntoView({block: 'center'})", point)
    ActionChains(opened).move_to_element(point).perform()
    tooltip = find(opened, "#tooltip")
    assert tooltip.is_displayed()
    assert "0.0025/s, 1 table, S3 Standard" in tooltip.text
    assert "commits per second: 0.00444 (0.00444 to 0.00444)" in tooltip.text.replace("0.0044 ", "0.00444 ")
    ActionChains(opened).move_to_element(find(opened, "h1")).perform()
    assert not tooltip.is_displayed()


def test_arrow_keys_read_the_values(opened: webdriver.Chrome) -> None:
    find(opened, "#chart").send_keys(Keys.ARROW_RIGHT)
    first = find(opened, "#tooltip").text
    find(opened, "#chart").send_keys(Keys.ARROW_RIGHT)
    second = find(opened, "#tooltip").text
    assert "0.0025/s" in first
    assert "0.01/s" in second
    assert texts(opened, "#reading")[0].split() == second.split()
    find(opened, "#chart").send_keys(Keys.ARROW_LEFT)
    assert find(opened, "#tooltip").text == first
    find(opened, "#chart").send_keys(Keys.ESCAPE)
    assert not find(opened, "#tooltip").is_displayed()


@pytest.mark.parametrize(("table", "column"), [("table", 0), ("table", 1), ("table", 4), ("saturation-table", 0)])
def test_tables_sort_by_the_title_that_is_pressed(opened: webdriver.Chrome, table: str, column: int) -> None:
    def cells() -> list[str]:
        return texts(opened, f"#{table} tbody td:nth-child({column + 1})")

    def key(text: str) -> Any:
        return float(text.split(maxsplit=1)[0].replace(",", "")) if text[0].isdigit() else text

    button = f"#{table} th:nth-child({column + 1}) button"
    heading = f"#{table} th:nth-child({column + 1})"
    if find(opened, heading).get_attribute("aria-sort") != "ascending":
        press(opened, button)
    assert find(opened, heading).get_attribute("aria-sort") == "ascending"
    rising = cells()
    assert rising == sorted(rising, key=key)
    assert len(set(rising)) > 1
    press(opened, button)
    assert find(opened, heading).get_attribute("aria-sort") == "descending"
    assert cells() == sorted(rising, key=key, reverse=True)
    others = texts(opened, f"#{table} th[aria-sort='none']")
    assert len(others) == count(opened, f"#{table} th") - 1


def test_a_long_table_shows_all_when_asked(opened: webdriver.Chrome) -> None:
    sweep_named(opened, "many")
    assert count(opened, "#table tbody tr") == 50
    assert find(opened, "#more").text == f"Show all {LOADS * len(TABLES)}"
    press(opened, "#more")
    assert count(opened, "#table tbody tr") == LOADS * len(TABLES)
    assert not find(opened, "#more").is_displayed()


def test_the_table_of_one_operation_type(opened: webdriver.Chrome) -> None:
    place = 1 + texts(opened, "#table th").index("commit latency, P50 (s)")
    select(opened, "table-operation", "validated overwrites")
    assert set(texts(opened, f"#table tbody td:nth-child({place})")) == {"9.04 (9.04 to 9.04)"}, "9 s, in its bin"


def test_hashes_and_seeds_are_told_when_asked(opened: webdriver.Chrome) -> None:
    press(opened, "#provenance ~ details summary")
    WebDriverWait(opened, 10).until(lambda _: count(opened, "#hashes tbody tr"))
    hashes = texts(opened, "#hashes tbody td:nth-child(4)")
    assert len(set(hashes)) == 12
    assert all(re.fullmatch("[0-9a-f]{12}", each) for each in hashes)
    assert set(texts(opened, "#hashes tbody td:nth-child(5)")) == {"1, 2"}


def test_one_seed_is_said_wherever_an_interval_would_be(opened: webdriver.Chrome) -> None:
    sweep_named(opened, "many")
    assert "one seed" in find(opened, "#warning-list").text
    assert "One seed: no intervals." in find(opened, "#table-note").text
    for view in ("curves", "heatmap", "breakdown", "time"):
        press(opened, f"#view-{view}")
        assert "One seed: no intervals." in find(opened, "#caption").text
    assert "(" not in "".join(texts(opened, "#table tbody td"))


def test_a_lone_experiment_has_a_page_too(opened: webdriver.Chrome) -> None:
    sweep_named(opened, "single")
    assert "Nothing varies." in find(opened, "#description").text
    assert texts(opened, "#views button") == ["Curves", "Over time"]
    assert count(opened, "#chart .point") == 1
    press(opened, "#view-time")
    assert count(opened, "#chart .curve") == 1
    assert not find(opened, "#saturation").is_displayed()


def test_the_theme_follows_the_system_until_it_is_chosen(opened: webdriver.Chrome) -> None:
    def back() -> str:
        return find(opened, "body").value_of_css_property("background-color")

    light = back()
    press(opened, "#theme")
    dark = back()
    assert dark != light
    show(opened, DESKTOP, is_dark=True)
    press(opened, "#theme")
    assert back() == light
    opened.refresh()
    assert back() == dark


@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_it_is_readable_at_any_width_in_light_and_dark(
    browser: webdriver.Chrome, page: Path, size: tuple[int, int], is_dark: bool
) -> None:
    show(browser, size, is_dark=is_dark)
    browser.get(page.as_uri())
    assert browser.execute_script("return window.innerWidth") == size[0]
    for name in ("a", "closed", "many", "single"):
        sweep_named(browser, name)
        browser.execute_script("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        for view in [each.get_attribute("id") for each in find_all(browser, "#views button")]:
            browser.execute_script("document.getElementById(arguments[0]).click()", view)
            where = (name, view)
            assert browser.execute_script(MEASURES) == {"overflow": 0, "small": [], "faint": [], "touching": []}, where
    browser.execute_script("document.querySelector('#sweeps button').click()")
    browser.execute_script("document.querySelector('#legend button').click()")
    find(browser, "#chart").send_keys(Keys.ARROW_RIGHT)
    assert browser.execute_script(MEASURES)["faint"] == [], "a hidden curve and the tooltip"
    box = find(browser, "#tooltip").rect
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= size[0]


def test_nothing_is_asked_of_the_network(opened: webdriver.Chrome, page: Path) -> None:
    opened.get_log("performance")
    opened.refresh()
    events = [json.loads(entry["message"])["message"] for entry in opened.get_log("performance")]
    asked = [each["params"]["request"]["url"] for each in events if each["method"] == "Network.requestWillBeSent"]
    assert [url for url in asked if not url.startswith("data:")] == [page.as_uri()]
