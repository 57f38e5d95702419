// What all drawings share: a canvas that fits its box and the screen's pixels, the page's colours, and the tooltip.

const colours = {};

/** From the style sheet, so that light and dark are decided in one place. */
function read_colours() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["paper", "panel", "ink", "soft", "faint", "line", "grid", "accent", "complete", "empty", "part-low", "part-high",
    "heat-0", "heat-1", "heat-2", "critical", "cursor", "send", "reduce", "copy", "wait_chunk", "wait_credit", "occupy", "launch", "sync",
    "compute", "call", "next_call", "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7"])
    colours[name] = style.getPropertyValue(`--${name}`).trim();
  for (let job = 0; job < job_colours; ++job) {
    const colour = style.getPropertyValue(`--j${job % plain_job_colours}`).trim(), stripes = Math.floor(job / plain_job_colours), name = job_colour(job);
    colours[name] = stripes ? striped(colour, colours.panel, stripes === 1) : colour;
    ink_on[name] = luminance(colour) > 0.3 ? "#111" : "#fff";
    document.documentElement.style.setProperty(`--${name}`, stripes ? `repeating-linear-gradient(${stripes === 1 ? -45 : 45}deg, ${colour} 0 3px, ${colours.panel} 3px 5px)` : colour);
  }
}

/** What is written on a colour that has a name. */
const ink_on = {compute: "#111", occupy: "#111", launch: "#111"};

/** What a striped fill is made of, for those who cannot use a canvas's. */
const stripes_of = new WeakMap();

/** A fill for canvases: stripes from corner to corner. */
function striped(colour, between, rises) {
  const tile = document.createElement("canvas"), size = 7;
  tile.width = tile.height = size;
  const c = tile.getContext("2d");
  c.fillStyle = colour;
  c.fillRect(0, 0, size, size);
  c.strokeStyle = between; c.lineWidth = 2;
  for (const shift of [-size, 0, size]) {  // what leaves a tile comes into the next one
    c.beginPath();
    if (rises) { c.moveTo(shift - 1, size + 1); c.lineTo(shift + size + 1, -1); } else { c.moveTo(shift - 1, -1); c.lineTo(shift + size + 1, size + 1); }
    c.stroke();
  }
  const made = c.createPattern(tile, "repeat");
  stripes_of.set(made, {colour, between, rises, size});
  return made;
}

/** From 0, black, to 1, white (WCAG). */
function luminance(hex) {
  const [r, g, b] = rgb_of(hex).map(v => v / 255).map(v => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function rgb_of(hex) { return [1, 3, 5].map(i => parseInt(hex.slice(i, i + 2), 16)); }

/** 256 colours between the given ones, as "rgb(…)" and as little-endian pixels. */
function ramp(...stops) {
  const points = stops.map(rgb_of), words = [], pixels = new Uint32Array(256);
  for (let i = 0; i < 256; ++i) {
    const at = i / 255 * (points.length - 1), k = Math.min(points.length - 2, Math.floor(at)), f = at - k;
    const [r, g, b] = points[k].map((v, c) => Math.round(v + (points[k + 1][c] - v) * f));
    words.push(`rgb(${r},${g},${b})`);
    pixels[i] = (255 << 24 | b << 16 | g << 8 | r) >>> 0;
  }
  return {words, pixels};
}

const text_font = (size, weight = 400) => `${weight} ${size}px "Inter", "Segoe UI", "Helvetica Neue", "DejaVu Sans", Arial, sans-serif`;

/** A canvas and its 2D context in CSS pixels. `changed` is called when its box has another size. */
class surface {
  constructor(canvas, changed) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    new ResizeObserver(() => { this.fit(); changed(); }).observe(canvas);
    // What is out of sight keeps its old picture until it comes into sight again.
    this.visible = true;
    new IntersectionObserver(([entry]) => { this.visible = entry.isIntersecting; if (this.visible) changed(); }, {rootMargin: "100px"}).observe(canvas);
    window.addEventListener("beforeprint", () => { this.visible = true; });
    this.fit();
  }
  fit() {
    const box = this.canvas.getBoundingClientRect(), scale = window.devicePixelRatio || 1;
    this.width = Math.max(1, Math.round(box.width));
    this.height = Math.max(1, Math.round(box.height));
    const [w, h] = [Math.round(this.width * scale), Math.round(this.height * scale)];
    if (this.canvas.width !== w || this.canvas.height !== h) [this.canvas.width, this.canvas.height] = [w, h];
    this.context.setTransform(scale, 0, 0, scale, 0, 0);
  }
  clear(colour) {
    this.context.fillStyle = colour;
    this.context.fillRect(0, 0, this.width, this.height);
  }
  point(event) {
    const box = this.canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }
}

const tooltip = {
  show(event, ...lines) {
    const box = document.getElementById("tooltip");
    box.replaceChildren(...lines.map((line, i) => element("div", {class: i ? "more" : "first"}, line)));
    box.hidden = false;
    const {width, height} = box.getBoundingClientRect();
    const x = event.clientX + 14 + width > innerWidth ? event.clientX - width - 10 : event.clientX + 14;
    const y = event.clientY + 14 + height > innerHeight - 60 ? event.clientY - height - 10 : event.clientY + 14;
    box.style.transform = `translate(${Math.max(2, x)}px, ${Math.max(2, y)}px)`;
  },
  hide() { document.getElementById("tooltip").hidden = true; },
};

/** Shortens a text until it fits. */
function fitted(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let length = text.length;
  while (length > 1 && context.measureText(`${text.slice(0, length)}…`).width > width) --length;
  return length > 1 ? `${text.slice(0, length)}…` : "";
}
