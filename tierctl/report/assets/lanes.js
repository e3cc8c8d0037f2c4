"use strict";
/* Draws the lanes of partitions from the columns in #data; `lanes.py` describes the columns. Texts are set
   as text only, and nothing is fetched. A lane is drawn when it comes near the visible part of the page. */
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const rows = data.rows, items = data.items, kinds = data.kinds, findings = data.findings;
  const count = rows.topic ? rows.topic.length : 0;
  const SVG = "http://www.w3.org/2000/svg";
  const severities = ["error", "warning", "info"];
  const find = (id) => document.getElementById(id);

  const html = (tag, attributes, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
    element.append(...children);
    return element;
  };
  const svg = (tag, attributes) => {
    const element = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    return element;
  };
  const named = (text) => html("bdi", {}, text);
  const number = (value) => value.toLocaleString("en-US");
  const plural = (n, noun) => `${number(n)} ${noun}${n === 1 ? "" : "s"}`;
  const bytes = (size) => {
    const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let at = 0;
    while (Math.abs(size) >= (at ? 1023.95 : 1024) && at < units.length - 1) { size /= 1024; at += 1; }
    return `${at ? size.toFixed(1) : size} ${units[at]}`;
  };
  const time = (seconds) => (seconds === null || seconds < 0)
    ? "" : new Date(seconds * 1000).toISOString().slice(0, 16).replace("T", " ");
  const topic = (row) => data.topics[rows.topic[row]][0];
  const title = (row) => `${topic(row)}-${rows.number[row]}`;

  /* The first item of each lane: that of partition `row` is firsts[2 * row], that of its log the next. */
  const firsts = new Int32Array(2 * count + 1);
  for (let row = 0; row < count; row += 1) {
    firsts[2 * row + 1] = firsts[2 * row] + rows.tier_items[row];
    firsts[2 * row + 2] = firsts[2 * row + 1] + rows.local_items[row];
  }
  const listed = new Map();
  for (const finding of findings.listed) {
    if (!listed.has(finding[0])) listed.set(finding[0], []);
    listed.get(finding[0]).push(finding);
  }

  /* Return the items of one lane as objects, differences added up; `from` is the time before the first. */
  const laneOf = (row, isLocal) => {
    const lane = [];
    let next = 0, seconds = 0, epoch = 0, before = null;
    for (let at = firsts[2 * row + isLocal]; at < firsts[2 * row + isLocal + 1]; at += 1) {
      const start = next + items.gap[at];
      next = start + items.length[at];
      seconds += items.time[at];
      epoch += items.epoch[at];
      const known = seconds >= 0 ? seconds : null;
      lane.push({
        start, end: next - 1, count: items.count[at], bytes: items.bytes[at], epoch, to: known, from: before,
        kind: kinds[items.kind[at] >> 1], isMixed: (items.kind[at] & 1) === 1,
      });
      if (known !== null) before = known;
    }
    return lane;
  };
  const kindCounts = (lane) => {
    const counts = new Map();
    for (const item of lane) counts.set(item.kind, (counts.get(item.kind) || 0) + item.count);
    return counts;
  };
  const kindsText = (lane) =>
    [...kindCounts(lane)].map(([kind, n]) => `${number(n)} ${kind[0]}${kind[1] ? ` (${kind[1]})` : ""}`).join(", ");

  /* The extent of all lanes in time. */
  let oldest = data.now, newest = 0;
  for (let lane = 0; lane < 2 * count; lane += 1) {
    let seconds = 0;
    for (let at = firsts[lane]; at < firsts[lane + 1]; at += 1) {
      seconds += items.time[at];
      if (seconds > 0 && seconds <= data.now) {
        if (seconds < oldest) oldest = seconds;
        if (seconds > newest) newest = seconds;
      }
    }
  }
  newest = Math.max(data.now, newest, oldest + 1);

  const byTime = () => document.querySelector('input[name="by"]:checked').value === "time";
  const extent = (lanes, row) => {
    if (byTime()) return [oldest, newest];
    let first = Infinity, last = 0;
    for (const item of lanes.flat()) { first = Math.min(first, item.start); last = Math.max(last, item.end + 1); }
    if (rows.log_start[row] !== null) first = Math.min(first, rows.log_start[row]);
    if (rows.log_end[row] !== null) last = Math.max(last, rows.log_end[row]);
    return first === Infinity ? [0, 1] : [first, Math.max(last, first + 1)];
  };

  const describe = (item, isLocal) => {
    const where = isLocal ? "log" : "tier";
    const what = item.isMixed ? `several kinds or epochs, or holes, among them ${item.kind[0]}` : item.kind[0];
    const epoch = item.epoch >= 0 ? `, leader epoch ${item.epoch}` : "";
    const until = item.to === null ? "" : `, newest record ${time(item.to)}`;
    return `${where}: ${plural(item.count, "segment")}, offsets ${item.start} to ${item.end}, ` +
      `${bytes(item.bytes)}${epoch}${until}: ${what}`;
  };

  /* Draw one lane: y and height of its items; those off the lineage are below the others. */
  const drawLane = (picture, lane, scale, isLocal) => {
    const y = isLocal ? 34 : 10;
    if (!lane.length) return;
    picture.append(svg("rect", { class: "back", x: 0, y, width: "100%", height: 14 }));
    let before = null;
    for (const item of lane) {
      const [from, to] = scale(item);
      if (from === null || to < 0 || from > 100) continue;
      const isBelow = !isLocal && (item.kind[0] === "diverged" || item.kind[0] === "gone");
      const place = {
        x: `${from.toFixed(3)}%`, y: isBelow ? 25 : y, width: `${Math.max(to - from, 0.4).toFixed(3)}%`,
        height: isBelow ? 7 : 14,
      };
      const box = svg("rect", { ...place, class: `item ${item.kind[0]}${to - from < 1 ? " thin" : ""}` });
      const tip = svg("title", {});
      tip.textContent = describe(item, isLocal);
      box.append(tip);
      picture.append(box);
      if (item.kind[1]) picture.append(svg("rect", { ...place, class: `pattern ${item.kind[0]}` }));
      if (item.kind[1] && !isBelow && to - from > 2.2) {
        const letter = svg("text", { class: `letter ${item.kind[0]}`, x: `${((from + to) / 2).toFixed(3)}%`, y: y + 11 });
        letter.textContent = item.kind[1];
        picture.append(letter);
      }
      if (before !== null && !isBelow && !isLocal && item.epoch !== before) {
        picture.append(svg("line", { class: "epoch", x1: place.x, x2: place.x, y1: y - 3, y2: y + 17 }));
      }
      if (!isBelow) before = item.epoch;
    }
  };
  const shapes = { error: "M0 -5L5 0L0 5L-5 0Z", warning: "M0 -5L5 4L-5 4Z", info: "M-4 0A4 4 0 1 0 4 0A4 4 0 1 0 -4 0Z" };
  const drawMarks = (picture, row, position) => {
    /* The most serious marks come first in the list and last in the drawing, above the others. */
    for (const [, severity, kind, message, start] of [...(listed.get(row) || [])].reverse()) {
      const at = start === null ? 0 : position(start);
      if (at === null || at < 0 || at > 100) continue;
      /* A path has no percentages: a nested drawing has the place. */
      const place = svg("svg", { x: `${at.toFixed(3)}%`, y: 5, overflow: "visible", width: 1, height: 1 });
      const mark = svg("path", { class: `mark ${severity}`, d: shapes[severity] });
      const tip = svg("title", {});
      tip.textContent = `${severity}: ${kind}${message ? `: ${message}` : ""}`;
      mark.append(tip);
      place.append(mark);
      picture.append(place);
    }
  };
  const draw = (cell) => {
    const row = Number(cell.dataset.row);
    const tier = laneOf(row, 0), local = laneOf(row, 1);
    const [first, last] = extent([tier, local], row);
    const percent = (value) => (100 * (value - first)) / (last - first);
    const scale = byTime()
      ? (item) => (item.to === null ? [null, null] : [percent(Math.max(item.from === null ? item.to : Math.min(item.from, item.to), first)), percent(Math.min(item.to, last))])
      : (item) => [percent(item.start), percent(item.end + 1)];
    const timeAt = (offset) => {
      const item = [...tier, ...local].find((each) => each.start <= offset && offset <= each.end && each.to !== null);
      return item ? percent(Math.min(item.to, last)) : null;
    };
    const label = `${title(row)}: tier ${kindsText(tier) || "empty"}; log ${kindsText(local) || "not known"}`;
    const picture = svg("svg", { class: "lane", role: "img", "aria-label": label });
    drawLane(picture, tier, scale, false);
    drawLane(picture, local, scale, true);
    if (!byTime() && rows.log_start[row] !== null) {
      const x = `${percent(rows.log_start[row]).toFixed(3)}%`;
      picture.append(svg("line", { class: "start", x1: x, x2: x, y1: 8, y2: 49 }));
    }
    drawMarks(picture, row, byTime() ? timeAt : percent);
    const untimed = byTime() ? [...tier, ...local].filter((item) => item.to === null) : [];
    const ends = byTime() ? [time(first), time(last)] : [number(first), number(last)];
    const lines = [html("div", { class: "ends", "aria-hidden": "true" }, html("span", {}, ends[0]), html("span", {}, ends[1]))];
    const texts = [["tier", kindsText(tier)], ["log", kindsText(local)]].filter(([, text]) => text);
    if (untimed.length) {
      texts.push(["not shown by time", plural(untimed.reduce((sum, item) => sum + item.count, 0), "segment")]);
    }
    lines.push(html("div", { class: "kinds" }, texts.map(([where, text]) => `${where}: ${text}`).join("; ")));
    cell.replaceChildren(picture, ...lines);
  };

  /* What is shown: the partitions that the controls choose, one page of them. */
  const problems = (row) => findings.counts.error[row] + findings.counts.warning[row];
  const has = (row, names) => {
    for (let at = firsts[2 * row]; at < firsts[2 * row + 2]; at += 1) {
      if (names.includes(kinds[items.kind[at] >> 1][0])) return true;
    }
    return false;
  };
  const filters = {
    "": () => true,
    problems: (row) => problems(row) > 0,
    findings: (row) => problems(row) + findings.counts.info[row] > 0,
    diverged: (row) => has(row, ["diverged"]),
    unfinished: (row) => has(row, ["copying", "deleting"]),
    due: (row) => has(row, ["due"]),
    waiting: (row) => has(row, ["waiting"]),
  };
  const never = Number.MAX_SAFE_INTEGER;
  const orders = {
    name: () => 0,
    tier: (a, b) => rows.tier_bytes[b] - rows.tier_bytes[a],
    local: (a, b) => rows.local_bytes[b] - rows.local_bytes[a],
    problems: (a, b) => problems(b) - problems(a),
    expiry: (a, b) => (rows.expiry[a] === null ? never : rows.expiry[a]) - (rows.expiry[b] === null ? never : rows.expiry[b]),
  };
  let chosen = [], first = 0;
  const pageSize = () => Number(find("size").value);
  const choose = () => {
    const wanted = find("filter").value.toLowerCase(), keeps = filters[find("only").value];
    const matches = data.topics.map(([name]) => name.toLowerCase().includes(wanted));
    chosen = [];
    for (let row = 0; row < count; row += 1) if (matches[rows.topic[row]] && keeps(row)) chosen.push(row);
    chosen.sort((a, b) => orders[find("sort").value](a, b) || a - b);
    first = 0;
    show();
  };

  const observer = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (entry.isIntersecting) { observer.unobserve(entry.target); draw(entry.target); }
    }
  }, { rootMargin: "400px" });

  const findingsCell = (row) => {
    const found = severities.filter((level) => findings.counts[level][row] > 0);
    return found.flatMap((level) => [
      html("span", { class: `severity ${level}` }, plural(findings.counts[level][row], level === "info" ? "note" : level)), html("br"),
    ]).slice(0, -1);
  };
  const sizeCell = (size, segments) => segments === 0 ? [] : [bytes(size), html("br"), html("span", { class: "kinds" }, plural(segments, "segment"))];
  const rowOf = (row) => {
    const more = html("button", { type: "button", class: "more", "aria-expanded": "false" }, "Segments");
    more.setAttribute("aria-label", `Segments of ${title(row)}`);
    const lanes = html("td", { role: "cell", "data-row": row });
    const cell = (label, ...children) => html("td", children.length ? { role: "cell", "data-label": label } : { role: "cell" }, ...children);
    const element = html("tr", { role: "row", class: "partition" },
      html("th", { scope: "row", role: "rowheader" }, named(topic(row)), `-${rows.number[row]}`, more),
      lanes,
      cell("Tier", ...sizeCell(rows.tier_bytes[row], rows.tier_segments[row])),
      cell("Log", ...sizeCell(rows.local_bytes[row], rows.local_segments[row])),
      cell("Findings", ...findingsCell(row)),
      cell("Next expiration", ...(rows.expiry[row] === null ? [] : [time(rows.expiry[row])])));
    more.addEventListener("click", () => toggle(more, element, row));
    observer.observe(lanes);
    return element;
  };

  /* The items and the findings of one partition as tables, which say what the drawing shows. */
  const toggle = (button, element, row) => {
    const isOpen = button.getAttribute("aria-expanded") === "true";
    button.setAttribute("aria-expanded", String(!isOpen));
    if (isOpen) { element.nextElementSibling.remove(); return; }
    const cell = html("td", { colspan: "6", role: "cell" }, segmentsTable(row), ...findingsTable(row));
    element.after(html("tr", { role: "row", class: "more-row" }, cell));
  };
  const plainTable = (caption, heads, lines) => {
    const head = html("tr", {}, ...heads.map((text) => html("th", { scope: "col" }, text)));
    const body = lines.map((cells) => html("tr", {}, ...cells.map((text) => html("td", typeof text === "number" ? { class: "number" } : {}, typeof text === "number" ? number(text) : text))));
    const scroll = html("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": caption });
    scroll.append(html("table", {}, html("caption", {}, caption), html("thead", {}, head), html("tbody", {}, ...body)));
    return scroll;
  };
  const segmentsTable = (row) => {
    const lines = [];
    for (const isLocal of [0, 1]) {
      for (const item of laneOf(row, isLocal)) {
        const what = item.isMixed ? `several kinds or epochs, or holes, among them: ${item.kind[2]}` : item.kind[2];
        lines.push([isLocal ? "log" : "tier", item.start, item.end, item.count, bytes(item.bytes),
          item.epoch < 0 ? "" : item.epoch, item.to === null ? "none" : time(item.to), what]);
      }
    }
    const heads = ["where", "first offset", "last offset", "segments", "size", "leader epoch", "newest record", "state"];
    return plainTable(`Segments of ${title(row)}`, heads, lines);
  };
  const findingsTable = (row) => {
    const found = listed.get(row) || [];
    const lines = found.map(([, severity, kind, message, start, end]) => [severity, kind, start === null ? "" : start, end === null ? "" : end, message]);
    return found.length ? [plainTable(`Findings of ${title(row)}`, ["severity", "kind", "first offset", "last offset", "message"], lines)] : [];
  };

  const showAxis = () => {
    find("axis").hidden = !byTime();
    find("axis").textContent = `All lanes are from ${time(oldest)} to ${time(newest)} UTC.`;
  };
  const show = () => {
    observer.disconnect();
    const shown = chosen.slice(first, first + pageSize());
    document.querySelector("#lanes > tbody").replaceChildren(...shown.map(rowOf));
    const where = chosen.length ? `Partitions ${number(first + 1)} to ${number(first + shown.length)} of ${number(chosen.length)}` : "No partition matches";
    for (const element of document.querySelectorAll(".pager .where")) element.textContent = where;
    for (const button of document.querySelectorAll(".pager .previous")) button.disabled = first === 0;
    for (const button of document.querySelectorAll(".pager .next")) button.disabled = first + pageSize() >= chosen.length;
    showAxis();
  };
  const redraw = () => {
    observer.disconnect();
    for (const cell of document.querySelectorAll("#lanes td[data-row]")) { cell.replaceChildren(); observer.observe(cell); }
    showAxis();
  };
  const turn = (step) => {
    first = Math.max(0, first + step * pageSize());
    show();
    find("partitions").scrollIntoView();
  };

  find("without-script").hidden = true;
  for (const id of ["controls", "lanes", "theme-choice"]) find(id).hidden = false;
  for (const pager of document.querySelectorAll(".pager")) pager.hidden = false;
  for (const button of document.querySelectorAll(".pager .previous")) button.addEventListener("click", () => turn(-1));
  for (const button of document.querySelectorAll(".pager .next")) button.addEventListener("click", () => turn(1));
  for (const id of ["only", "sort", "size"]) find(id).addEventListener("change", choose);
  for (const radio of document.querySelectorAll('input[name="by"]')) radio.addEventListener("change", redraw);
  let waiting = 0;
  find("filter").addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(choose, 150); });
  find("controls").addEventListener("submit", (event) => event.preventDefault());
  find("theme").addEventListener("change", () => {
    const theme = find("theme").value;
    if (theme) document.documentElement.dataset.theme = theme; else delete document.documentElement.dataset.theme;
  });
  /* Paper has no scrolling and no opening: lanes of the page are drawn, and closed parts opened meanwhile. */
  let opened = [];
  window.addEventListener("beforeprint", () => {
    for (const cell of document.querySelectorAll("#lanes td[data-row]:empty")) draw(cell);
    opened = [...document.querySelectorAll("details:not([open])")];
    for (const part of opened) part.open = true;
  });
  window.addEventListener("afterprint", () => { for (const part of opened) part.open = false; });
  choose();
})();
