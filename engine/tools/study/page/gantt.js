// Actors over time. The window of time is shared by all charts of the page. A row is drawn in one step per pixel at most, found by
// binary search, so that the number of spans does not matter.

const label_width = 190, right_margin = 10, axis_height = 22;

/** The visible window of time, common to all charts. */
class time_window {
  constructor(end, changed) { Object.assign(this, {end, from: 0, to: end, changed}); }
  get whole() { return this.from <= 0 && this.to >= this.end; }
  set(from, to) {
    const width = Math.min(this.end, Math.max(to - from, Math.max(1000, this.end / 2e6)));
    this.from = Math.min(Math.max(0, from), this.end - width);
    this.to = this.from + width;
    this.changed();
  }
  zoom(factor, around) { this.set(around - (around - this.from) * factor, around + (this.to - around) * factor); }
  shift(ps) { this.set(this.from + ps, this.to + ps); }
  reset() { this.set(0, this.end); }
  show(ps) { if (ps < this.from || ps > this.to) this.shift(ps - (this.from + this.to) / 2); }
}

function draw_time_axis(c, view, left, width, height) {
  const [size, unit] = time_unit(view.to), x_of = ps => left + (ps - view.from) / (view.to - view.from) * width;
  const ticks = round_ticks(view.from / size, view.to / size, width / 110), step = ticks.length > 1 ? ticks[1] - ticks[0] : 1;
  const digits = Math.max(0, Math.min(9, -Math.floor(Math.log10(step) + 1e-9)));
  c.font = text_font(11);
  c.textBaseline = "middle";
  c.textAlign = "left";
  for (const tick of ticks) {
    const x = Math.round(x_of(tick * size)) + 0.5;
    c.strokeStyle = colours.grid;
    c.lineWidth = 1;
    c.beginPath(); c.moveTo(x, 0); c.lineTo(x, height); c.stroke();
    c.fillStyle = colours.soft;
    const text = `${tick.toFixed(digits)} ${unit}`;
    if (x + 4 + c.measureText(text).width < left + width) c.fillText(text, x + 4, axis_height / 2);
  }
}

let last_scroll = -Infinity;
document.addEventListener("scroll", () => { last_scroll = performance.now(); });

/** Zoom by wheel, pan by drag, click to set the cursor: the same on every chart of time. */
function handle_time(target, view, {left, right, seek, scroll, hover}) {
  const width = () => Math.max(1, target.getBoundingClientRect().width - left - right);
  const time_at = event => view.from + (event.clientX - target.getBoundingClientRect().left - left) / width() * (view.to - view.from);
  let held = null;
  target.addEventListener("wheel", event => {
    // Whoever scrolls the page past a chart does not want to zoom it.
    if (performance.now() - last_scroll < 250 || event.clientX - target.getBoundingClientRect().left < left || (view.whole && event.deltaY > 0 && !event.ctrlKey)) return;
    event.preventDefault();
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) view.shift(event.deltaX / width() * (view.to - view.from));
    else view.zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY / 300))), time_at(event));
    tooltip.hide();
  }, {passive: false});
  target.addEventListener("pointerdown", event => {
    if (event.button !== 0) return;
    held = {x: event.clientX, y: event.clientY, moved: false};
    target.setPointerCapture(event.pointerId);
  });
  target.addEventListener("pointermove", event => {
    if (!held) return hover?.(event, time_at(event));
    const dx = event.clientX - held.x, dy = event.clientY - held.y;
    if (!held.moved && Math.hypot(dx, dy) < 4) return;
    held.moved = true;
    tooltip.hide();
    view.shift(-dx / width() * (view.to - view.from));
    scroll?.(-dy);
    [held.x, held.y] = [event.clientX, event.clientY];
  });
  target.addEventListener("pointerup", event => {
    if (held && !held.moved && event.clientX - target.getBoundingClientRect().left >= left) seek(Math.max(0, Math.min(view.end, time_at(event))));
    held = null;
  });
  target.addEventListener("pointercancel", () => { held = null; });
  target.addEventListener("pointerleave", () => { if (!held) { tooltip.hide(); hover?.(null); } });
  target.addEventListener("dblclick", () => view.reset());
}

