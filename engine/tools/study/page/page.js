// The page: reads the data, builds the sections, keeps the one clock and the one window of time that all of them show.

class clock {
  constructor(end, changed) { Object.assign(this, {end, changed, ps: 0, playing: false, speed: 1}); }
  /** Virtual picoseconds per real millisecond: at speed 1 a run takes twenty seconds. */
  get rate() { return this.end / 20000 * this.speed; }
  seek(ps) { this.ps = Math.max(0, Math.min(this.end, Math.round(ps))); this.changed(); }
  play() {
    if (this.playing) return;
    if (this.ps >= this.end) this.ps = 0;
    this.playing = true;
    let before = performance.now(), exact = this.ps;
    const tick = now => {
      if (!this.playing) return;
      if (this.ps !== Math.round(exact)) exact = this.ps;  // somebody moved it meanwhile
      exact = Math.min(this.end, exact + Math.max(0, now - before) * this.rate);
      before = now;
      this.ps = Math.round(exact);
      if (this.ps >= this.end) this.playing = false;
      this.changed();
      if (this.playing) requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
    this.changed();
  }
  pause() { this.playing = false; this.changed(); }
  toggle() { if (this.playing) this.pause(); else this.play(); }
}

class study_page {
  /** Of the documents; `bytes`: the size of theirs that is shown; `first_alone`: the second one was opened in this page; `known`: see address. */
  constructor(docs, {bytes = NaN, first_alone = false, known} = {}) {
    const runs = docs.map((doc, i) => new study_run(doc, docs.length > 1 ? "AB"[i] : "", bytes));
    this.runs = runs;
    this.bytes = bytes;
    this.first_alone = first_alone;
    this.ends = new AbortController();
    this.usual_grid = runs.every(run => run.columns === runs[0].columns) ? runs[0].columns : 0;
    this.grid = this.usual_grid;
    this.end = Math.max(...runs.map(run => run.end_ps));
    this.clock = new clock(this.end, () => this.changed());
    this.view = new time_window(this.end, () => this.changed());
    const times = new Set(runs.flatMap(run => [...run.event_times]));
    this.event_times = Float64Array.from(times).sort();
    this.choreographies = [];
    this.drawings = [];
    this.build();
    if (this.grid) this.arrange(this.grid);
    this.address = new address(this, known);
    this.changed();
  }

  /** Until another page takes the place of this one. */
  listen(at, event, told) { at.addEventListener(event, told, {signal: this.ends.signal}); }

  /** The first run with this document's beside it, on one clock; null: the first alone. */
  beside(doc) {
    const at = this.clock.ps;
    this.another([this.runs[0].document, ...(doc ? [doc] : [])], {bytes: this.bytes, first_alone: Boolean(doc)}).seek(at);
  }

  /** Sizes that a run has more of than its row in the table: [bytes, …]. */
  get sizes() {
    const all = this.runs.flatMap(run => (run.document.sizes?.length ? [run.document.bytes, ...run.document.sizes.map(size => size.bytes)] : []));
    return [...new Set(all)].sort((a, b) => a - b);
  }

  /** The same at another size, as far into it. */
  show_size(bytes) {
    const share = this.clock.ps / this.end, {grid} = this, top = scrollY;
    const page = this.another(this.runs.map(run => run.document), {bytes, first_alone: this.first_alone});
    page.arrange(grid);
    page.seek(share * page.end);
    scrollTo(0, top);
    return page;
  }

  /** Another page in place of this one. */
  another(docs, how) {
    this.clock.playing = false;
    this.ends.abort();
    this.address.stop();
    document.querySelector("main").replaceChildren();
    window.troupe_page = new study_page(docs, {...how, known: this.address.known});
    return window.troupe_page;
  }

  /** Ranks in rows of so many; 0: on circles. */
  arrange(columns) {
    this.grid = columns;
    for (const view of this.choreographies) if (view.surface) view.place();
    const chosen = document.getElementById("arrange");
    if (chosen) {
      if (![...chosen.options].some(o => o.value === String(columns))) chosen.append(element("option", {value: columns}, `rows of ${columns}`));
      chosen.value = columns;
    }
    this.changed();
  }

  /** Draws once in the next frame, however often it is asked; not once another page has taken the place of this one. */
  changed() {
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame(() => { this.asked = false; if (!this.ends.signal.aborted) this.draw(); });
  }

  draw() {
    for (const drawing of this.drawings) drawing.draw(this.clock.ps);
    for (const view of this.choreographies) view.tell(this.clock.ps);
    this.draw_controls();
    this.address?.write();
  }

  // -- moving in time -------------------------------------------------------------------------------------------------------

