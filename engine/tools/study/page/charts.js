// Curves of sweeps and of rows, as SVG.

/** A series: {name, points: [[x, y], …], colour, dashed}. Axes: {label, text(value), log, ticks(low, high)}. */
class line_chart {
  constructor(title, series, x_axis, y_axis) {
    Object.assign(this, {title, x_axis, y_axis});
    this.series = series.filter(s => s.points.length);
    this.width = 400;
    this.height = 235;
    this.box = {left: 58, right: 12, top: 10, bottom: 40};
    this.node = element("figure", {class: "chart"}, element("figcaption", {}, title));
    this.draw();
  }

  scale(axis, values, from, to) {
    let low = Math.min(...values), high = Math.max(...values);
    const log = low > 0 && (axis.log || high / low >= 20);
    if (!log) { low = axis.from_zero ? Math.min(0, low) : low; if (high === low) high = low + (Math.abs(low) || 1); else if (axis.from_zero) high += (high - low) * 0.04; }
    else if (high === low) { low /= 2; high *= 2; }
    const f = log ? Math.log : v => v;
    const at = v => from + (f(v) - f(low)) / (f(high) - f(low)) * (to - from);
    return {low, high, log, at};
  }

  draw() {
    const {box, width, height} = this, all = this.series.flatMap(s => s.points);
    const x = this.x = this.scale(this.x_axis, all.map(p => p[0]), box.left + 8, width - box.right - 8);
    const y = this.y = this.scale({from_zero: true, ...this.y_axis}, all.map(p => p[1]), height - box.bottom, box.top + 6);
    const svg = svg_element("svg", {viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": this.title});
    for (const tick of this.ticks(y, this.y_axis, 6)) {
      svg.append(svg_element("line", {class: "grid", x1: box.left, x2: width - box.right, y1: y.at(tick), y2: y.at(tick)}),
        svg_element("text", {class: "tick", x: box.left - 6, y: y.at(tick) + 4, "text-anchor": "end"}, this.y_axis.text(tick)));
    }
    let last = -Infinity;
    for (const tick of this.ticks(x, this.x_axis, 8)) {
      if (x.at(tick) - last < 36) continue;
      last = x.at(tick);
      svg.append(svg_element("line", {class: "grid", x1: last, x2: last, y1: box.top, y2: height - box.bottom}),
        svg_element("text", {class: "tick", x: last, y: height - box.bottom + 16, "text-anchor": "middle"}, this.x_axis.text(tick)));
    }
    svg.append(svg_element("text", {class: "axis", x: (box.left + width - box.right) / 2, y: height - 4, "text-anchor": "middle"}, this.x_axis.label),
      svg_element("text", {class: "axis", x: 12, y: box.top + 4, "text-anchor": "middle", transform: `rotate(-90 12 ${(box.top + height - box.bottom) / 2}) translate(0 ${(height - box.bottom - box.top) / 2 - 4})`}, this.y_axis.label + (y.log ? " (log)" : "")));
    const ruler = svg_element("line", {class: "ruler", y1: box.top, y2: height - box.bottom, visibility: "hidden"});
    svg.append(ruler);
    this.series.forEach((s, i) => this.draw_series(svg, s, i));
    const area = svg_element("rect", {x: box.left, y: box.top, width: width - box.left - box.right, height: height - box.top - box.bottom, fill: "transparent"});
    area.addEventListener("mousemove", e => this.hover(e, svg, ruler));
    area.addEventListener("mouseleave", () => { ruler.setAttribute("visibility", "hidden"); tooltip.hide(); });
    svg.append(area);
    this.node.append(svg, this.legend());
  }

  draw_series(svg, s, i) {
    const at = ([a, b]) => `${this.x.at(a).toFixed(1)},${this.y.at(b).toFixed(1)}`, sorted = [...s.points].sort((a, b) => a[0] - b[0]);
    svg.append(svg_element("polyline", {class: "series", points: sorted.map(at).join(" "), stroke: series_colour(s, i), "stroke-dasharray": series_dash(s, i)}));
    if (sorted.length <= 40 && !s.dashed)
      for (const point of sorted) svg.append(svg_element("circle", {cx: this.x.at(point[0]), cy: this.y.at(point[1]), r: 2.6, fill: series_colour(s, i)}));
  }

  legend() {
    return element("div", {class: "legend"}, ...this.series.map((s, i) => {
      const line = svg_element("svg", {viewBox: "0 0 22 8", class: "key"},
        svg_element("line", {x1: 0, x2: 22, y1: 4, y2: 4, class: "series", stroke: series_colour(s, i), "stroke-dasharray": series_dash(s, i)}));
      return element("span", {}, line, s.name);
    }));
  }

  ticks(scale, axis, wanted) {
    if (axis.ticks) return axis.ticks(scale.low, scale.high, wanted);
    if (!scale.log) return round_ticks(scale.low, scale.high, wanted);
    const decades = Math.log10(scale.high / scale.low), factors = decades > 4 ? [1] : decades > 1.7 ? [1, 3] : [1, 2, 5], out = [];
    for (let power = 10 ** Math.floor(Math.log10(scale.low)); power <= scale.high; power *= 10)
      for (const f of factors) if (f * power >= scale.low * 0.999 && f * power <= scale.high * 1.001) out.push(f * power);
    return out.length > 1 ? out : [scale.low, scale.high];
  }

  hover(event, svg, ruler) {
    const box = svg.getBoundingClientRect(), at = (event.clientX - box.left) / box.width * this.width;
    const all = [...new Set(this.series.flatMap(s => s.points.map(p => p[0])))];
    const x = all.reduce((best, v) => Math.abs(this.x.at(v) - at) < Math.abs(this.x.at(best) - at) ? v : best, all[0]);
    ruler.setAttribute("x1", this.x.at(x));
    ruler.setAttribute("x2", this.x.at(x));
    ruler.setAttribute("visibility", "visible");
    const values = this.series.map(s => [s, s.points.find(p => p[0] === x)]).filter(([, p]) => p);
    tooltip.show(event, `${this.x_axis.label}: ${this.x_axis.text(x)}`, ...values.map(([s, p]) => `${s.name}: ${this.y_axis.value(p[1])}`));
  }
}

const series_colour = (s, i) => s.colour ?? `var(--s${i % 8})`;
const series_dash = (s, i) => (s.dashed ? "5 4" : i >= 8 ? "2 3" : "none");

const bytes_axis = {
  label: "bytes", log: true, text: short_bytes,
  ticks: (low, high, wanted) => {
    const first = Math.ceil(Math.log2(low) - 1e-9), last = Math.floor(Math.log2(high) + 1e-9);
    const step = Math.max(1, Math.ceil((last - first) / wanted)), out = [];
    for (let p = first; p <= last; p += step) out.push(2 ** p);
    return out.length ? out : [low];
  },
};
const measures = {
  busbw: {label: "busbw, GB/s", text: v => number_text(v, 3).replace(/\.0+$/, ""), value: v => `${number_text(v)} GB/s`},
  time_us: {label: "time, µs", text: v => (v >= 1000 ? v.toLocaleString("en") : number_text(v, v < 1 ? 2 : 3).replace(/\.0+$/, "")), value: v => time_text(v * 1e6)},
};

/** Times or bandwidths of the rows by size, with the bound where there is one. */
function rows_chart(runs, measure) {
  const series = [];
  runs.forEach((run, i) => {
    const colour = `var(--s${i})`, name = run.letter || (measure === "busbw" ? "bus bandwidth" : "time");
    series.push({name, colour, points: run.rows.map(r => [r.bytes, r[measure]])});
    const bound = run.rows.filter(r => r.bound_us > 0 && r.time_us > 0)
      .map(r => [r.bytes, measure === "busbw" ? r.busbw * r.time_us / r.bound_us : r.bound_us]);
    if (bound.length > 1) series.push({name: `${run.letter ? `${run.letter}, ` : ""}bound`, colour, dashed: true, points: bound});
  });
  return new line_chart(measure === "busbw" ? "Bus bandwidth by size" : "Time by size", series, bytes_axis, measures[measure]);
}

/** One sweep of one key, of all runs that have it. By size if there are several, else by the swept value. */
function sweep_chart(key, runs, measure) {
  const swept = runs.flatMap(run => run.sweeps.filter(s => s.key === key).map(s => ({run, points: s.points})));
  const points = swept.flatMap(s => s.points), sizes = [...new Set(points.map(p => p.bytes))], values = [...new Set(points.map(p => p.value))];
  const prefix = run => (run.letter ? `${run.letter}, ` : "");
  const title = `${measure === "busbw" ? "Bus bandwidth" : "Time"} as ${key} changes`;
  if (sizes.length > 1 && sizes.length >= values.length) {
    const series = swept.flatMap(s => values.map(v => ({name: `${prefix(s.run)}${key} = ${v}`, points: s.points.filter(p => p.value === v).map(p => [p.bytes, p[measure]])})));
    return new line_chart(title, series, bytes_axis, measures[measure]);
  }
  const numbers = values.map(numeric_value), is_numeric = numbers.every(Number.isFinite);
  const x_of = v => (is_numeric ? numeric_value(v) : values.indexOf(v));
  const written = new Map(values.map(v => [x_of(v), v]));
  const axis = {label: key, text: v => written.get(v) ?? number_text(v), ticks: () => [...written.keys()].sort((a, b) => a - b)};
  const series = swept.flatMap(s => sizes.map(size => ({name: `${prefix(s.run)}${bytes_text(size)}`, points: s.points.filter(p => p.bytes === size).map(p => [x_of(p.value), p[measure]])})));
  return new line_chart(title, series, axis, measures[measure]);
}

/** 12, 1.5, 64K, 50us; NaN for words. */
function numeric_value(text) {
  const found = /^([\d.]+)\s*([KMG]i?B?|[nuµm]?s)?$/.exec(text);
  const factor = {K: 2 ** 10, M: 2 ** 20, G: 2 ** 30, n: 1e-9, u: 1e-6, "µ": 1e-6, m: 1e-3, s: 1};
  return found ? Number(found[1]) * (found[2] ? factor[found[2][0]] : 1) : NaN;
}