class gantt_view {
  constructor(run, view, hooks) {
    Object.assign(this, {run, view, hooks});
    this.hidden = new Set();
    this.flow = -1;
    this.canvas = element("canvas", {class: "gantt", role: "img", "aria-label": "what every actor does over time"});
    this.spacer = element("div");
    this.box = element("div", {class: "gantt-box"}, this.canvas, this.spacer);
    this.critical = this.run.actors.map(() => []);
    for (const piece of run.critical_path) this.critical[piece.actor]?.push(piece);
    this.layout();
  }

  /** Rows of the actors that are shown; those with nothing to show have none. */
  layout() {
    let top = axis_height;
    this.rows = [];
    let before = null;
    for (const actor of this.run.actor_order) {
      const kind = this.run.actors[actor].kind, lanes = this.run.lanes[actor].length;
      if (this.hidden.has(kind) || (!lanes && kind !== "rank")) continue;
      if (before !== null && before !== kind) top += 6;
      before = kind;
      const height = Math.max(16, lanes <= 1 ? 16 : lanes * (lanes <= 2 ? 9 : lanes <= 6 ? 6 : 4) + 2);
      this.rows.push({actor, top, height});
      top += height;
    }
    this.total = top + 4;
    const shown = Math.min(this.total, this.hooks.most_height ?? 520);
    this.box.style.height = `${shown}px`;
    this.canvas.style.height = `${shown}px`;
    this.spacer.style.height = `${Math.max(0, this.total - shown)}px`;
  }

  attach() {
    this.surface = new surface(this.canvas, this.hooks.changed);
    this.box.addEventListener("scroll", this.hooks.changed);
    handle_time(this.canvas, this.view, {
      left: label_width, right: right_margin, seek: this.hooks.seek,
      scroll: dy => { this.box.scrollTop += dy; },
      hover: (event, ps) => this.hover(event, ps),
    });
  }

  x_of(ps) { return label_width + (ps - this.view.from) / (this.view.to - this.view.from) * this.width; }

  draw(ps) {
    if (!this.surface.visible) return;
    const {context: c, width, height} = this.surface, scroll = this.box.scrollTop;
    this.width = Math.max(1, width - label_width - right_margin);
    this.surface.clear(colours.panel);
    draw_time_axis(c, this.view, label_width, this.width, height);
    c.save();
    c.beginPath(); c.rect(0, axis_height, width, height - axis_height); c.clip();
    for (const row of this.rows) {
      const top = row.top - scroll;
      if (top > height || top + row.height < axis_height) continue;
      this.draw_label(row, top);
      c.save();
      c.beginPath(); c.rect(label_width, top, this.width, row.height); c.clip();
      const lanes = this.run.lanes[row.actor], lane_height = (row.height - 3) / Math.max(1, lanes.length);
      lanes.forEach((lane, i) => this.draw_lane(lane, top + 1 + i * lane_height, Math.max(1, lane_height - (lanes.length > 1 ? 0.5 : 0))));
      c.restore();
    }
    this.draw_critical(scroll);
    c.restore();
    this.draw_cursor(ps, height);
  }

  draw_label(row, top) {
    const {context: c} = this.surface;
    c.font = text_font(11);
    c.textAlign = "right";
    c.textBaseline = "middle";
    c.fillStyle = colours.ink;
    c.fillText(fitted(c, this.run.actors[row.actor].name, label_width - 14), label_width - 8, top + row.height / 2);
    c.fillStyle = colours.grid;
    c.fillRect(label_width, Math.round(top + row.height) - 1, this.width, 1);
  }