  seek(ps) { this.clock.seek(ps); this.view.show(this.clock.ps); }
  /** To the next (1) or previous (-1) moment at which a message begins or ends. */
  step(direction) {
    this.clock.playing = false;
    const times = this.event_times, now = this.clock.ps;
    const i = direction > 0 ? first_where(times.length, k => times[k] > now) : first_where(times.length, k => times[k] >= now) - 1;
    this.seek(i < 0 ? 0 : i >= times.length ? this.end : times[i]);
  }

  build_controls() {
    const id = name => document.getElementById(name);
    id("play").onclick = () => this.clock.toggle();
    id("back").onclick = () => this.step(-1);
    id("forward").onclick = () => this.step(1);
    id("to_start").onclick = () => this.seek(0);
    id("to_end").onclick = () => this.seek(this.end);
    id("speed").onchange = event => { this.clock.speed = Number(event.target.value); this.changed(); };
    id("scrub").oninput = event => this.seek(Number(event.target.value) / 1e6 * this.end);
    id("whole").onclick = () => this.view.reset();
    const {sizes} = this, shown = this.runs.map(run => run.doc.bytes).find(bytes => sizes.includes(bytes));
    id("sizes").hidden = sizes.length < 2;
    id("size").replaceChildren(...sizes.map(bytes => element("option", {value: bytes, selected: bytes === shown ? "" : null}, bytes_text(bytes))));
    id("size").onchange = event => this.show_size(Number(event.target.value));
    this.listen(document, "keydown", event => this.key(event));
    this.activity = new surface(id("activity"), () => this.changed());
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    this.listen(this.dark, "change", () => { read_colours(); this.changed(); });
  }

  key(event) {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const at = event.target, typing = at.tagName === "SELECT" || (at.tagName === "INPUT" && at.id !== "scrub");
    const act = {" ": () => this.clock.toggle(), ArrowRight: () => this.step(1), ArrowLeft: () => this.step(-1), Home: () => this.seek(0), End: () => this.seek(this.end),
      "+": () => this.view.zoom(0.5, this.clock.ps), "-": () => this.view.zoom(2, this.clock.ps), "0": () => this.view.reset()}[event.key];
    if (!act || typing || (event.key === " " && (at.tagName === "BUTTON" && at.id !== "play" || at.tagName === "SUMMARY"))) return;
    event.preventDefault();
    act();
  }

  draw_controls() {
    const id = name => document.getElementById(name), {ps, playing} = this.clock;
    id("play").textContent = playing ? "Pause" : "Play";
    id("play").setAttribute("aria-pressed", playing);
    id("scrub").value = Math.round(ps / this.end * 1e6);
    id("scrub").setAttribute("aria-valuetext", time_text(ps));
    id("now").textContent = time_text(ps, 5);
    id("end").textContent = `of ${time_text(this.end, 5)}`;
    id("rate").textContent = `1 s shows ${time_text(this.clock.rate * 1000, 3)}`;
    id("whole").disabled = this.view.whole;
    id("shown").textContent = this.view.whole ? "" : `Charts show ${time_text(this.view.from)} to ${time_text(this.view.to)}.`;
    this.draw_activity();
  }

  /** Behind the scrub bar: how many messages are under way, or how much else goes on. */
  draw_activity() {
    const {context: c, width, height} = this.activity, bins = Math.max(20, Math.floor(width / 2));
    if (this.activity_bins !== bins) {
      this.activity_bins = bins;
      this.activity_of = this.runs.map(run => {
        const scale = run.end_ps / this.end, own = run.activity(Math.max(1, Math.round(bins * scale)));
        return own;
      });
    }
    this.activity.clear(colours.paper);
    this.activity_of.forEach((values, i) => {
      const most = Math.max(1e-9, ...values), share = height / this.runs.length, base = share * (i + 1);
      c.fillStyle = colours.empty;
      c.fillRect(0, base - 1, values.length * width / bins, 1);
      c.fillStyle = colours.line;
      values.forEach((v, b) => c.fillRect(b * width / bins, base - v / most * (share - 2), width / bins, v / most * (share - 2)));
    });
    const x = this.clock.ps / this.end * width;
    c.fillStyle = colours.cursor;
    c.fillRect(Math.round(x) - 1, 0, 2, height);
  }

  // -- building -------------------------------------------------------------------------------------------------------------

  build() {
    read_colours();
    const main = document.querySelector("main");
    document.title = this.runs.map(run => run.title).join(" | ") + " – Troupe study";
    const one = this.runs.every(run => !run.jobs.length);  // what belongs to one collective
    const moves = one && !this.timelines, paths = one && (!this.timelines || this.runs.some(run => run.critical_path.length));
    main.append(this.header(), this.results(), ...(moves ? [this.choreography()] : []), this.gantt(), this.heat(), ...(paths ? [this.critical()] : []),
      ...(this.runs.some(run => run.doc.experts) ? [this.experts()] : []), this.scenario());
    this.build_controls();
    for (const view of [...this.choreographies, ...this.drawings]) if (!view.surface) view.attach?.();
    this.drawings.push(...this.choreographies);
  }

