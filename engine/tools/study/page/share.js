// What leaves the page and comes into it: links to a moment, pictures of the drawings, timelines of other runs.

// -- links ------------------------------------------------------------------------------------------------------------------

/** "12.5us", "3 ms", "12500000ps" → picoseconds; without a unit microseconds. NaN if it is no time. */
function parsed_time(text) {
  const found = /^\s*(\d+(?:\.\d*)?|\.\d+)\s*(ps|ns|us|µs|ms|s)?\s*$/.exec(text ?? "");
  return found ? Number(found[1]) * {ps: 1, ns: 1e3, us: 1e6, µs: 1e6, ms: 1e9, s: 1e12}[found[2] ?? "us"] : NaN;
}

/** "64K" as on the command line → bytes; NaN if it is no size. */
function parsed_bytes(text) {
  const found = /^(\d+(?:\.\d+)?)([KMG]?)$/.exec(text ?? "");
  return found ? Number(found[1]) * {"": 1, K: 2 ** 10, M: 2 ** 20, G: 2 ** 30}[found[2]] : NaN;
}
/** Which size the address asks for. */
const asked_size = () => parsed_bytes(new URLSearchParams(location.hash.slice(1)).get("size"));

/**
 * The address says what the page shows: #t=12.5us, and &size=64K if it is not the size that the page begins with, &show=10us-20us if the charts do
 * not show the whole run, &grid=4 if ranks stand in rows of four, where the page would begin with others (0: on circles). Whoever opens such an address sees that.
 */
class address {
  /** @param known the address as it was heard last, where another page was before; what the reader has entered since is about to be heard */
  constructor(page, known = location.hash) {
    this.page = page;
    this.read();
    this.known = known;
    page.listen(window, "hashchange", () => {
      if (location.hash === this.known) return;
      const bytes = page.sizes.includes(asked_size()) ? asked_size() : page.runs[0].document.bytes;
      if (page.sizes.length < 2 || page.runs.some(run => run.doc.bytes === bytes)) return this.read();
      page.show_size(bytes).address.read();
    });
  }
  stop() { clearTimeout(this.later); }

  read() {
    this.known = location.hash;
    const asked = new URLSearchParams(this.known.slice(1)), {page} = this;
    const [from, to] = (asked.get("show") ?? "").split("-").map(parsed_time);
    const shown = [Math.max(0, from), Math.min(page.end, to)];  // of a longer run's window what there is here
    if (shown[0] < shown[1]) page.view.set(...shown);
    const grid = asked.get("grid");
    if (/^\d{1,4}$/.test(grid ?? "")) page.arrange(Number(grid));
    const at = parsed_time(asked.get("t"));
    if (at >= 0) page.seek(at);
  }

  /** Not while it plays: an address is of a moment. In a while, as browsers count how often it is set. */
  write() {
    const {clock, view} = this.page;
    clearTimeout(this.later);
    if (clock.playing) return;
    this.later = setTimeout(() => {
      if (location.hash !== this.known) return;  // The reader has just entered another, which is about to be heard: his is not overwritten.
      const exact = ps => `${Math.round(ps) / 1e6}us`, parts = [];
      if (clock.ps > 0) parts.push(`t=${exact(clock.ps)}`);
      if (this.page.bytes > 0 && this.page.runs[0].document.bytes !== this.page.bytes) parts.push(`size=${short_bytes(this.page.bytes)}`);
      if (!view.whole) parts.push(`show=${exact(view.from)}-${exact(view.to)}`);
      if (this.page.grid !== this.page.usual_grid) parts.push(`grid=${this.page.grid}`);
      const said = parts.length ? `#${parts.join("&")}` : "";
      if (said !== this.known) history.replaceState(null, "", said || location.pathname);
      this.known = location.hash;
    }, 200);
  }
}

// -- pictures ---------------------------------------------------------------------------------------------------------------

function save(blob, name) {
  const url = URL.createObjectURL(blob), link = element("a", {href: url, download: name});
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}
const file_name = (page, part, ending) => `${`${page.runs.map(run => run.title).join(" ")} ${part}`.replace(/[^\p{L}\p{N}]+/gu, "_").slice(0, 100)}.${ending}`;

