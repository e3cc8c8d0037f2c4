"""The page as text: a template, a style sheet, a script, and the data of the lanes.

The page needs nothing but itself. Its policy allows only this script and this style sheet, by their hashes.
"""

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from tierctl.model.times import iso_utc
from tierctl.report.html.content import PageContent
from tierctl.report.html.elements import text
from tierctl.report.html.growth import growth_section
from tierctl.report.html.kinds import SegmentKind
from tierctl.report.html.sections import (
    ages_section,
    expirations_section,
    facts_section,
    findings_section,
    legend,
    limits_section,
    topics_section,
)

GENERATOR = '<meta name="generator" content="tierctl report">'
"""The line by which a file is known as a page that may be replaced."""
_PLACE = re.compile(r"\{\{(\w+)\}\}")
_IN_SCRIPT = {ord(char): f"\\u{ord(char):04x}" for char in "<>&"}


def page_chunks(content: PageContent) -> Iterator[str]:
    """Yield the parts of the page."""
    style, script = _asset("style.css"), _asset("lanes.js")
    at = iso_utc(content.now_ms)
    values = {
        "generator": GENERATOR,
        "policy": _policy(style, script),
        "title": f"Tier report, {at[:10]} {at[11:16]} UTC",
        "style": style,
        "script": script,
        "version": text(content.version),
        "time": at,
        "facts": facts_section(content),
        "findings": findings_section(content),
        "topics": topics_section(content),
        "ages": ages_section(content),
        "growth": growth_section(content.growth, content.now_ms),
        "expirations": expirations_section(content),
        "limits": limits_section(content),
        "legend": legend(),
        "data": _data(content),
    }
    # Values are inserted once: a placeholder inside a value is not replaced.
    for number, part in enumerate(_PLACE.split(_asset("page.html"))):
        yield values[part] if number % 2 else part


def _policy(style: str, script: str) -> str:
    """Return the Content-Security-Policy: no network, and only this style sheet and this script."""
    return (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; base-uri 'none'; "
        "form-action 'none'; require-trusted-types-for 'script'"
    )


def _hash(source: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}"


def _data(content: PageContent) -> str:
    """Return the columns of the lanes as JSON in ASCII, in which nothing ends a script element."""
    kinds: list[Any] = [
        [kind.row.name, kind.row.letter, kind.row.meaning, kind.row.is_local] for kind in SegmentKind
    ]
    data = content.lanes.to_json() | {
        "kinds": kinds,
        "findings": content.lane_findings,
        "now": content.now_ms // 1000,
    }
    return json.dumps(data, separators=(",", ":")).translate(_IN_SCRIPT)


@cache
def _asset(name: str) -> str:
    return (Path(__file__).parent / "assets" / name).read_text(encoding="utf-8")