  section(id, title, aside, ...children) {
    return element("section", {id}, element("div", {class: "head"}, element("h2", {}, title), element("div", {class: "aside"}, ...[aside].flat().filter(Boolean))), ...children);
  }
  /** The same for every run, side by side. */
  columns(build) {
    return element("div", {class: this.runs.length > 1 ? "columns" : "column"}, ...this.runs.map((run, i) => element("div", {class: "run"},
      ...(run.letter ? [element("h3", {}, badge(run), run.title)] : []), ...[build(run, i)].flat())));
  }
  stacked(build) {
    return element("div", {class: "stacked"}, ...this.runs.map(run => element("div", {class: "run"},
      ...(run.letter ? [element("h3", {}, badge(run), run.title)] : []), ...[build(run)].flat())));
  }

  header() {
    const box = element("header", {});
    if (this.runs.length > 1) box.append(element("h1", {}, "Comparison of two runs"), element("p", {class: "result", id: "result"}, ...comparison_words(...this.runs)));
    else box.append(element("h1", {}, this.runs[0].title), element("p", {class: "result", id: "result"}, ...result_words(this.runs[0])));
    box.append(element("div", {class: this.runs.length > 1 ? "columns" : "column"}, ...this.runs.map(run => element("div", {class: "run"},
      ...(run.letter ? [element("h3", {}, badge(run), run.title)] : []),
      element("p", {class: "setting"}, setting_words(run)), where_bar(run)))), open_button(this));
    return box;
  }

  /** Nothing but who did what when is known of any run. */
  get timelines() { return this.runs.every(run => run.doc.timeline); }

  results() {
    if (this.runs.length === 1 && this.runs[0].row?.nodes) return this.flow_results(this.runs[0]);
    if (this.timelines) return this.section("results", "Where the time went", null, time_table(this.runs),
      element("p", {class: "hint"}, "What a track does at once counts for each, so that shares may add up to more than 100 %."));
    const table = this.runs.length > 1 ? comparison_table(this, ...this.runs) : rows_table(this, this.runs[0]);
    if (this.runs[0].jobs.length) return this.section("results", "Jobs", null, jobs_table(this.runs[0]), ...this.runs[0].sweeps.map(sweep => sweep_jobs_table(sweep)));
    const keys = [...new Set(this.runs.flatMap(run => run.sweeps.map(s => s.key)))];
    const has_curve = this.runs.some(run => new Set(run.rows.map(r => r.bytes)).size > 1);
    const charts = element("div", {class: "charts", id: "charts"});
    const choose = measure => {
      for (const button of toggle.children) button.setAttribute("aria-pressed", button.dataset.measure === measure);
      charts.replaceChildren(...(has_curve ? [rows_chart(this.runs, measure).node] : []), ...keys.map(key => sweep_chart(key, this.runs, measure).node));
    };
    const toggle = element("div", {class: "toggle", role: "group", "aria-label": "what the curves show"}, ...[["busbw", "Bandwidth"], ["time_us", "Time"]].map(([measure, words]) =>
      element("button", {type: "button", "data-measure": measure, onclick: () => choose(measure)}, words)));
    const curves = has_curve || keys.length > 0;
    if (curves) choose("busbw");
    const single = keys.length + has_curve === 1;
    return this.section("results", "Results", curves ? [toggle, save_buttons(this, "results")] : null, element("div", {class: single ? "beside" : "below"}, table, charts));
  }

  /** Of a flow: its sizes, what its nodes did at the one that is shown, and what a sweep makes of its time. */
  flow_results(run) {
    const charts = [...(run.rows.length > 1 ? [rows_chart([run], "time_us").node] : []), ...run.sweeps.map(sweep => sweep_chart(sweep.key, [run], "time_us").node)];
    const table = element("div", {class: "below"}, flow_rows_table(this, run), nodes_table(run));
    return this.section("results", "Results", charts.length ? [save_buttons(this, "results")] : null,
      element("div", {class: charts.length === 1 ? "beside" : "below"}, table, element("div", {class: "charts", id: "charts"}, ...charts)));
  }

