# SPDX-License-Identifier: Apache-2.0
"""page_test.py WRITE_PAGE TROUPE FOLDER: the report page in headless Chromium. It loads, complains about nothing, asks no network, its numbers are
those of the document, and its controls do what they say. Exit code 77 (skipped) where there is no Chromium."""
import json, pathlib, subprocess, sys, time

import browser
import samples

# A canvas as numbers. By a copy: reading the page's own canvases would make the browser draw them differently, and say so.
PIXELS = """s => { const from = document.querySelector(s), copy = new OffscreenCanvas(from.width, from.height).getContext('2d', {willReadFrequently: true});
  copy.drawImage(from, 0, 0); return new Uint32Array(copy.getImageData(0, 0, from.width, from.height).data.buffer); }"""
faults = []


def check(holds, sentence):
    print(("ok    " if holds else "FAULT ") + sentence, flush=True)
    if not holds:
        faults.append(sentence)


def plain(text):
    return text.replace("\u00a0", " ")


class Page:
    def __init__(self, chromium, path, dark=False):
        self.b = chromium
        begin = time.monotonic()
        chromium.open(path, dark)
        chromium.until("!!window.troupe_page || !!document.querySelector('main > .missing')")
        self.loaded_in = time.monotonic() - begin

    def now(self):
        return self.b.value("troupe_page.clock.ps")

    def text(self, selector):
        return plain(self.b.value(f"document.querySelector({json.dumps(selector)})?.textContent ?? '(absent)'"))

    def table(self, selector):
        return self.b.value(f"[...document.querySelectorAll({json.dumps(selector + ' tbody tr')})].map(r => [...r.cells].map(c => c.textContent))")

    def seek(self, ps):
        self.b.value(f"troupe_page.seek({ps})")
        self.b.frames()

    def picture_sum(self, selector):
        """Tells pictures apart."""
        return self.b.value(f"(({PIXELS})({json.dumps(selector)})).reduce((h, p) => (h * 31 + p) | 0, 0)")

    def colours(self, selector):
        return self.b.value(f"new Set(({PIXELS})({json.dumps(selector)})).size")

    def quiet(self, what):
        said = self.b.complaints()
        check(not said, f"{what}: no console error, no exception, no request" + "".join(f"\n        {s}" for s in said))


def opened_at(page, path, anchor):
    """The same page by another address."""
    page.b.call("Page.navigate", url="about:blank")
    page.b.until("location.protocol === 'about:'")
    page.b.call("Page.navigate", url=f"file://{path.resolve()}{anchor}")
    page.b.until("!!window.troupe_page")
    page.b.frames(3)