  draw_lane(lane, top, height) {
    const {context: c} = this.surface, run = this.run, {from, to} = this.view, per_pixel = (to - from) / this.width;
    let i = first_where(lane.length, k => run.span_end[lane[k]] > from);
    while (i < lane.length && run.span_begin[lane[i]] < to) {
      const s = lane[i], kind = run.span_kinds[run.span_kind[s]], x = this.x_of(run.span_begin[s]), wide = (run.span_end[s] - run.span_begin[s]) / per_pixel;
      c.fillStyle = colours[run.colour_of_span(s)] || colours.sync;
      if (wide >= 1.5) {
        const inset = is_wait(kind) ? height * 0.32 : 0;
        c.fillRect(x, top + inset, wide - (wide > 4 ? 0.5 : 0), height - 2 * inset);
        if (wide > 50 && height >= 11) this.draw_span_text(s, kind, Math.max(x, label_width), Math.min(x + wide, label_width + this.width), top, height);
        if (this.flow >= 0 && run.span_flow[s] === this.flow) {
          c.strokeStyle = colours.ink; c.lineWidth = 2;
          c.strokeRect(x + 1, top + 1, wide - 2, height - 2);
        }
        ++i;
      } else {
        // All that ends within this pixel is one stroke; as faint as it is sparse.
        const beyond = run.span_begin[s] + per_pixel;
        let next = i + 1;
        if (next < lane.length && run.span_end[lane[next]] <= beyond)
          next += first_where(lane.length - next, k => run.span_end[lane[next + k]] > beyond);
        c.fillRect(x, top, Math.max(0.75, wide), height);
        i = next;
      }
    }
  }

  draw_span_text(s, kind, x, end, top, height) {
    const {context: c} = this.surface, run = this.run;
    if (end - x < 46) return;
    const from = run.span_from[s], to = run.span_to[s];
    const own = run.span_names[run.span_name[s]];
    const text = `${own ? `${own} ` : kind === "occupy" ? "" : is_wait(kind) ? "wait " : `${kind} `}${from >= 0 && to >= 0 ? `${from}→${to}` : ""}${run.span_bytes[s] > 0 ? ` ${short_bytes(run.span_bytes[s])}` : ""}`;
    c.font = text_font(10);
    c.textAlign = "left";
    c.textBaseline = "middle";
    if (is_wait(kind)) return;
    c.fillStyle = ink_on[run.colour_of_span(s)] ?? "#fff";
    c.fillText(fitted(c, text.trim().replace(/ +/g, " "), end - x - 8), x + 4, top + height / 2 + 0.5);
  }

  /** A dark line under what the end had to wait for, and thin ones where the path changes rows. */
  draw_critical(scroll) {
    const {context: c} = this.surface, rows = new Map(this.rows.map(row => [row.actor, row]));
    let before = null;
    c.fillStyle = colours.critical;
    c.strokeStyle = colours.critical;
    c.lineWidth = 1;
    c.save();
    c.beginPath(); c.rect(label_width, 0, this.width, this.surface.height); c.clip();
    const path = this.run.critical_path, visible = path.filter(p => p.end_ps >= this.view.from && p.begin_ps <= this.view.to).length;
    const connected = visible * 10 < this.width;  // more of them would only be a grey area
    for (const piece of path) {
      if (piece.end_ps < this.view.from || piece.begin_ps > this.view.to) { before = null; continue; }
      const row = rows.get(piece.actor);
      if (!row) continue;
      const x = this.x_of(piece.begin_ps), y = row.top - scroll + row.height - 3;
      if (before && before.y !== y && connected) { c.globalAlpha = 0.45; c.beginPath(); c.moveTo(x, before.y + 1); c.lineTo(x, y + 1); c.stroke(); c.globalAlpha = 1; }
      c.fillRect(x, y, Math.max(1, this.x_of(piece.end_ps) - x), 3);
      before = {y};
    }
    c.restore();
  }