  choreography() {
    const reduction = this.runs.some(run => run.journey?.reduction), key = (attributes, words) => element("span", {}, element("i", attributes), words);
    const legend = !this.runs.some(run => run.journey) ? null : element("div", {class: "legend"},
      key({class: "swatch", style: "background:var(--empty)"}, "not there"),
      ...(reduction ? [key({class: "swatch partial"}, "partly reduced")] : []),
      key({class: "swatch", style: "background:var(--complete)"}, reduction ? "complete" : "there"),
      key({class: "dot", style: "background:var(--copy)"}, "message, copied"),
      ...(reduction ? [key({class: "diamond", style: "background:var(--reduce)"}, "message, reduced")] : []));
    return this.section("choreography", "Choreography", legend && [legend, this.arrangement(), save_buttons(this, "choreography")], this.columns(run => {
      if (run.doc.timeline) return element("p", {class: "missing"}, "A timeline says what its tracks did, not which data they moved: see below.");
      if (run.only_tokens) return element("p", {class: "missing"}, "Only tokens move here, no data: there is nothing to hold. Who waits for whom is shown below.");
      if (!run.journey) return missing(run.move_count ? `${plural(run.ranks * run.cells, "tile")} are too many to follow in this page` : "The journeys of the chunks were not recorded", run,
        "Study fewer ranks or a smaller message to see who holds what, and when.");
      const view = new choreography_view(run, this, () => this.changed());
      this.choreographies.push(view);
      return [element("div", {class: "theatre"}, view.canvas, view.matrix_canvas), element("div", {class: "under"}, view.news, view.follow_note)];
    }));
  }

  /** A torus looks like one in rows of the right length, which the page begins with where the machine says it; else only the reader knows. */
  arrangement() {
    const most = Math.max(...this.runs.map(run => run.ranks)), columns = Array.from({length: most}, (_, i) => i + 1).filter(k => most % k === 0).slice(1, -1);
    return element("label", {class: "arrange"}, "Ranks ", element("select", {id: "arrange", onchange: event => this.arrange(Number(event.target.value))},
      element("option", {value: 0}, "on circles"), ...columns.map(k => element("option", {value: k}, `in rows of ${k}`))));
  }

  gantt() {
    const kinds = [...new Set(this.runs.flatMap(run => run.actors.filter((_, a) => run.lanes[a].length).map(actor => actor.kind)))];
    const used = new Set(this.runs.flatMap(run => [...new Set(run.span_kind)].map(k => run.span_kinds[k])));
    const views = [];
    const jobs = this.runs[0].jobs;
    const legend = element("div", {class: "legend"}, ...[...used].filter(kind => kind !== "occupy" || !jobs.length).map(kind => element("span", {}, element("i", {class: `swatch${is_wait(kind) ? " thin" : ""}`, style: `background:var(--${kind})`}), kind_words[kind] ?? kind)),
      ...(used.has("occupy") ? jobs.map((job, i) => element("span", {class: "job"}, element("i", {class: "swatch", style: `background:var(--${job_colour(i)})`}), job.name)) : []),
      ...(this.runs.some(run => run.critical_path.length) ? [element("span", {}, element("i", {class: "swatch critical"}), "critical path")] : []));
    const boxes = kinds.length < 2 ? null : element("div", {class: "toggle", role: "group", "aria-label": "rows to show"}, ...kinds.map(kind =>
      element("button", {type: "button", "aria-pressed": "true", "data-kind": kind, onclick: event => {
        const hide = event.target.getAttribute("aria-pressed") === "true";
        event.target.setAttribute("aria-pressed", !hide);
        for (const view of views) { view.hidden[hide ? "add" : "delete"](kind); view.layout(); view.surface.fit(); }
        this.changed();
      }}, actor_words[kind] ?? kind)));
    const section = this.section("gantt", "Actors over time", [boxes, save_buttons(this, "gantt")], legend, this.stacked(run => {
      if (!run.span_count) return missing("What each actor did was not recorded", run, "The totals below, where there are any, and the results above are complete.");
      const view = new gantt_view(run, this.view, {changed: () => this.changed(), seek: ps => this.seek(ps), most_height: this.runs.length > 1 ? 380 : 560});
      views.push(view);
      this.drawings.push(view);
      return view.box;
    }));
    if (views.length) section.append(element("p", {class: "hint"}, "Wheel: zoom. Drag: move. Click: set the cursor. Double click: the whole run. Time runs alike in all charts."));
    this.gantts = views;
    return section;
  }

  heat() {
    const scale = !this.runs.some(run => run.span_count) ? null : element("div", {class: "legend"}, element("span", {}, "idle", element("i", {class: "swatch scale"}), "busy all the time"));
    return this.section("heat", "Utilisation", scale && [scale, save_buttons(this, "heat")], this.stacked(run => {
      if (!run.span_count) return run.utilisation.length ? utilisation_table(run) : missing("Utilisation was not recorded", run, "");
      const view = new heat_view(run, this.view, {changed: () => this.changed(), seek: ps => this.seek(ps), most_height: this.runs.length > 1 ? 260 : 380});
      this.drawings.push(view);
      return view.box;
    }));
  }