def test_links(page, path, document):
    end = document["end_ps"]
    opened_at(page, path, f"#t={end / 4 / 1e6}us&show={end / 8 / 1e6}us-{end / 2 / 1e6}&grid=4")
    check(page.now() == round(end / 4), f"an address with a time shows that time: {page.now()} of {end}")
    check(page.b.value("[troupe_page.view.from, troupe_page.view.to].map(Math.round)") == [round(end / 8), round(end / 2)], "and that window of time")
    columns = page.b.value("new Set(troupe_page.choreographies[0].nodes.map(n => Math.round(n.x))).size")
    rows = page.b.value("new Set(troupe_page.choreographies[0].nodes.map(n => Math.round(n.y))).size")
    check((columns, rows) == (4, document["ranks"] // 4) and page.b.value("document.getElementById('arrange').value") == "4", f"and ranks in rows of four: {columns} x {rows}")
    page.seek(end // 3)
    page.b.until(f"location.hash.startsWith('#t={end // 3 / 1e6}us')", 30)
    page.b.click("#whole")
    page.b.value("(s => { s.value = '0'; s.dispatchEvent(new Event('change')); })(document.getElementById('arrange'))")
    page.seek(0)
    page.b.until("location.hash === ''", 30)
    check(True, "the address follows what is shown")
    page.b.value("location.hash = '#t=1us', 1")
    page.b.until("troupe_page.clock.ps === 1e6", 30)
    # The page is about to say where it stands, 200 ms after it was moved, when the reader enters another address: one that is busy then writes first.
    page.b.value("(() => { troupe_page.seek(%d); const busy = () => { const end = performance.now() + 400; while (performance.now() < end); };"
                 " setTimeout(busy, 120); setTimeout(() => { location.hash = '#t=2us'; }, 121); })()" % (end // 3))
    page.b.until("troupe_page.clock.ps === 2e6", 30)
    check(True, "an address that is entered while the page writes its own is not lost")
    for strange in ("#t=never", "#show=9-1", "#t=-4&grid=x", "#%"):
        opened_at(page, path, strange)
        check(page.now() == 0 and page.b.value("troupe_page.view.whole"), f"{strange} is no moment, and is passed over")


SVG_BESIDE_PNG = """async part => {
  const section = document.getElementById(part), text = section_svg(troupe_page, section), pixels = (image, w, h) => {
    const c = new OffscreenCanvas(w, h).getContext('2d', {willReadFrequently: true});
    c.drawImage(image, 0, 0);
    return c.getImageData(0, 0, w, h).data;
  };
  const picture = new Image();
  picture.src = 'data:image/svg+xml;charset=utf-8,' + encodeURIComponent(text);
  await picture.decode();
  const bitmap = await createImageBitmap(await section_picture(troupe_page, section)), [w, h] = [bitmap.width, bitmap.height];
  const a = pixels(picture, w, h), b = pixels(bitmap, w, h);
  let other = 0;
  for (let i = 0; i < a.length; i += 4) other += Math.max(Math.abs(a[i] - b[i]), Math.abs(a[i + 1] - b[i + 1]), Math.abs(a[i + 2] - b[i + 2])) > 64;
  const root = new DOMParser().parseFromString(text, 'image/svg+xml').documentElement;
  return {same_size: picture.naturalWidth === w && picture.naturalHeight === h, other: other / (w * h), shapes: root.querySelectorAll('rect, path').length,
    texts: root.querySelectorAll('text').length, outside: /var\\(|class=|https?:(?!\\/\\/www\\.w3\\.org)/.test(text)};
}"""


def compare_svg(page, part):
    """The SVG of a section shows what its canvases show, without the page."""
    made = page.b.value(f"({SVG_BESIDE_PNG})('{part}')")
    check(made["same_size"] and made["shapes"] > 20 and made["texts"] > 5 and not made["outside"], f"{part} can be saved as SVG that needs nothing else: {made}")
    check(made["other"] < 0.005, f"which looks as the canvas does: {made['other']:.2%} of the pixels differ")


def test_pictures(page, document):
    page.seek(document["end_ps"] // 2)
    for part in ("choreography", "gantt", "heat"):
        colours = page.b.value("(async () => { const b = await createImageBitmap(await section_picture(troupe_page, document.getElementById('%s'))); "
                               "const c = new OffscreenCanvas(b.width, b.height).getContext('2d'); c.drawImage(b, 0, 0); "
                               "return new Set(new Uint32Array(c.getImageData(0, 0, b.width, b.height).data.buffer)).size; })()" % part)
        check(colours > 4, f"{part} can be saved as a picture: {colours} colours")
    for part in ("choreography", "gantt", "heat"):
        compare_svg(page, part)
    chart = page.b.value("svg_text(document.querySelector('#charts svg'))")
    drawn = page.b.value("(d => [d.documentElement.tagName, d.querySelectorAll('polyline').length, d.querySelector('polyline').getAttribute('stroke')])"
                         "(new DOMParser().parseFromString(%s, 'image/svg+xml'))" % json.dumps(chart))
    check(drawn[0] == "svg" and drawn[1] > 0 and drawn[2].startswith("rgb"), f"a chart can be saved as SVG that needs no style sheet: {drawn}")
    saved = page.b.value("(async () => { const names = []; HTMLAnchorElement.prototype.click = function () { names.push(this.download); }; "
                         "for (const b of document.querySelectorAll('.save')) b.click(); for (let i = 0; i < 100 && names.length < 8; ++i) await new Promise(r => setTimeout(r, 50)); delete HTMLAnchorElement.prototype.click; return names; })()")
    wanted = ["choreography.png", "choreography.svg", "gantt.png", "gantt.svg", "heat.png", "heat.svg", "results_1.png", "results_1.svg"]
    check(all(any(n.endswith(w) for n in saved) for w in wanted), f"by buttons: {saved}")


def give_file(page, path):
    root = page.b.call("DOM.getDocument")["root"]["nodeId"]
    node = page.b.call("DOM.querySelector", nodeId=root, selector="#open")["nodeId"]
    page.b.call("DOM.setFileInputFiles", nodeId=node, files=[str(path.resolve())])


TIMELINE = {"traceEvents": [
    {"ph": "M", "name": "process_name", "pid": 3, "args": {"name": "layer <b>"}}, {"ph": "M", "name": "thread_name", "pid": 3, "tid": 1, "args": {"name": "gemm"}},
    {"ph": "X", "name": "gemm 0", "cat": "work", "pid": 3, "tid": 1, "ts": 1000.5, "dur": 40, "args": {}}, {"ph": "X", "name": "wait", "cat": "wait", "pid": 3, "tid": 1, "ts": 1040.5, "dur": 9.5},
    {"ph": "B", "name": "outer", "pid": 4, "tid": 1, "ts": 1010}, {"ph": "B", "name": "inner", "pid": 4, "tid": 1, "ts": 1020}, {"ph": "E", "pid": 4, "tid": 1, "ts": 1030}, {"ph": "E", "pid": 4, "tid": 1, "ts": 1110.5},
    {"ph": "s", "name": "tile", "id": 1, "pid": 3, "tid": 1, "ts": 1020}]}


def test_experts(page, troupe, folder):
    subprocess.run([troupe, "experts", "--ranks", "4", "--experts", "8", "--layers", "2", "--skew", "1", "--report", folder / "experts.html", "--json", folder / "experts.json"],
                   check=True, stdout=subprocess.DEVNULL)
    page = Page(page.b, folder / "experts.html")
    ways = json.loads((folder / "experts.json").read_text())["ways"]
    plain_way = ways[0]["profile"]
    check(page.b.value("troupe_page.runs.map(r => r.doc.experts.imbalance)")[0] == plain_way["imbalance"], "the page of experts has the profile")
    page.b.until("[...document.querySelectorAll('#experts img')].every(i => i.complete)")
    check(page.b.value("[...document.querySelectorAll('#experts img')].filter(i => i.naturalWidth > 100).length") == 2, "the heat map of either way is drawn")
    check(page.b.value("[...document.querySelectorAll('#experts img')].every(i => i.getBoundingClientRect().right <= i.parentNode.getBoundingClientRect().right + 1)"), "and has room in its column")
    busiest = max(range(8), key=lambda e: plain_way["experts"][e]["tokens"])
    rows = page.b.value("[...document.querySelectorAll('#experts .run')[0].querySelectorAll('table')].map(t => [...t.tBodies[0].rows].map(r => [...r.cells].map(c => c.textContent)))")
    check([r[3].replace(",", "") for r in rows[0]] == [str(r["received"]) for r in plain_way["ranks"]], "a row a rank says what it received")
    check(rows[1][0][:2] == [str(busiest), f"{plain_way['experts'][busiest]['tokens']:,}"], "the busiest expert comes first")
    check(f"rank {plain_way['bottleneck']} receives most" in page.text("#experts .result"), "the page says which rank receives most")
    page.quiet("the page of experts")


def test_timelines(page, troupe, folder, document):
    """What other programs and runs wrote, beside the run of the page."""
    (folder / "timeline.json").write_text(json.dumps(TIMELINE))
    give_file(page, folder / "timeline.json")
    page.b.until("troupe_page.runs.length === 2")
    page.b.frames(3)
    check(page.b.value("troupe_page.runs[1].actors.map(a => a.name)") == ["gemm", "track 4 1"], "a timeline's tracks have their names")
    spans = page.b.value("(r => [...r.span_begin].map((b, i) => [b, r.span_end[i], r.span_kinds[r.span_kind[i]]]))(troupe_page.runs[1])")
    check(spans == [[0, 40e6, "compute"], [40e6, 49.5e6, "wait_chunk"], [19.5e6, 29.5e6, "call"], [9.5e6, 110e6, "call"]], f"its spans begin with the first: {spans}")
    check(page.b.value("troupe_page.end") == max(110_000_000, document["end_ps"]) and page.b.value("document.querySelectorAll('.gantt').length") == 2, "both stand on one clock")
    page.b.key("ArrowRight")
    check(page.now() == page.b.value("troupe_page.event_times.find(t => t > 0)"), "a key is one step, also in the page that was built anew")
    page.b.click("#alone")
    check(page.b.value("troupe_page.runs.length") == 1 and page.b.value("document.querySelectorAll('h1').length") == 1, "and the first can stand alone again")
    trace = pathlib.Path(__file__).resolve().parents[2] / "config/traces/training.goal"
    subprocess.run([troupe, "replay", trace, "--on", "dgx_h100", "--timeline", folder / "replayed.json"], check=True, stdout=subprocess.DEVNULL)
    give_file(page, folder / "replayed.json")
    page.b.until("troupe_page.runs.length === 2")
    check(page.b.value("troupe_page.runs[1].actors.length") == 8 and page.b.value("troupe_page.runs[1].span_count") > 100, "a replay's timeline is shown")
    page.b.click("#alone")
    for name, text, said in (("broken", "{", "cannot be shown"), ("other", '{"a": 1}', "neither a study"), ("empty", '{"traceEvents": []}', "has no span")):
        (folder / f"{name}_timeline.json").write_text(text)
        give_file(page, folder / f"{name}_timeline.json")
        page.b.until("document.getElementById('opened').textContent.includes(%s)" % json.dumps(f"{name}_timeline"))
        check(said in page.text("#opened") and page.b.value("troupe_page.runs.length") == 1, f"what is none is refused: {page.text('#opened')}")


RECORDED = """num_ranks 2
//@ clock here 1000000
rank 0 {
a: calc 40000
//@ a from 5000 to 55000
b: coll all_reduce 1024 f32 sum
b requires a
//@ b from 55000
//@ b to 105000
c: send 4096b to 1
c requires b
//@ c from 105000 to 115000
}
rank 1 {
a: coll all_reduce 1024 f32 sum
//@ a from 15000 to 95000
b: recv 4096b from 0
b requires a
//@ b from 95000 to 125000
}
"""


def test_recorded(chromium, troupe, folder):
    """A run that an engine recorded, beside its replay."""
    (folder / "recorded.goal").write_text(RECORDED)
    said = subprocess.run([troupe, "replay", folder / "recorded.goal", "--report", folder / "recorded.html", "--timeline", folder / "recorded.json"], check=True, capture_output=True, text=True).stdout
    check("recorded 120.0 us; the replay takes" in said, f"the table says how long the run took: {[l for l in said.splitlines() if 'recorded' in l]}")
    page = Page(chromium, folder / "recorded.html")
    spans = page.b.value("(r => [...r.span_begin].map((b, i) => [r.actors[r.span_actor[i]].name, r.name_of_span(i), b / 1e6, r.span_end[i] / 1e6]))(troupe_page.runs[0])")
    check(spans == [["rank 0", "compute", 0, 50], ["rank 0", "all_reduce", 50, 100], ["rank 0", "send", 100, 110], ["rank 1", "all_reduce", 10, 90], ["rank 1", "receive", 90, 120]],
          f"the page has the run as it was: {spans}")
    check(page.b.value("troupe_page.runs[1].span_count") == 5 and page.b.value("document.querySelectorAll('.gantt').length") == 2, "and the replay beside it")
    titles = page.b.value("troupe_page.runs.map(r => r.title)")
    check(titles == ["recorded.goal, as it was recorded", "recorded.goal, replayed"], f"their titles name the trace: {titles}")
    spent = page.b.value("troupe_page.runs[1].critical_shares().map(s => s[0])")
    check(spent and all(f"% {word}" in said for word in spent), f"the critical path is in the table's words: {spent}")
    check("may add up to more than 100 %" in page.text("#results"), "and why shares may add up to more than 100 % is said")
    check("A ends after 120" in page.text("#result"), f"and says how long both take: {page.text('#result')}")
    rows = {r[0]: [plain(c) for c in r[1:]] for r in page.table("#rows")}
    check(rows["all_reduce"][:3] == ["2", "130.0 µs", "54.2 %"], f"its table adds the time up: {rows}")
    check(page.text("#choreography") == "(absent)" and page.b.value("document.querySelectorAll('#critical ol li').length") > 0, "what nobody knows is not there; of the replay the critical path is")
    for drawing in (".gantt", ".heat"):
        page.b.box(drawing)
        page.b.frames()
        check(page.colours(drawing) > 4, f"{drawing} is drawn")
    page.quiet("a recorded run")
    events = json.loads((folder / "recorded.json").read_text())["traceEvents"]
    check(sum(e["ph"] == "X" and e["pid"] == 2 for e in events) == 5, "Perfetto's timeline has both, too")


def numbers_of(document):
    return [[f"{r['bytes']:,}", f"{r['count']:,}", r["type"], r["redop"]] for r in document["rows"]]


def test_contents(page, document):
    check(page.text("h1") == document["title"], "the title is the study's")
    rows = page.table("#rows")
    check([r[:4] for r in rows] == numbers_of(document), f"the table has the rows' sizes, counts, types and operations: {rows}")
    for shown, row in zip(rows, document["rows"]):
        for column, value in ((4, row["time_us"]), (5, row["algbw"]), (6, row["busbw"]), (7, row["bound_us"])):
            check(abs(float(shown[column]) - value) <= 1e-3 * value + 1e-9, f"column {column} of {row['bytes']} bytes shows {shown[column]} for {value}")
        check([int(c.replace(",", "")) for c in shown[9:11]] == [row["steps"], row["messages"]], "steps and messages are those of the row")
    last = document["rows"][-1]
    check(f"{last['busbw']:.2f} GB/s" in page.text("#result"), f"the sentence names the bandwidth: {page.text('#result')}")
    items = page.b.value("[...document.querySelectorAll('ol.critical li')].map(l => l.textContent)")
    check(len(items) == len(document["critical_path"]) and all(p["text"] in i for p, i in zip(document["critical_path"], items)), "the critical path is listed in full")
    scenario = dict(page.b.value("[...document.querySelectorAll('.scenario tr')].map(r => [...r.cells].map(c => c.textContent))"))
    check(scenario == document["scenario"], "the scenario is listed in full")
    for drawing in (".animation", ".matrix", ".gantt", ".heat", "#activity"):
        check(page.colours(drawing) > 4, f"{drawing} is drawn, in {page.colours(drawing)} colours")
    check(page.b.value("document.documentElement.scrollWidth <= innerWidth"), "nothing is wider than 1280 pixels")


def test_time(page, document):
    end = document["end_ps"]
    times = sorted({t for m in document["moves"] for t in m[3:5]})
    check(page.now() == 0, "it starts at 0")
    page.b.click("#play")
    page.b.until("troupe_page.clock.ps > 0")
    first = page.now()
    page.b.until(f"troupe_page.clock.ps > {first}")
    check(page.text("#play") == "Pause", "play advances the time, and the button offers to pause")
    picture = page.picture_sum(".animation")
    page.b.until(f"troupe_page.clock.ps > {end / 100}")
    page.b.frames()
    check(page.picture_sum(".animation") != picture, "what is drawn changes with it")
    page.b.click("#play")
    stopped = page.now()
    time.sleep(0.2)
    page.b.frames(5)
    check(page.now() == stopped and page.text("#play") == "Play", "pause stops it")
    page.b.key(" ", "Space", " ")
    page.b.until(f"troupe_page.clock.ps > {stopped}")
    page.b.key(" ", "Space", " ")
    stopped = page.now()
    page.b.frames(5)
    check(page.now() == stopped, "space plays and pauses")

    page.b.click("#forward")
    check(page.now() == min(t for t in times if t > stopped), "a step forward goes to the next event")
    before = page.now()
    page.b.click("#back")
    check(page.now() == max(t for t in times if t < before), "a step back goes to the event before")
    page.b.key("Home")
    page.b.key("ArrowRight")
    check(page.now() == times[0], "Home and the right arrow go to the first event")
    check("sends" in page.text(".news"), f"which is told in words: {page.text('.news')}")
    page.b.key("ArrowRight")
    page.b.key("ArrowLeft")
    check(page.now() == times[0], "the left arrow goes back")
    page.b.key("End")
    check(page.now() == end, "End goes to the end")

    _, _, width, _ = page.b.box("#scrub")
    page.b.click("#scrub", dx=-width / 4)
    check(abs(page.now() / end - 0.25) < 0.03, f"the scrub bar sets the time: {page.now() / end:.3f} for a quarter")
    page.b.value("(s => { s.value = '5'; s.dispatchEvent(new Event('change')); })(document.getElementById('speed'))")
    check(page.b.value("troupe_page.clock.speed") == 5, "the speed can be chosen")
    page.seek(0)
    page.b.value("troupe_page.clock.speed = 1000; troupe_page.clock.play(), 0")
    page.b.until("!troupe_page.clock.playing")
    check(page.now() == end, "it stops at the end")


def test_contributions(page, document):
    """Against a replay of the document's moves that knows nothing of the page."""
    n, cells = document["ranks"], document["blocks"] * document["parts"]
    held = {(r, c): {r} for r in range(n) for c in range(cells)}
    moves = sorted(document["moves"], key=lambda m: m[4])
    for at in (0, document["end_ps"] // 3, document["end_ps"] // 2, document["end_ps"]):
        held = {(r, c): {r} for r in range(n) for c in range(cells)}
        events = sorted([(m[3], 1, i) for i, m in enumerate(moves)] + [(m[4], 0, i) for i, m in enumerate(moves)])
        carried = {}
        for when, begins, i in events:
            m = moves[i]
            cell = m[5] * document["parts"] + m[6]
            if when > at:
                break
            if begins:
                carried[i] = set(held[m[1], cell])
            else:
                held[m[2], cell] |= carried[i]
        page.seek(at)
        shown = page.b.value("(j => [...Array(troupe_page.runs[0].ranks).keys()].map(r => [...Array(troupe_page.runs[0].cells).keys()].map(c => j.contributors(r, c))))(troupe_page.runs[0].journey)")
        right = [[sorted(held[r, c]) for c in range(cells)] for r in range(n)]
        check(shown == right, f"at {at / 1e6:.1f} µs every rank holds the contributions that the moves brought")
    complete = page.b.value("troupe_page.runs[0].journey.held.every(h => h === troupe_page.runs[0].ranks)")
    check(complete, "at the end every cell is complete everywhere")


def test_charts(page, document):
    page.seek(0)
    view = "[troupe_page.view.from, troupe_page.view.to]"
    x, y, width, _ = page.b.box(".gantt")
    before = page.picture_sum(".gantt")
    time.sleep(0.3)  # a page that has just been scrolled does not zoom
    page.b.mouse("mouseWheel", x, y, deltaX=0, deltaY=-300)
    page.b.frames()
    low, high = page.b.value(view)
    check(0 < low < high < document["end_ps"] and (high - low) < 0.5 * document["end_ps"], f"the wheel zooms: {low:.0f} to {high:.0f}")
    check(page.picture_sum(".gantt") != before and not page.b.value("document.getElementById('whole').disabled"), "the chart shows it")
    page.b.mouse("mousePressed", x, y, button="left", buttons=1, clickCount=1)
    page.b.mouse("mouseMoved", x - 60, y, button="left", buttons=1)
    page.b.mouse("mouseReleased", x - 60, y, button="left", clickCount=1)
    page.b.frames()
    moved, _ = page.b.value(view)
    check(moved > low and page.now() == 0, "dragging moves the window, and not the cursor")
    page.b.click("#whole")
    check(page.b.value(view) == [0, document["end_ps"]], "the button shows the whole run again")
    page.b.click(".gantt", dx=width / 8)
    check(page.now() > 0, "a click sets the cursor")
    tips = []
    for dx in range(-200, 400, 40):
        x, y, _, height = page.b.box(".gantt")
        page.b.mouse("mouseMoved", x + dx, y - height / 2 + 32)
        tips.append(page.text("#tooltip"))
    check(any("rank 0: send" in t and "rank 1" in t for t in tips), f"hovering tells what is under the mouse: {tips[0]}")
    height = page.b.box(".gantt")[3]
    page.b.click("[data-kind=link]")
    check(page.b.box(".gantt")[3] < height, "rows of a kind can be hidden")
    page.b.click("[data-kind=link]")
    page.b.click("ol.critical li:nth-child(3) button")
    check(page.now() == document["critical_path"][2]["begin_ps"], "a click on the critical path moves the cursor there")
    page.b.click("[data-measure=time_us]")
    check("Time by size" in page.text("#charts"), "the curves can show time")
    x, y, _, _ = page.b.box("#charts svg")
    page.b.mouse("mouseMoved", x, y)
    check("time: " in page.text("#tooltip"), f"curves tell their values: {page.text('#tooltip')}")
    page.b.click(".matrix", dx=-60, dy=-60)
    check("Following part" in page.text(".follow"), f"a tile can be followed: {page.text('.follow')}")
    page.b.click(".follow button")


def test_comparison(page, a, b):
    check(page.b.value("document.querySelectorAll('.animation').length") == 2 and page.b.value("document.querySelectorAll('.gantt').length") == 2, "a comparison draws both runs")
    slower, faster = a["rows"][-1]["time_us"], b["rows"][-1]["time_us"]
    text = page.text("#result")
    check(text.startswith(f"B is {slower / faster:.2f} times as fast as A") and "more in NICs" in text, f"and says which is faster, by how much, and why: {text}")
    rows = page.table("#rows")
    check(len(rows) == 3 and abs(float(rows[-1][1]) - slower) < 0.1 and abs(float(rows[-1][5]) - faster) < 0.1 and abs(float(rows[-1][9]) - slower / faster) < 0.01, f"its table has both: {rows[-1]}")
    check(page.b.value("troupe_page.end") == max(a["end_ps"], b["end_ps"]), "the time axis is common")
    page.b.click("#forward")
    page.b.click("#forward")
    check(page.now() > 0, "and so is the clock")
    names = [s["key"] for s in b["sweeps"]]
    captions = page.b.value("[...document.querySelectorAll('#charts figcaption')].map(c => c.textContent)")
    check(all(any(n in c for c in captions) for n in names), f"sweeps have their curves: {captions}")
    check(page.b.value("document.querySelectorAll('.scenario .differs').length") == 1, "what differs between the scenarios is marked")


STUDY = """[study]
collective = "all_reduce"
choreography = "hierarchical"
sizes = ["64K", "1M"]
preset = "machine"
layout = "2x4"
"""


def shown_end(page, run=0):
    return page.b.value(f"troupe_page.runs[{run}].end_ps")


def choose_size(page, size):
    page.b.value("(s => { s.value = '%d'; s.dispatchEvent(new Event('change')); })(document.getElementById('size'))" % size)
    page.b.frames(3)


def test_sizes(page, path, document):
    """Every size of a study can be shown, not only the last."""
    small, large = document["rows"][0], document["rows"][1]
    ends = [s["end_ps"] for s in document["sizes"]] + [document["end_ps"]]
    check(page.b.value("[...document.getElementById('size').options].map(o => [Number(o.value), o.selected])") == [[small["bytes"], False], [large["bytes"], True]], "the sizes can be chosen, the last is shown")
    page.seek(ends[1] // 2)
    choose_size(page, small["bytes"])
    check(shown_end(page) == ends[0] and abs(page.now() / ends[0] - 0.5) < 0.01, f"the other size is shown, as far into it: {page.now()} of {shown_end(page)}")
    check(f"{small['busbw']:.2f} GB/s"[:4] in page.text("#result") and page.text("#rows tr.current td") == f"{small['bytes']:,}", f"its words and its row are marked: {page.text('#result')}")
    items = page.b.value("[...document.querySelectorAll('ol.critical li')].map(l => l.textContent)")
    path_of = document["sizes"][0]["critical_path"]
    check(len(items) == len(path_of) > 0 and all(p["text"] in i for p, i in zip(path_of, items)), "its critical path is listed")
    page.seek(ends[0])
    check(page.b.value("troupe_page.runs[0].journey.held.every(h => h === 8)"), "its cells are complete at its end")
    page.b.box(".gantt")
    page.b.frames()
    check(page.colours(".gantt") > 4, "its timeline is drawn")
    page.b.until("location.hash.includes('size=64K')", 30)
    opened_at(page, path, "#t=1us&size=64K")
    check(shown_end(page) == ends[0] and page.now() == 1_000_000, "an address names the size")
    page.b.value("location.hash = '#t=2us', 1")
    page.b.until("troupe_page.clock.ps === 2e6", 30)
    check(shown_end(page) == ends[1], "and another address the other")
    page.b.click("#rows tbody tr:first-child button")
    page.b.frames(3)
    check(shown_end(page) == ends[0], "a click on a row shows its size")
    opened_at(page, path, "#size=7")
    check(shown_end(page) == ends[1], "a size that is not there is passed over")


def test_program(chromium, troupe, folder):
    """Pages of real runs: study --report, compare --report."""
    study, page_file, data = folder / "program.toml", folder / "program.html", folder / "program.json"
    study.write_text(STUDY)
    subprocess.run([troupe, "study", study, "--report", page_file, "--json", data, "--sweep", "layout=2x2,2x4"], check=True, capture_output=True)
    document = json.loads(data.read_text())
    page = Page(chromium, page_file)
    check([r[:4] for r in page.table("#rows")] == numbers_of(document), "the page of a real run has its rows")
    page.seek(document["end_ps"])
    check(page.b.value("troupe_page.runs[0].journey.held.every(h => h === 8)"), "at its end every cell is complete everywhere")
    for drawing in (".animation", ".matrix", ".gantt", ".heat", "#activity"):
        page.b.box(drawing)
        page.b.frames()
        check(page.colours(drawing) > 4, f"{drawing} is drawn")
    test_sizes(page, page_file, document)
    page.quiet("a real run")

    subprocess.run([troupe, "study", study, "--set", "preset=flat", "--set", "ranks=64", "--set", "layout=", "--set", "choreography=nhr", "--set", "sizes=4", "--report", page_file], check=True, capture_output=True)
    page = Page(chromium, page_file)
    pieces = page.b.value("troupe_page.runs[0].critical_path.filter(p => p.hops).map(p => [p.text, p.hops])")
    shown = page.b.value("[...document.querySelectorAll('#critical .hops p')].map(p => p.textContent)")
    check(len(pieces) > 0 and all("…" in text for text, _ in pieces), f"long ways are cut in the sentences: {pieces[:1]}")
    check(shown == [", ".join(" → ".join(map(str, way)) for way in ways) for _, ways in pieces], f"and whole below them: {shown[:1]}")
    page.quiet("a long way")

    subprocess.run([troupe, "study", study, "--at", "64K", "--json", data, "--trace", folder / "at.json"], check=True, capture_output=True)
    at = json.loads(data.read_text())
    check(at["bytes"] == 65536 and at["end_ps"] == document["sizes"][0]["end_ps"] and at["moves"] == document["sizes"][0]["moves"] and at["sizes"][0]["moves"] == document["moves"], "--at names the size that is shown first")
    last = max(e["ts"] + e["dur"] for e in json.loads((folder / "at.json").read_text())["traceEvents"] if e["ph"] == "X")
    check(abs(last - at["end_ps"] / 1e6) < 1e-3, f"and that of the trace: {last}")
    refused = subprocess.run([troupe, "study", study, "--at", "3K"], capture_output=True, text=True)
    check(refused.returncode != 0 and "its sizes are 64K, 1M" in refused.stderr, f"one that is not there is refused: {refused.stderr.strip()}")

    page_file = folder / "program_compared.html"
    said = subprocess.run([troupe, "compare", study, "--set-b", "choreography=hierarchical_pipeline", "--report", page_file], check=True, capture_output=True, text=True).stdout
    page = Page(chromium, page_file)
    rows, times = page.table("#rows"), [line.split() for line in said.splitlines() if line and line[0] != "#"]
    check(len(rows) == len(times) == 2 and all(abs(float(r[9]) - float(t[5])) < 0.01 for r, t in zip(rows, times)), f"a comparison's page and table say the same: {rows[-1]}, {times[-1]}")
    check(page.b.value("document.querySelectorAll('.animation').length") == 2, "and both runs are drawn")
    choose_size(page, 65536)
    check(all(abs(shown_end(page, r) / 1e6 - float(times[0][i])) < 0.01 for r, i in ((0, 1), (1, 3))), f"a comparison shows another size of both: {shown_end(page, 0)}, {times[0]}")
    page.quiet("a real comparison")


# What is written on a canvas, and after what, from the next frame on: [[class of the canvas, "fill" or "text", text, left end, right end], …].
LOG_DRAWING = """(() => { const of = CanvasRenderingContext2D.prototype, {fill, fillText} = of; window.drawing_log = [];
  of.fill = function (...a) { drawing_log.push([this.canvas.className, 'fill']); return fill.apply(this, a); };
  of.fillText = function (text, x, ...a) { const w = this.measureText(text).width, left = {left: x, center: x - w / 2, right: x - w}[this.textAlign];
    drawing_log.push([this.canvas.className, 'text', String(text), left, left + w]); return fillText.call(this, text, x, ...a); }; })()"""


def test_torus(chromium, troupe, folder):
    """The machine's parameters say how ranks stand."""
    machine = pathlib.Path(__file__).parents[2] / "config" / "machines" / "torus.toml"
    study = folder / "torus.toml"
    study.write_text(f'[study]\npreset = "{machine}"\ncollective = "all_to_all"\nchoreography = "direct_full_mesh"\nsizes = ["64K"]\nstructure.x = 5\nstructure.y = 3\n')
    path, data = folder / "torus.html", folder / "torus.json"
    subprocess.run([troupe, "study", study, "--report", path, "--json", data], check=True, stdout=subprocess.DEVNULL)
    document = json.loads(data.read_text())
    page, end = Page(chromium, path), document["end_ps"]
    shape = lambda: [page.b.value(f"new Set(troupe_page.choreographies[0].nodes.map(n => Math.round(n.{axis}))).size") for axis in "xy"]
    check(document["sides"] == [5, 3] and shape() == [5, 3], f"a torus of 5 by 3 is opened as one: {document['sides']}, {shape()}")
    check(page.b.value("document.getElementById('arrange').value") == "5" and page.b.value("location.hash") == "", "which the page says, and its address need not")
    page.b.value(LOG_DRAWING)
    page.seek(end * 2 // 5)
    page.b.box(".animation")
    page.b.frames()
    page.b.value("drawing_log.length = 0, troupe_page.changed()")
    page.b.frames()
    log = page.b.value("drawing_log")
    animation = [entry[1:3] for entry in log if entry[0] == "animation"]
    first_name = next(i for i, entry in enumerate(animation) if entry == ["text", "rank 0"])
    messages = page.b.value("troupe_page.choreographies[0].flying.length")
    check(messages > 10 and all(what != "fill" for what, *_ in animation[first_name:]), f"{messages} messages under way are drawn below the names of ranks")
    labels = [entry for entry in log if entry[0] == "matrix"]
    width = page.b.value("document.querySelector('.matrix').clientWidth")
    check("224" in [entry[2] for entry in labels] and all(0 <= left and right <= width for *_, left, right in labels), f"the matrix's last column has its whole number: {[e[3:] for e in labels if e[2] == '224']} of {width}")
    opened_at(page, path, f"#show={end * 3 / 4e6}us-{end * 4 / 1e6}us&grid=0")
    check(page.b.value("[troupe_page.view.from, troupe_page.view.to].map(Math.round)") == [round(end * 3 / 4), end], "of a window of time that ends later than the run there is what there is")
    check(shape()[0] > 5 and page.b.value("document.getElementById('arrange').value") == "0", "an address may ask for circles")
    page.b.value("troupe_page.view.reset()")
    page.b.until("location.hash === '#grid=0'", 30)
    opened_at(page, path, f"#show={end * 2 / 1e6}us-{end * 3 / 1e6}us")
    check(page.b.value("troupe_page.view.whole"), "and one that begins behind its end is passed over")
    check([page.b.value(f"(s => Object.getOwnPropertyDescriptor(study_run.prototype, 'columns').get.call({{doc: {{sides: s}}, ranks: s.reduce((a, b) => a * b, 1)}}))({json.dumps(s)})")
           for s in ([], [16], [5, 3], [4, 2, 2], [4, 4, 4], [2, 3, 4])] == [0, 0, 5, 4, 16, 6], "three sides become rows that make about a square")
    page.quiet("a torus")


def test_flow(chromium, troupe, folder):
    """A flow has its nodes, a row each actor, and what its end had to wait for; of each of its sizes."""
    study = pathlib.Path(__file__).parents[2] / "config" / "studies" / "flow_residual.toml"
    path, data = folder / "flow.html", folder / "flow.json"
    subprocess.run([troupe, "study", study, "--set", "sizes=2M,8M", "--report", path, "--json", data, "--sweep", "flow.depth=1,2,4"], check=True, stdout=subprocess.DEVNULL)
    document = json.loads(data.read_text())
    page = Page(chromium, path)
    nodes = [n for n in document["rows"][1]["nodes"] if n["kernel"] >= 0]
    check([r[0] for r in page.table("#nodes")] == [n["name"] for n in nodes] == ["gemm", "dropout", "add"], f"its nodes stand in a table: {page.table('#nodes')}")
    charts = page.b.value("document.querySelectorAll('#charts > *').length")
    check(len(page.table("#rows")) == 2 and charts == 2, f"its sizes, too, and curves of times: {charts}, {page.table('#rows')}")
    check("NaN" not in page.text("#result") and "flow of 6 nodes at 8" in page.b.value("document.querySelector('.setting').textContent"), f"its words have numbers: {page.text('#result')}")
    items = page.b.value("[...document.querySelectorAll('ol.critical li')].map(l => l.textContent)")
    check(len(items) == len(document["critical_path"]) > 3 and all(p["text"] in i for p, i in zip(document["critical_path"], items)), f"its critical path is listed: {items[:2]}")
    page.seek(document["end_ps"] // 2)
    page.b.box(".gantt")
    page.b.frames()
    check(page.colours(".gantt") > 4 and page.b.value("troupe_page.runs[0].span_count") == len(document["spans"]), "what its tiles did is drawn")
    check(page.b.value("[...document.querySelectorAll('#gantt [data-kind]')].map(e => e.dataset.kind)") == ["rank", "node", "core"], "rows of ranks, nodes and cores can be hidden")
    choose_size(page, document["sizes"][0]["bytes"])
    check(shown_end(page) == document["sizes"][0]["end_ps"], "another size is shown, too")
    page.quiet("a flow")


def oklab(colour):
    """Ottosson's (2020): how far apart two colours look is their distance there."""
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (v / 255 for v in colour))
    l, m, s = (max(0, v) ** (1 / 3) for v in (0.41222147 * r + 0.53633254 * g + 0.05144599 * b, 0.21190350 * r + 0.68069955 * g + 0.10739696 * b, 0.08830246 * r + 0.28171884 * g + 0.62997870 * b))
    return (0.21045426 * l + 0.79361779 * m - 0.00407205 * s, 1.97799850 * l - 2.42859221 * m + 0.45059371 * s, 0.02590404 * l + 0.78277177 * m - 0.80867577 * s)


def test_many_jobs(chromium, troupe, folder, dark):
    """Every job has a colour, or stripes, that no other has."""
    many = 40
    (folder / "many.toml").write_text('[study]\npreset = "machine"\nlayout = "2x2"\nchoreography = "binomial"\n[[study.job]]\nname = "job"\non = "0,2"\nshare = true\ncalls = "broadcast 64K"\ncopies = %d\n' % many)
    subprocess.run([troupe, "study", folder / "many.toml", "--report", folder / "many.html"], check=True, stdout=subprocess.DEVNULL)
    page = Page(chromium, folder / "many.html", dark)
    legend = page.b.value("[...document.querySelectorAll('#gantt .legend .job')].map(e => [e.textContent, (s => s.backgroundImage + ' ' + s.backgroundColor)(getComputedStyle(e.querySelector('.swatch')))])")
    check(len(legend) == many and len({fill for _, fill in legend}) == many, f"{many} jobs have {len({fill for _, fill in legend})} fills")
    plain = [tuple(int(v) for v in fill.split("rgb(")[1].split(")")[0].split(",")) for _, fill in legend if fill.startswith("none")]
    panel = tuple(page.b.value("getComputedStyle(document.documentElement).getPropertyValue('--panel')").strip()[i:i + 2] for i in (1, 3, 5))
    labs = [oklab(c) for c in {*plain, tuple(int(v, 16) for v in panel)}]
    apart = min(sum((x - y) ** 2 for x, y in zip(a, b)) ** 0.5 for i, a in enumerate(labs) for b in labs[:i])
    check(len(plain) >= 18 and apart > 0.08, f"{len(plain)} of them are plain colours that look different, {apart:.3f} apart, the background too")
    page.b.box(".gantt")
    page.b.frames()
    drawn = page.b.value("[...Array(%d).keys()].every(job => { const fill = colours[job_colour(job)]; return fill instanceof CanvasPattern || CSS.supports('color', fill); })" % many)
    check(page.b.value("Math.max(...troupe_page.activity_of[0])") > 0 and page.colours("#activity") > 2, "and the bar below says when something goes on")
    check(drawn and page.colours(".gantt") > many / 2, f"the timeline draws them: {page.colours('.gantt')} colours")
    compare_svg(page, "gantt")
    page.quiet("many jobs")


def main():
    program = browser.find()
    if program is None:
        print("skipped: there is no chromium here; install it (apt-get install chromium) or name it in TROUPE_CHROMIUM")
        return 77
    write, troupe, folder = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    folder.mkdir(parents=True, exist_ok=True)
    documents = dict(samples.samples())
    for name, document in documents.items():
        (folder / f"{name}.json").write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")

    def page_of(*names):
        out = folder / f"{'_'.join(names)}.html"
        subprocess.run([write, out, *(folder / f"{n}.json" for n in names)], check=True)
        return out

    refused = subprocess.run([write, folder / "none.html", *[folder / "ring8.json"] * 3], capture_output=True, text=True)
    check(refused.returncode == 1 and "compares two; there are 3" in refused.stderr, "three documents are refused")
    b = browser.Browser(program)
    try:
        ring8 = documents["ring8"]
        page = Page(b, page_of("ring8"))
        for test in (test_contents, test_time, test_contributions, test_charts):
            print(f"-- {test.__name__}")
            test(page, ring8)
        page.quiet("ring")
        for name, test in (("links", lambda: test_links(page, page_of("ring8"), ring8)), ("pictures", lambda: test_pictures(page, ring8)), ("timelines", lambda: test_timelines(page, troupe, folder, ring8)), ("experts", lambda: test_experts(page, troupe, folder))):
            print(f"-- {name}")
            page = Page(b, page_of("ring8"))
            test()
            page.quiet("ring")

        print("-- comparison, dark")
        page = Page(b, page_of("flat2x4", "hier2x4"), dark=True)
        test_comparison(page, documents["flat2x4"], documents["hier2x4"])
        check(b.value("getComputedStyle(document.body).backgroundColor") == "rgb(20, 24, 27)", "the page is dark where the reader wants it")
        page.quiet("comparison")

        print("-- by the program itself")
        test_program(b, troupe, folder)

        print("-- a torus")
        test_torus(b, troupe, folder)

        print("-- a flow")
        test_flow(b, troupe, folder)

        print("-- a recorded run")
        test_recorded(b, troupe, folder)

        print("-- hostile text")
        page = Page(b, page_of("a2a4"))
        check(page.text("h1") == documents["a2a4"]["title"], f"text that looks like markup is shown as it is: {page.text('h1')}")
        check(b.value("document.querySelectorAll('script').length") == 2, "and adds no script")
        page.seek(documents["a2a4"]["end_ps"])
        check(b.value("[0, 1, 2, 3].every(r => [0, 1, 2, 3].every(s => troupe_page.runs[0].journey.share(r, s * 4 + r) === 1))"), "after an all-to-all every rank has its blocks")
        check(b.value("troupe_page.runs[0].journey.share(1, 2)") == 0, "and not those of others")
        page.quiet("all-to-all")

        print("-- large")
        large = documents["ring64"]
        page = Page(b, page_of("ring64"))
        print(f"      {len(large['spans'])} spans and {len(large['moves'])} moves were shown after {page.loaded_in:.1f} s")
        page.seek(large["end_ps"])
        check(b.value("troupe_page.runs[0].journey.held.every(h => h === 64 * 4)"), "64 ranks in four slices end complete")
        page.seek(large["end_ps"] // 2)
        check(page.colours(".matrix") > 20, "their matrix is drawn")
        print("      a frame takes %.1f ms" % b.value("(() => { const t = performance.now(); for (let i = 0; i < 20; ++i) { troupe_page.clock.ps = i * 1e7; troupe_page.draw(); } return (performance.now() - t) / 20; })()"))
        page.quiet("large")

        print("-- jobs")
        study = pathlib.Path(__file__).resolve().parents[2] / "config/studies/jobs.toml"
        subprocess.run([troupe, "study", study, "--sweep", "job.2.period=3ms,0", "--json", folder / "jobs.json", "--report", folder / "jobs.html"], check=True,
                       stdout=subprocess.DEVNULL)
        jobs = json.loads((folder / "jobs.json").read_text())
        page = Page(b, folder / "jobs.html")
        shown = page.table("#rows")
        check([r[0] for r in shown] == [j["name"] for j in jobs["jobs"]], f"every job has a row: {shown}")
        for row, job in zip(shown, jobs["jobs"]):
            check(abs(float(row[7]) - job["slow_down"]) <= 5e-3 * job["slow_down"], f"the slow-down of {job['name']} is {row[7]}")
        check(page.colours(".gantt") > 4, "their rounds are drawn over time")
        count, shared = len(jobs["jobs"]), [a["name"] for a in jobs["actors"][len(jobs["jobs"]):]]
        check(len(shared) > 0 and shared == [s["element"] for s in jobs["shared"]], f"the elements that jobs share have rows: {len(shared)}")
        rows = page.b.value("troupe_page.gantts[0].rows.map(r => r.actor)")
        check(rows[:count] == list(range(count)) and sorted(rows[count:]) == list(range(count, count + len(shared))), f"none of them is drawn as idle: {rows}")
        busy = page.b.value(f"troupe_page.runs[0].actors.map((_, a) => troupe_page.runs[0].lanes[a].flat().reduce((sum, s) => sum + troupe_page.runs[0].span_end[s] - troupe_page.runs[0].span_begin[s], 0))")
        check(busy[count:] == [u["busy_ps"] for u in jobs["utilisation"]], "what is drawn of them is all that they did")
        called = page.b.value("[...new Set(troupe_page.runs[0].lanes[0].flat().map(s => troupe_page.runs[0].name_of_span(s)))]")
        check(called == ["reduce_scatter", "all_gather"], f"calls have their collectives' names: {called}")
        names = page.b.value(f"[...new Set(troupe_page.runs[0].lanes[{count}].flat().map(s => troupe_page.runs[0].name_of_span(s)))].sort()")
        users = sorted(j["name"] for j, alone in zip(jobs["jobs"], jobs["shared"][0]["busy_ps_alone"]) if alone > 0)
        check(names == users, f"by the jobs that use them: {names}")
        legend = page.b.value("[...document.querySelectorAll('#gantt .legend .job')].map(e => e.textContent)")
        check(legend == [j["name"] for j in jobs["jobs"]], f"whose colours are named: {legend}")
        check(page.text("#result").count("suffers most") == 1 and page.text("#choreography") == "(absent)", f"the sentence is about jobs: {page.text('#result')}")
        page.quiet("jobs")

        print("-- many jobs")
        for dark in (False, True):
            test_many_jobs(b, troupe, folder, dark)

        print("-- not recorded")
        page = Page(b, page_of("unrecorded"))
        words = page.b.value("[...document.querySelectorAll('.missing')].map(m => m.textContent)")
        check(len(words) == 3 and all("not recorded" in w for w in words), f"what was not recorded is said: {words}")
        check(len(page.table("#rows")) == 4, "and the results are there")
        page.quiet("not recorded")

        print("-- broken")
        (folder / "broken.json").write_text('{"troupe_study": 1, ')
        (folder / "future.json").write_text('{"troupe_study": 9}')
        page = Page(b, page_of("broken"))
        check("cannot be read" in page.text("main > .missing"), f"broken data is said: {page.text('main > .missing')}")
        page = Page(b, page_of("future"))
        check("format 9" in page.text("main > .missing"), f"another format is said: {page.text('main > .missing')}")
        page.quiet("future")
    finally:
        b.close()
    print(f"{len(faults)} faults" if faults else "all is well")
    for fault in faults:
        print(f"FAULT {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