  draw_cursor(ps, height) {
    const {context: c} = this.surface, x = this.x_of(ps);
    if (x < label_width || x > label_width + this.width + 1) return;
    c.fillStyle = colours.cursor;
    c.fillRect(Math.round(x) - 0.5, axis_height - 6, 1.5, height);
    c.beginPath(); c.moveTo(x - 5, axis_height - 9); c.lineTo(x + 5, axis_height - 9); c.lineTo(x, axis_height - 2); c.fill();
  }

  span_at(ps, y) {
    const row = this.rows.find(r => y >= r.top && y < r.top + r.height);
    if (!row) return null;
    const lanes = this.run.lanes[row.actor], slack = (this.view.to - this.view.from) / this.width * 1.5;
    const pointed = Math.min(lanes.length - 1, Math.max(0, Math.floor((y - row.top - 1) / (row.height - 3) * lanes.length)));
    // Where the pointed lane is idle, the nearest one of the row that is not.
    const nearest = lanes.map((_, i) => i).sort((a, b) => Math.abs(a - pointed) - Math.abs(b - pointed));
    const hit = (lane, i, near) => i >= 0 && i < lane.length && this.run.span_begin[lane[i]] - near <= ps && this.run.span_end[lane[i]] + near >= ps;
    for (const near of [0, slack])
      for (const lane of nearest.map(i => lanes[i])) {
        const i = first_where(lane.length, k => this.run.span_end[lane[k]] > ps), found = [i, i - 1].find(k => hit(lane, k, near));
        if (found !== undefined) return {actor: row.actor, span: lane[found]};
      }
    return {actor: row.actor, span: -1};
  }

  hover(event, ps) {
    const run = this.run, [x, y] = event ? this.surface.point(event) : [0, 0];
    const found = event && x >= label_width && y > axis_height ? this.span_at(ps, y + this.box.scrollTop) : null;
    const flow = found && found.span >= 0 ? run.span_flow[found.span] : -1;
    if (flow !== this.flow) { this.flow = flow; this.hooks.changed(); }
    if (!found) return tooltip.hide();
    const name = run.actors[found.actor].name;
    const critical = this.critical[found.actor].find(p => p.begin_ps <= ps && ps <= p.end_ps);
    if (found.span < 0) return tooltip.show(event, name, `idle at ${time_text(ps)}`, ...(critical ? [`Critical: ${critical.text}`] : []));
    const s = found.span, from = run.span_from[s], to = run.span_to[s];
    tooltip.show(event, `${name}: ${run.name_of_span(s)}`,
      [from >= 0 || to >= 0 ? [from >= 0 ? `from rank ${from}` : "", to >= 0 ? `to rank ${to}` : ""].filter(Boolean).join(" ") : "", run.span_bytes[s] > 0 ? bytes_text(run.span_bytes[s]) : ""].filter(Boolean).join(", ") || "no message",
      `${time_text(run.span_end[s] - run.span_begin[s])}, from ${time_text(run.span_begin[s], 5)} to ${time_text(run.span_end[s], 5)}`,
      ...(run.span_flow[s] >= 0 ? [`message ${run.span_flow[s]}`] : []), ...(critical ? [`Critical: ${critical.text}`] : []));
  }
}

/** Utilisation: actors × pieces of the same window of time. */
class heat_view {
  constructor(run, view, hooks) {
    Object.assign(this, {run, view, hooks});
    const share = new Map(run.utilisation.map(u => [u.actor, u]));
    this.rows = run.actor_order.filter(a => run.lanes[a].length || share.has(a)).map(actor => ({actor, total: share.get(actor)}));
    this.row_height = this.rows.length > 40 ? 10 : 16;
    this.total = axis_height + this.rows.length * this.row_height + 2;
    const shown = Math.min(this.total, hooks.most_height ?? 360);
    this.canvas = element("canvas", {class: "heat", style: `height:${shown}px`, role: "img", "aria-label": "how busy every actor is over time"});
    this.box = element("div", {class: "gantt-box", style: `height:${shown}px`}, this.canvas, element("div", {style: `height:${Math.max(0, this.total - shown)}px`}));
    this.cache = new Map();
  }