  critical() {
    return this.section("critical", "Critical path", element("span", {class: "hint"}, "What the end had to wait for, in order. Click a line to go there."), this.columns(run => {
      if (run.doc.timeline && !run.critical_path.length) return element("p", {class: "missing"}, "What happened is known, but not what waited for what.");
      if (!run.critical_path.length) return missing("The critical path was not recorded", run, "");
      const most = 2000, pieces = run.critical_path.slice(0, most);
      const list = element("ol", {class: "critical"}, ...pieces.map(piece => element("li", {}, element("button", {type: "button", onclick: event => {
        this.seek(piece.begin_ps);
        for (const other of list.querySelectorAll("[aria-current]")) other.removeAttribute("aria-current");
        event.currentTarget.setAttribute("aria-current", "true");
      }}, element("span", {class: "when"}, time_text(piece.begin_ps)), element("span", {class: "long"}, time_text(piece.end_ps - piece.begin_ps, 3)), element("span", {}, piece.text)), ...hops_of(piece))));
      const more = run.critical_path.length - most;
      return more > 0 ? [list, element("p", {class: "hint"}, `And ${plural(more, "piece")} more, not listed.`)] : list;
    }));
  }

  /** Of layers of experts: how evenly tokens fell on ranks and experts. */
  experts() {
    return this.section("experts", "Tokens and experts", save_buttons(this, "experts"), this.columns(run => {
      const of = run.doc.experts;
      if (!of) return element("p", {class: "missing"}, "This run has no experts.");
      const ranks = of.ranks.map((rank, i) => ({...rank, i})), experts = of.experts.map((expert, i) => ({...expert, i})).sort((a, b) => b.tokens - a.tokens);
      const count = key => [key, "", row => row[key].toLocaleString("en")], most = 64;
      // As a picture, so that nothing of it is markup of this page.
      return [element("p", {class: "result"}, `Forward, in ${plural(of.dispatches, "layer")}, rank ${of.bottleneck} receives most, ${number_text(of.imbalance, 3)} times the average, and ${plural(of.dropped, "choice")} ${of.dropped === 1 ? "is" : "are"} dropped. In the whole iteration a rank spends ${percent_text(of.share_of_exchange)} of its time on communication: it waits for tokens, or for others.`),
        element("img", {class: "heat_map", alt: "Tokens from each rank to each expert", src: `data:image/svg+xml;charset=utf-8,${encodeURIComponent(of.heat_map)}`}),
        table_of("", [["rank", "", row => row.i], ...["tokens", "sent", "received", "dropped", "crossed"].map(count), ["exchange", "µs", row => number_text(row.exchanging_us, 5)]], ranks.slice(0, most), () => false),
        table_of("", [["expert", "", row => row.i], ...["tokens", "dropped"].map(count)], experts.slice(0, most), () => false),
        ...(Math.max(ranks.length, experts.length) > most ? [element("p", {class: "hint"}, `The first ${most} ranks, and the ${most} busiest experts.`)] : [])];
    }));
  }