/** A chart as a file of its own: what the style sheet says about it is written into it. */
function svg_text(svg) {
  const copy = svg.cloneNode(true), from = [svg, ...svg.querySelectorAll("*")], to = [copy, ...copy.querySelectorAll("*")];
  from.forEach((old, i) => {
    const style = getComputedStyle(old);
    for (const name of ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin", "font-family", "font-size", "font-weight", "opacity"])
      to[i].setAttribute(name, style.getPropertyValue(name));
    to[i].removeAttribute("class");
  });
  const {width, height} = svg.viewBox.baseVal;
  copy.setAttribute("width", width);
  copy.setAttribute("height", height);
  copy.prepend(svg_element("rect", {width, height, fill: colours.panel}));
  return new XMLSerializer().serializeToString(copy);
}

const picture_gap = 8;
/** What is drawn in a section: the surfaces of its canvases. */
const surfaces_in = (page, section) => page.drawings.flatMap(d => [d.surface, d.matrix]).filter(s => s && section.contains(s.canvas) && s.width > 1 && s.height > 1);

/** Draws everything, also what is out of sight, which is not drawn otherwise. */
function draw_all(page) {
  const surfaces = page.drawings.flatMap(d => [d.surface, d.matrix]).filter(Boolean), seen = surfaces.map(s => s.visible);
  for (const s of surfaces) s.visible = true;
  page.draw();
  surfaces.forEach((s, i) => { s.visible = seen[i]; });
}

/** The drawings of a section, one below the other, as they are now, in one SVG that needs nothing else. */
function section_svg(page, section) {
  const surfaces = surfaces_in(page, section), contexts = surfaces.map(s => s.context);
  const drawn = surfaces.map((s, i) => (s.context = new svg_context(contexts[i], s.width, s.height, `d${i}`)));
  try {
    draw_all(page);
  } finally {
    surfaces.forEach((s, i) => { s.context = contexts[i]; });
  }
  const width = Math.max(1, ...surfaces.map(s => s.width)), height = surfaces.reduce((sum, s) => sum + s.height + picture_gap, -picture_gap) || 1;
  const sheet = svg_element("svg", {width, height, viewBox: `0 0 ${width} ${height}`}, svg_element("rect", {width, height, fill: colours.panel}));
  let top = 0;
  drawn.forEach(({node}, i) => { node.setAttribute("y", top); sheet.append(node); top += surfaces[i].height + picture_gap; });
  return new XMLSerializer().serializeToString(sheet);
}

/** The same as pixels. */
function section_picture(page, section) {
  draw_all(page);
  const canvases = surfaces_in(page, section).map(s => s.canvas), gap = picture_gap;
  const sheet = new OffscreenCanvas(Math.max(1, ...canvases.map(c => c.width)), canvases.reduce((sum, c) => sum + c.height + gap, -gap) || 1);
  const context = sheet.getContext("2d");
  context.fillStyle = colours.panel;
  context.fillRect(0, 0, sheet.width, sheet.height);
  let top = 0;
  for (const c of canvases) { context.drawImage(c, 0, top); top += c.height + gap; }
  return sheet.convertToBlob({type: "image/png"});
}

/** An SVG as pixels, two for each of its own in either direction. */
async function png_of(svg) {
  const picture = element("img", {src: `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`});
  await picture.decode();
  const sheet = new OffscreenCanvas(2 * picture.naturalWidth, 2 * picture.naturalHeight);
  sheet.getContext("2d").drawImage(picture, 0, 0, sheet.width, sheet.height);
  return sheet.convertToBlob({type: "image/png"});
}

/** SVGs that a section has already: curves, and pictures that the document brought. */
const svgs_of = section => [...[...section.querySelectorAll("figure > svg")].map(svg_text),
  ...[...section.querySelectorAll("img.heat_map")].map(picture => decodeURIComponent(picture.src.slice(picture.src.indexOf(",") + 1)))];

/** Buttons for what a section has to save, as it is now. */
function save_buttons(page, id) {
  const section = () => document.getElementById(id), blob = svg => new Blob([svg], {type: "image/svg+xml"});
  const button = (words, onclick) => element("button", {type: "button", class: "save", title: `Save the drawings as they are now, as ${words}`, onclick}, words);
  const svg = button("SVG", () => {
    if (surfaces_in(page, section()).length) save(blob(section_svg(page, section())), file_name(page, id, "svg"));
    svgs_of(section()).forEach((one, i) => save(blob(one), file_name(page, `${id} ${i + 1}`, "svg")));
  });
  const png = button("PNG", async () => {
    if (surfaces_in(page, section()).length) save(await section_picture(page, section()), file_name(page, id, "png"));
    for (const [i, one] of svgs_of(section()).entries()) save(await png_of(one), file_name(page, `${id} ${i + 1}`, "png"));
  });
  return element("span", {class: "saves"}, svg, png);
}

// -- timelines --------------------------------------------------------------------------------------------------------------

/** Categories of the timelines that Troupe writes, of flows, replays and studies, by the colours that they have here. */
const timeline_kinds = {
  work: "compute", ready: "send", arrival: "occupy", wait: "wait_chunk",           // of a flow (engine.timeline)
  calc: "compute", computing: "compute", collective: "call", message: "send", recv: "copy", waiting: "wait_chunk",  // of a replay
};

/**
 * A run as the page shows it, from a timeline in Chrome's trace format (Trace Event Format, Google, 2016): spans, that is complete events (X) and
 * pairs of begins and ends (B, E), on their tracks. Times begin with the first. Throws an Error that says what is wrong.
 */
function timeline_document(data, name) {
  const events = Array.isArray(data) ? data : data?.traceEvents;
  if (!Array.isArray(events)) throw new Error("it is neither a study's JSON nor a timeline in Chrome's trace format (an object with traceEvents)");
  const span_kinds = ["send", "reduce", "copy", "wait_chunk", "wait_credit", "occupy", "launch", "sync", "compute", "call"];
  const actors = [], names = new Map(), of_track = new Map(), processes = new Map(), threads = new Map(), open = new Map(), found = [];
  const key = e => `${e.pid ?? 0} ${e.tid ?? 0}`;
  const track = e => {
    if (!of_track.has(key(e))) {
      of_track.set(key(e), actors.length);
      actors.push({pid: e.pid ?? 0, track: key(e)});
    }
    return of_track.get(key(e));
  };
  const add = (e, begin, end, what, category) => {
    if (!(end >= begin)) return;
    const kind = span_kinds.includes(category) ? category : timeline_kinds[category] ?? (/wait/i.test(what) ? "wait_chunk" : "call");
    found.push([track(e), begin, end, span_kinds.indexOf(kind), -1, -1, Number(e.args?.bytes) || 0, -1, names.get(what) ?? names.set(what, names.size).size - 1]);
  };
  for (const e of events) {
    const at = Number(e?.ts);
    if (e?.ph === "M" && e.name === "process_name") processes.set(e.pid ?? 0, String(e.args?.name ?? ""));
    else if (e?.ph === "M" && e.name === "thread_name") threads.set(key(e), String(e.args?.name ?? ""));
    else if (!Number.isFinite(at)) continue;
    else if (e.ph === "X") add(e, at, at + (Number(e.dur) || 0), String(e.name ?? ""), e.cat);
    else if (e.ph === "B") open.set(key(e), [...(open.get(key(e)) ?? []), e]);
    else if (e.ph === "E") {
      const begun = open.get(key(e))?.pop();
      if (begun) add(begun, Number(begun.ts), at, String(begun.name ?? ""), begun.cat);
    }
  }
  if (!found.length) throw new Error("this timeline has no span");
  const first = found.reduce((least, s) => Math.min(least, s[1]), Infinity);
  for (const s of found) [s[1], s[2]] = [Math.round((s[1] - first) * 1e6), Math.round((s[2] - first) * 1e6)];
  const several = processes.size > 1;
  const named = actors.map(({pid, track: which}, i) => {
    const thread = threads.get(which) || `track ${which}`, process = processes.get(pid);
    return {name: several && process ? `${process}: ${thread}` : thread, kind: "rank", rank: i};
  });
  return {troupe_study: 1, title: name, ranks: actors.length, actors: named, span_kinds, span_names: [...names.keys()], spans: found, timeline: true,
    end_ps: found.reduce((most, s) => Math.max(most, s[2]), 1), scenario: {timeline: name}};
}

/** What a file holds: documents of studies, or a timeline. Throws an Error that says what is wrong. */
function documents_of(text, name) {
  const data = JSON.parse(text);
  const docs = Array.isArray(data?.runs) ? data.runs : [data];
  if (docs.every(doc => doc?.troupe_study === 1)) return docs;
  if (data?.troupe_study !== undefined) throw new Error(`it is of format ${data.troupe_study}; this page shows format 1`);
  return [timeline_document(data, name)];
}

/** Reads a file into the page: its run takes the place beside the page's first one, on one clock. */
function open_button(page) {
  const said = element("span", {class: "hint", id: "opened", role: "status"});
  const read = async file => {
    try {
      page.beside(documents_of(await file.text(), file.name.replace(/\.json$/, ""))[0]);
    } catch (error) {
      said.textContent = `${file.name} cannot be shown: ${error.message}.`;
    }
  };
  const input = element("input", {type: "file", id: "open", accept: ".json,application/json", hidden: "", onchange: event => { if (event.target.files[0]) read(event.target.files[0]); }});
  page.listen(document, "dragover", event => event.preventDefault());
  page.listen(document, "drop", event => { event.preventDefault(); if (event.dataTransfer.files[0]) read(event.dataTransfer.files[0]); });
  return element("div", {class: "open"}, element("button", {type: "button", title: "The JSON of another study, or a timeline of a real run (Chrome's trace format), beside this run; or drop the file here",
    onclick: () => input.click()}, "Show another run beside it …"), input,
    ...(page.runs.length > 1 && page.first_alone ? [element("button", {type: "button", id: "alone", onclick: () => page.beside(null)}, `Only ${page.runs[0].title}`)] : []), said);
}