  attach() {
    this.surface = new surface(this.canvas, () => { this.cache.clear(); this.hooks.changed(); });
    this.box.addEventListener("scroll", this.hooks.changed);
    handle_time(this.canvas, this.view, {left: label_width, right: right_margin, seek: this.hooks.seek,
      scroll: dy => { this.box.scrollTop += dy; }, hover: (event, ps) => this.hover(event, ps)});
  }

  bins_of(actor) {
    const key = `${this.view.from},${this.view.to}`;
    if (this.cached !== key) { this.cache.clear(); this.cached = key; }
    if (!this.cache.has(actor)) this.cache.set(actor, this.run.busy_bins(actor, this.view.from, this.view.to, this.bins));
    return this.cache.get(actor);
  }

  draw(ps) {
    if (!this.surface.visible) return;
    const {context: c, width, height} = this.surface, scroll = this.box.scrollTop, shades = ramp(colours["heat-0"], colours["heat-1"], colours["heat-2"]).words;
    this.width = Math.max(1, width - label_width - right_margin);
    this.bins = Math.max(8, Math.round(this.width / 5));
    this.surface.clear(colours.panel);
    draw_time_axis(c, this.view, label_width, this.width, axis_height);
    c.textBaseline = "middle";
    c.save();
    c.beginPath(); c.rect(0, axis_height, width, height); c.clip();
    const labels = this.row_height >= 12 ? 1 : 2, cell = this.width / this.bins;
    this.rows.forEach((row, i) => {
      const top = axis_height + i * this.row_height - scroll;
      if (top < -this.row_height || top > height) return;
      const bins = this.bins_of(row.actor);
      for (let b = 0, next; b < this.bins; b = next) {
        const shade = Math.round(bins[b] * 255), x = Math.round(label_width + b * cell);
        for (next = b + 1; next < this.bins && Math.round(bins[next] * 255) === shade;) ++next;
        c.fillStyle = shades[shade];
        c.fillRect(x, top, Math.round(label_width + next * cell) - x, this.row_height - 1);
      }
      if (i % labels) return;
      c.font = text_font(this.row_height >= 12 ? 11 : 10);
      c.textAlign = "right";
      c.fillStyle = colours.ink;
      c.fillText(fitted(c, this.run.actors[row.actor].name, label_width - 64), label_width - 58, top + this.row_height / 2);
      c.fillStyle = colours.soft;
      if (row.total) c.fillText(percent_text(row.total.share), label_width - 8, top + this.row_height / 2);
    });
    c.restore();
    const x = label_width + (ps - this.view.from) / (this.view.to - this.view.from) * this.width;
    c.fillStyle = colours.cursor;
    if (x >= label_width && x <= label_width + this.width + 1) c.fillRect(Math.round(x) - 0.5, axis_height - 4, 1.5, height);
  }

  hover(event, ps) {
    if (!event) return;
    const [x, y] = this.surface.point(event), row = this.rows[Math.floor((y + this.box.scrollTop - axis_height) / this.row_height)];
    if (!row || y < axis_height) return tooltip.hide();
    const total = row.total ? `${percent_text(row.total.share)} of the whole run, ${time_text(row.total.busy_ps)}${row.total.bytes > 0 ? `, ${bytes_text(row.total.bytes)}` : ""}` : "";
    const bin = Math.floor((x - label_width) / this.width * this.bins);
    if (bin < 0 || bin >= this.bins) return tooltip.show(event, this.run.actors[row.actor].name, total);
    tooltip.show(event, `${this.run.actors[row.actor].name}: ${percent_text(this.bins_of(row.actor)[bin])} busy around ${time_text(ps)}`, total);
  }
}