  scenario() {
    const keys = [...new Set(this.runs.flatMap(run => Object.keys(run.scenario)))];
    const differs = key => this.runs.length > 1 && this.runs[0].scenario[key] !== this.runs[1].scenario[key];
    if (this.runs.length > 1) keys.sort((a, b) => differs(b) - differs(a));
    const table = element("table", {class: "scenario"}, element("tbody", {}, ...keys.map(key => element("tr", {class: differs(key) ? "differs" : null},
      element("th", {scope: "row"}, key), ...this.runs.map(run => element("td", {}, run.scenario[key] ?? "–"))))));
    if (this.runs.length > 1) table.prepend(element("thead", {}, element("tr", {}, element("th", {}, ""), ...this.runs.map(run => element("th", {}, badge(run), run.title)))));
    return this.section("scenario", "Scenario", this.runs.length > 1 ? element("span", {class: "hint"}, "Differences first, in bold.") : null,
      keys.length ? element("div", {class: "scroll"}, table) : element("p", {class: "missing"}, "The scenario was not recorded."));
  }
}

// -- words and tables -------------------------------------------------------------------------------------------------------

/** The ways of a critical piece's chunks where its text leaves ranks out. */
const hops_of = piece => (piece.hops?.length ? [element("details", {class: "hops"}, element("summary", {}, `All ${plural(piece.hops.reduce((sum, way) => sum + way.length - 1, 0), "hop")}`),
  element("p", {}, piece.hops.map(way => way.join(" → ")).join(", ")))] : []);

const badge = run => element("b", {class: `badge ${run.letter}`}, run.letter);

function missing(what, run, advice) {
  if (run.row && !run.row.messages) return element("p", {class: "missing"}, `Nothing was sent: ${plural(run.ranks, "rank")}, no messages.`);
  return element("p", {class: "missing"}, `${what}: the run has ${plural(run.ranks, "rank")}${run.row ? ` and ${plural(run.row.messages, "message")}` : ""}, too large for a page. ${advice}`.trim());
}

function setting_words(run) {
  const {doc} = run, parts = [];
  if (doc.about) return doc.about;
  if (run.row?.nodes) return `A flow of ${plural(run.row.nodes.length, "node")} at ${bytes_text(run.row.bytes)} on hardware ${doc.preset} of ${plural(run.ranks, "rank")}, in ${plural(run.row.tiles, "tile")} a share.`;
  if (doc.timeline) return `A timeline of ${plural(run.ranks, "track")} and ${plural(run.span_count, "span")}.`;
  if (run.jobs.length) return `${plural(run.jobs.length, "job")} at once on hardware ${doc.preset} of ${plural(run.ranks, "rank")}.`;
  parts.push(`${doc.collective || "collective"} of ${bytes_text(doc.bytes ?? 0)} on ${plural(run.ranks, "rank")}`);
  if (doc.choreography) parts.push(`choreography ${doc.choreography}`);
  if (doc.protocol) parts.push(`protocol ${doc.protocol}`);
  if (doc.preset) parts.push(`hardware ${doc.preset}`);
  if (run.row) parts.push(`${plural(run.row.steps, "step")} and ${plural(run.row.messages, "message")}`);
  return `${parts.join(", ")}.`;
}

function result_words(run) {
  if (run.jobs.length) {
    const worst = run.jobs.reduce((a, b) => (b.slow_down > a.slow_down ? b : a));
    const shared = (run.doc.shared ?? [])[0];
    return ["The last job ends after ", element("strong", {}, time_text(run.end_ps)), ". ",
      ...(worst.slow_down > 1.005 ? [element("strong", {}, worst.name), ` suffers most from the others: a round takes ${number_text(worst.slow_down, 3)} times as long as alone. `] : ["No job slows another one down. "]),
      ...(shared && shared.queued_ps > 0 ? [`Messages waited longest for ${shared.element}, ${time_text(shared.queued_ps)} in all.`] : [])];
  }
  const {row} = run;
  const words = row?.failed ? [element("strong", {}, "It fails"), `, as ranks are lost; the last one knows after `] : [`It takes `];
  words.push(element("strong", {}, time_text(row ? row.time_us * 1e6 : run.end_ps)));
  if (row && !row.failed && !row.nodes) {
    words.push(`: `, element("strong", {}, `${number_text(row.busbw)} GB/s`), ` bus bandwidth`);
    if (row.bound_us > 0) words.push(`, ${number_text(row.time_us / row.bound_us, 3)} times the lower bound of ${time_text(row.bound_us * 1e6)}`);
  }
  words.push(". ");
  const shares = run.critical_shares(), total = shares.reduce((sum, s) => sum + s[2], 0);
  if (total > 0) words.push(`The critical path${run.doc.timeline ? ":" : " spends"} ${shares.slice(0, 2).map(([where, , ps]) => `${percent_text(ps / total)} ${where}`).join(" and ")}. `);
  const busiest = run.utilisation.filter(u => run.actors[u.actor] && run.actors[u.actor].kind !== "rank").sort((a, b) => b.share - a.share)[0];
  if (busiest) words.push(`The busiest piece of hardware is ${run.actors[busiest.actor].name}, at ${percent_text(busiest.share)}.`);
  return words;
}

/** Which is faster, by how much, and where the time went. */
function comparison_words(a, b) {
  if (a.doc.timeline || b.doc.timeline)
    return [element("strong", {}, `${a.letter} ends after ${time_text(a.end_ps)}, ${b.letter} after ${time_text(b.end_ps)}`), `: ${number_text(b.end_ps / a.end_ps, 3)} times as long. Both begin at the left.`];
  const time = run => (run.row ? run.row.time_us * 1e6 : run.end_ps), same_size = a.doc.bytes === b.doc.bytes;
  const [fast, slow] = time(a) <= time(b) ? [a, b] : [b, a], ratio = time(slow) / time(fast), gap = time(slow) - time(fast);
  if (ratio < 1.0005) return [element("strong", {}, "Both take the same time"), `: ${time_text(time(a))}.`];
  const how = ratio < 1.1 ? [`${percent_text(ratio - 1)} faster`, "than"] : [`${number_text(ratio, 3)} times as fast`, "as"];
  const words = [element("strong", {}, `${fast.letter} is ${how[0]}`), ` ${how[1]} ${slow.letter}: ${time_text(time(fast))} against ${time_text(time(slow))}, ${time_text(gap, 3)} less`,
    same_size ? `, at ${bytes_text(a.doc.bytes ?? 0)}. ` : `; but ${a.letter} moves ${bytes_text(a.doc.bytes ?? 0)} and ${b.letter} ${bytes_text(b.doc.bytes ?? 0)}. `];
  const spent = run => new Map(run.critical_shares().map(([where, , ps]) => [where, ps])), [x, y] = [spent(slow), spent(fast)];
  if (!x.size || !y.size) return words;
  const differences = [...new Set([...x.keys(), ...y.keys()])].map(where => [where, (x.get(where) ?? 0) - (y.get(where) ?? 0)]).sort((p, q) => q[1] - p[1]);
  const saved = differences.filter(d => d[1] > gap * 0.05).slice(0, 3), lost = differences.filter(d => d[1] < -gap * 0.05).reverse().slice(0, 2);
  if (saved.length) words.push(`On its critical path ${slow.letter} spends ${saved.map(([where, ps]) => `${time_text(ps, 3)} more ${where}`).join(", ")}`,
    lost.length ? `, but ${lost.map(([where, ps]) => `${time_text(-ps, 3)} less ${where}`).join(", ")}.` : ".");
  return words;
}

/** One bar: the critical path by what it was spent on. */
function where_bar(run) {
  const shares = run.critical_shares(), total = shares.reduce((sum, s) => sum + s[2], 0);
  if (!total) return element("span", {});
  return element("div", {class: "where"},
    element("div", {class: "bar"}, ...shares.map(([where, colour, ps]) => element("i", {style: `flex-grow:${ps / total};background:var(--${colour})`, title: `${where}: ${time_text(ps)}`}))),
    element("div", {class: "legend"}, "Critical path:", ...shares.map(([where, colour, ps]) => element("span", {}, element("i", {class: "swatch", style: `background:var(--${colour})`}), `${where} ${time_text(ps, 3)} (${percent_text(ps / total)})`))));
}

const number_columns = [["size", "B", r => r.bytes.toLocaleString("en")], ["count", "elements", r => r.count.toLocaleString("en")], ["type", "", r => r.type], ["redop", "", r => r.redop],
  ["time", "µs", r => number_text(r.time_us, 5)], ["algbw", "GB/s", r => number_text(r.algbw)], ["busbw", "GB/s", r => number_text(r.busbw)],
  ["bound", "µs", r => (r.bound_us > 0 ? number_text(r.bound_us, 5) : "–")], ["time/bound", "", r => (r.bound_us > 0 ? number_text(r.time_us / r.bound_us, 3) : "–")],
  ["steps", "", r => r.steps.toLocaleString("en")], ["messages", "", r => r.messages.toLocaleString("en")]];

/** groups: [[heading, number of columns], …] above the columns' own names. */
function table_of(id, columns, rows, current, groups = []) {
  const firsts = new Set();
  groups.reduce((at, [, count]) => { firsts.add(at); return at + count; }, 0);
  const first = i => (i > 0 && firsts.has(i) ? "first" : null);
  const above = groups.length ? [element("tr", {}, ...groups.map(([heading, count], i) => element("th", {colspan: count, class: i ? "group first" : "group"}, heading)))] : [];
  return element("div", {class: "scroll"}, element("table", {id, class: "numbers"},
    element("thead", {}, ...above, element("tr", {}, ...columns.map(([name, unit], i) => element("th", {scope: "col", class: first(i)}, name, unit ? element("small", {}, unit) : "")))),
    element("tbody", {}, ...rows.map(row => element("tr", {class: current(row) ? "current" : null, title: current(row) ? "the run shown below" : null},
      ...columns.map(([, , text], i) => element("td", {class: first(i)}, text(row))))))));
}

/** A row's size; a click shows it, where there is something to show. */
const size_cell = (page, bytes) => (page.sizes.length < 2 || !page.sizes.includes(bytes) ? bytes.toLocaleString("en")
  : element("button", {type: "button", class: "link", title: "Show this size below", onclick: () => page.show_size(bytes)}, bytes.toLocaleString("en")));

function rows_table(page, run) {
  if (!run.rows.length) return missing("There is no row of results", run, "");
  const [[size, unit], ...others] = number_columns;
  return table_of("rows", [[size, unit, r => size_cell(page, r.bytes)], ...others], run.rows, row => run.rows.length > 1 && row === run.row);
}

function flow_rows_table(page, run) {
  return table_of("rows", [["size", "B", r => size_cell(page, r.bytes)], ["tiles", "of a share", r => r.tiles.toLocaleString("en")], ["time", "µs", r => number_text(r.time_us, 5)],
    ["performed", "", r => r.choreography]], run.rows, row => run.rows.length > 1 && row === run.row);
}

/** A node's times are of all ranks, what it did of the one where it was busy longest. */
function nodes_table(run) {
  const us = key => n => number_text(n[key], 5);
  return table_of("nodes", [["node", "", n => n.name], ["kernel", "", n => n.kernel], ["begin", "µs", us("begin_us")], ["end", "µs", us("end_us")], ["busy", "µs", us("busy_us")],
    ["wait", "µs", us("wait_us")], ["a core's work", "µs", us("core_us")], ["moved", "B", n => n.moved_bytes.toLocaleString("en")]], run.row.nodes.filter(n => n.kernel >= 0), () => false);
}

/** Of timelines: what each name took, on all tracks together. */
function time_table(runs) {
  const times = runs.map(run => new Map(run.time_by_name().map(row => [row[0], row]))), names = [...new Set(times.flatMap(of => [...of.keys()]))];
  const share = (run, ps) => percent_text(ps / (run.end_ps * Math.max(1, run.ranks)));
  const columns = runs.flatMap((run, i) => [["how often", "", name => (times[i].get(name)?.[3] ?? 0).toLocaleString("en")], ["time", "of all tracks", name => time_text(times[i].get(name)?.[2] ?? 0)],
    ["share", "", name => share(run, times[i].get(name)?.[2] ?? 0)]]);
  return table_of("rows", [["what", "", name => name], ...columns], names, () => false, runs.length > 1 ? [["", 1], ...runs.map(run => [badge(run), 3])] : []);
}

const job_columns = [["job", "", j => j.name], ["ranks", "", j => j.ranks.length], ["rounds", "", j => j.rounds_ps.length],
  ["least", "µs", j => number_text(j.together.least_us, 5)], ["median", "µs", j => number_text(j.together.median_us, 5)], ["most", "µs", j => number_text(j.together.most_us, 5)],
  ["alone", "µs", j => number_text(j.alone.median_us, 5)], ["slow-down", "", j => number_text(j.slow_down, 3)], ["end", "µs", j => number_text(j.end_us, 5)],
  ["performed", "", j => j.calls.map(c => `${c.collective}: ${c.choreography}`).join(", ")]];
function jobs_table(run) { return table_of("rows", job_columns, run.jobs, () => false); }
function sweep_jobs_table(sweep) {
  return table_of("", [[sweep.key, "", r => r.value], ...job_columns.map(([name, unit, text]) => [name, unit, r => text(r.job)])],
    sweep.points.flatMap(p => p.jobs.map(job => ({value: p.value, job}))), () => false);
}

function comparison_table(page, a, b) {
  const sizes = [...new Set([...a.rows, ...b.rows].map(r => r.bytes))].sort((x, y) => x - y);
  const rows = sizes.map(bytes => ({bytes, a: a.rows.find(r => r.bytes === bytes), b: b.rows.find(r => r.bytes === bytes)}));
  const of = side => [["time", "µs", r => number_text(r.time_us, 5)], ["busbw", "GB/s", r => number_text(r.busbw)], ["bound", "µs", r => (r.bound_us > 0 ? number_text(r.bound_us, 5) : "–")],
    ["messages", "", r => r.messages.toLocaleString("en")]].map(([name, unit, text]) => [name, unit, row => (row[side] ? text(row[side]) : "–")]);
  return table_of("rows", [["size", "B", r => size_cell(page, r.bytes)], ...of("a"), ...of("b"), ["time A / B", "", r => (r.a && r.b ? number_text(r.a.time_us / r.b.time_us, 3) : "–")]],
    rows, row => rows.length > 1 && row.bytes === a.doc.bytes, [["", 1], [badge(a), 4], [badge(b), 4], ["", 1]]);
}

function utilisation_table(run) {
  const rows = [...run.utilisation].sort((x, y) => y.share - x.share).slice(0, 50);
  return [table_of("", [["actor", "", u => run.actors[u.actor]?.name ?? u.actor], ["busy", "µs", u => number_text(u.busy_ps / 1e6, 5)], ["share", "", u => percent_text(u.share)], ["bytes", "", u => bytes_text(u.bytes)]], rows, () => false),
    ...(run.utilisation.length > 50 ? [element("p", {class: "hint"}, `The 50 busiest of ${plural(run.utilisation.length, "actor")}.`)] : [])];
}

// -- start ------------------------------------------------------------------------------------------------------------------

function start() {
  const fail = sentence => document.querySelector("main").append(element("p", {class: "missing"}, sentence));
  let data;
  try {
    data = JSON.parse(document.getElementById("data").textContent);
  } catch (error) {
    return fail(`The data in this page cannot be read: ${error.message}.`);
  }
  const docs = Array.isArray(data.runs) ? data.runs : [data];
  const strange = docs.find(doc => doc?.troupe_study !== 1);
  if (!docs.length || strange !== undefined) return fail(`This page shows studies of format 1; its data is of format ${strange?.troupe_study ?? "unknown"}.`);
  window.troupe_page = new study_page(docs.slice(0, 2), {bytes: asked_size()});
}
start();
