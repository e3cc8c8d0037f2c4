"""The page in Chromium: drawing, keyboard, screen reader, modes, print, hostile names, 10,000 partitions."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tierctl.report.html_lanes import items_per_lane

from tests.report.html.pages import HOSTILE, NOW_MS, Opened, hostile_rows, opened, partition_row, written

if TYPE_CHECKING:
    from playwright.sync_api import Browser

SIZES = {"narrow": {"width": 320, "height": 640}, "wide": {"width": 1920, "height": 1080}}
CONTRAST = """(() => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const light = (colour) => {
    canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    const parts = [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map((each) => each / 255);
    const [r, g, b] = parts.map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
  const style = (element) => getComputedStyle(element);
  const ground = style(document.body).backgroundColor;
  return [...document.querySelectorAll(".legend li")].map((each) => {
    const fill = style(each.querySelector(".item")).fill;
    const letter = style(each.querySelector(".letter")).fill;
    const name = each.querySelector(".item").getAttribute("class");
    return [name, contrast(fill, ground), contrast(fill, letter)];
  });
})()"""


def violations(page: Any) -> list[str]:
    """Return the problems that axe-core finds for WCAG 2.2 A and AA."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [f"{each['id']}: {each['nodes'][0]['html'][:200]}" for each in found]


LINES = """(cell) => {
  const range = document.createRange();
  range.selectNodeContents(cell);
  return range.getClientRects().length;
}"""
OVERLAPS = """(() => {
  const boxes = [...document.querySelectorAll(".chart text")].map((each) => each.getBoundingClientRect());
  const apart = (a, b) => a.right <= b.left || b.right <= a.left || a.bottom <= b.top || b.bottom <= a.top;
  return boxes.flatMap((a, at) => boxes.slice(at + 1).filter((b) => !apart(a, b))).length;
})()"""


def lanes_drawn(found: Opened) -> int:
    return int(found.page.evaluate("document.querySelectorAll('#lanes td > svg').length"))


@pytest.mark.parametrize(("scheme", "size"), [("light", "narrow"), ("dark", "wide")])
def test_a_page_is_accessible(browser: "Browser", scheme: Any, size: str, tmp_path: Path) -> None:
    rows = [partition_row("orders", number, segments=12) for number in range(8)]
    with opened(browser, written(tmp_path, rows), color_scheme=scheme, viewport=SIZES[size]) as found:
        page = found.page
        page.get_by_role("button", name="Segments of orders-0", exact=True).click()
        page.locator("summary", has_text="finding").click()
        assert violations(page) == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.evaluate(OVERLAPS) == 0
        heights = page.locator("#expirations tbody tr").evaluate_all("rows => rows.map(r => r.offsetHeight)")
        assert max(heights) < 40
        weak = [each for each in page.evaluate(CONTRAST) if each[1] < 4.5 or each[2] < 4.5]
        assert weak == []


def test_everything_can_be_done_with_the_keyboard(browser: "Browser", tmp_path: Path) -> None:
    rows = [
        partition_row(name, 0, segments=4, topic_number=at) for at, name in enumerate(("ledger", "orders"))
    ]
    with opened(browser, written(tmp_path, rows)) as found:
        page = found.page
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id || location.hash") in {"main", "#main"}
        reached = set()
        wanted = {"filter", "only", "sort", "size", "Segments of ledger-0", "Segments of orders-0"}
        for _ in range(80):
            page.keyboard.press("Tab")
            reached.add(
                page.evaluate("(document.activeElement.id || document.activeElement.ariaLabel || '')")
            )
            if wanted <= reached:
                break
        assert wanted <= reached
        page.locator('input[value="offset"]').focus()
        page.keyboard.press("ArrowRight")
        assert page.locator("#axis").inner_text().startswith("All lanes are from")
        page.locator("#filter").focus()
        page.keyboard.type("LEDG")
        page.get_by_text("Partitions 1 to 1 of 1").first.wait_for()
        page.get_by_role("button", name="Segments of ledger-0", exact=True).press("Space")
        table = page.get_by_role("region", name="Segments of ledger-0")
        assert table.get_by_role("row").count() == 1 + 4 + 1
        assert "expired: brokers may delete it now" in table.inner_text()


def test_lanes_say_what_they_show(browser: "Browser", tmp_path: Path) -> None:
    with opened(browser, written(tmp_path, [partition_row("orders", 0, segments=4)])) as found:
        picture = found.page.locator("#lanes td > svg")
        assert picture.get_attribute("aria-label") == "orders-0: tier 1 due (E), 3 current; log 1 active (A)"
        boxes = picture.locator("rect.item").evaluate_all(
            "boxes => boxes.map((each) => [each.getAttribute('class'), each.x.baseVal.valueInSpecifiedUnits])"
        )
        # Four segments of 1000 offsets each, and 500 offsets in the log: 4500 in total.
        assert [name for name, _ in boxes] == ["item due", *["item current"] * 3, "item active"]
        assert [x for _, x in boxes] == pytest.approx([0, 22.222, 44.444, 66.667, 88.889])
        titles = picture.locator("title").all_text_contents()
        assert titles[0].startswith(
            "tier: 1 segment, offsets 0 to 999, 1.0 MiB, leader epoch 0, newest record "
        )
        assert titles[-1] == "error: gap: a gap"
        assert picture.locator("path.mark.error").count() == 1
        found.page.locator('input[value="time"]').check()
        found.page.locator("#lanes td > svg").wait_for()
        assert found.page.locator("#lanes rect.item").count() == 5


def test_a_colour_mode_can_be_chosen_and_paper_is_white(browser: "Browser", tmp_path: Path) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    rows = [partition_row("orders", number, segments=3) for number in range(80)]
    with opened(browser, written(tmp_path, rows), color_scheme="light") as found:
        page = found.page
        assert page.evaluate(ground) == "rgb(255, 255, 255)"
        page.select_option("#theme", "dark")
        assert page.evaluate(ground) == "rgb(13, 17, 23)"
        assert lanes_drawn(found) < 80
        page.emulate_media(media="print")
        assert page.evaluate(ground) == "rgb(255, 255, 255)"
        assert page.pdf()[:5] == b"%PDF-"
        # Lanes that were never visible are printed, too, and so are closed parts.
        assert lanes_drawn(found) == 80
        assert not page.locator("#controls").is_visible()
        # The other columns of the findings need much space, but no word of a severity is split.
        page.set_viewport_size({"width": 320, "height": 600})
        cells = page.locator("#findings-list tbody th")
        assert [cell.evaluate(LINES) for cell in cells.all()] == [1, 1, 1]


def test_hostile_names_stay_text(browser: "Browser", tmp_path: Path) -> None:
    with opened(browser, written(tmp_path, hostile_rows())) as found:
        page = found.page
        page.get_by_role("button", name=re.compile("^Segments of")).first.click()
        assert page.title().startswith("Tier report")
        assert page.locator("#lanes tr.partition").count() == len(HOSTILE)
        assert page.evaluate("document.images.length + document.querySelectorAll('b').length") == 0
        assert page.evaluate("document.scripts.length") == 2
        text = page.evaluate("document.body.textContent")
        assert text.count(HOSTILE[0]) >= 5
        assert "\\u202eevil\\u2066<b>" in text
        assert not re.search("[\u202e\u2066\u2028\x1b]", text)
        page.set_viewport_size(SIZES["narrow"])  # type: ignore[arg-type]
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        # The content security policy blocks injected scripts and styles, also from the page's own script.
        page.evaluate(
            "document.head.append(Object.assign(document.createElement('style'), "
            "{textContent: 'body {color: red}'}))"
        )
        assert page.evaluate("getComputedStyle(document.body).color") != "rgb(255, 0, 0)"
        assert "Content Security Policy" in found.said.pop()


def test_ten_thousand_partitions_are_usable(browser: "Browser", tmp_path: Path) -> None:
    limit = items_per_lane([20, 1] * 10_000)
    rows = [
        partition_row(
            f"topic-{number // 100:03}", number % 100, segments=20, topic_number=number // 100, limit=limit
        )
        for number in range(10_000)
    ]
    file = written(tmp_path, rows)
    assert file.stat().st_size < 6_000_000
    with opened(browser, file) as found:
        page = found.page
        assert page.locator("#lanes tr.partition").count() == 100
        # Only lanes near the visible area are drawn, soon after they are on the page.
        page.locator("#lanes td > svg").first.wait_for()
        assert 0 < lanes_drawn(found) < 40
        page.locator("#sort").select_option("expiry")
        page.locator(".pager .next").first.click()
        assert "Partitions 101 to 200 of 10,000" in page.locator(".pager .where").first.inner_text()
        page.locator("#filter").fill("topic-042")
        page.get_by_text("Partitions 1 to 100 of 100", exact=True).first.wait_for()
        page.locator("#only").select_option("problems")
        assert page.locator(".pager .where").first.inner_text() == "No partition matches"
        page.locator("#filter").fill("")
        page.get_by_text("Partitions 1 to 2 of 2", exact=True).first.wait_for()


def test_without_scripts_the_tables_are_there(browser: "Browser", tmp_path: Path) -> None:
    file = written(tmp_path, [partition_row("orders", 0, segments=4)])
    with opened(browser, file, java_script_enabled=False) as found:
        assert found.page.get_by_text("The lanes need scripts").is_visible()
        for table in ("topics", "ages", "growth-days", "expirations", "finding-kinds"):
            assert found.page.locator(f"#{table}").is_visible()
        assert not found.page.locator("#controls").is_visible()


def test_a_window_of_1280_pixels_shows_every_column_of_a_topic(browser: "Browser", tmp_path: Path) -> None:
    rows = [partition_row("orders-of-customers", 0, segments=3)]
    counts = ("lag_segments", "local_delete_segments", "failing_copies", "dangling_copies", "stuck_deletes")
    sizes = ("log_bytes", "lag_bytes", "local_delete_bytes")
    times = ("first_record_ms", "last_record_ms", "lag_since_ms")
    topic = {"topic": "orders-of-customers", "segments": 12345, "partitions": 128, "problems": 12}
    topic |= dict.fromkeys(counts, 1234) | dict.fromkeys(sizes, 10**12) | dict.fromkeys(times, NOW_MS)
    page = written(tmp_path, rows, topics=[topic | {"topic_id": "AA"}])
    with opened(browser, page, viewport={"width": 1280, "height": 800}) as found:
        table = found.page.locator("#topics")
        assert table.locator("thead th").all_text_contents() == [
            *("topic", "size", "segments", "partitions", "oldest", "newest", "behind", "behind size"),
            *("behind since", "to free", "to free size", "failing", "dangling", "stuck", "problems"),
        ]
        assert table.evaluate("each => each.offsetWidth <= each.closest('.scroll').clientWidth")
