// Drawings as SVG: what a drawing says to its canvas, written down instead of painted.

/** A number of SVG: hundredths of a pixel are enough. */
const svg_number = value => String(Math.round(value * 100) / 100);

/** Stripes of a job's colour as a pattern of SVG; canvas.js: striped() makes the canvas's. */
function svg_pattern(id, {colour, between, rises, size}) {
  const made = svg_element("pattern", {id, patternUnits: "userSpaceOnUse", width: size, height: size}, svg_element("rect", {width: size, height: size, fill: colour}));
  for (const shift of [-size, 0, size])
    made.append(svg_element("line", {x1: shift - 1, y1: rises ? size + 1 : -1, x2: shift + size + 1, y2: rises ? -1 : size + 1, stroke: between, "stroke-width": 2}));
  return made;
}

/** Takes the place of a canvas's context, as far as the drawings of this page use one. */
class svg_context {
  /** @param measuring a context of a canvas, which knows how wide texts are @param name begins the ids of this drawing */
  constructor(measuring, width, height, name) {
    Object.assign(this, {measuring, name, defs: svg_element("defs"), patterns: new Map(), fillStyle: "#000", strokeStyle: "#000", lineWidth: 1, lineJoin: "miter", globalAlpha: 1,
      font: text_font(10), textAlign: "left", textBaseline: "alphabetic", imageSmoothingEnabled: true, path: "", saved: []});
    this.node = svg_element("svg", {width, height, viewBox: `0 0 ${width} ${height}`, overflow: "hidden"}, this.defs);
    this.into = this.node;
  }

  // -- state ----------------------------------------------------------------------------------------------------------------

  save() {
    const {fillStyle, strokeStyle, lineWidth, lineJoin, globalAlpha, font, textAlign, textBaseline, into} = this;
    this.saved.push({fillStyle, strokeStyle, lineWidth, lineJoin, globalAlpha, font, textAlign, textBaseline, into});
  }
  restore() { Object.assign(this, this.saved.pop()); }
  /** What follows until restore() is cut at the path. */
  clip() {
    const id = `${this.name}clip${this.defs.childNodes.length}`, inside = svg_element("g", {"clip-path": `url(#${id})`});
    this.defs.append(svg_element("clipPath", {id}, svg_element("path", {d: this.path})));
    this.into.append(inside);
    this.into = inside;
  }

  // -- paths ----------------------------------------------------------------------------------------------------------------

  say(command, ...numbers) { this.path += command + numbers.map(svg_number).join(" "); }
  beginPath() { this.path = ""; }
  moveTo(x, y) { this.say("M", x, y); }
  lineTo(x, y) { this.say("L", x, y); }
  quadraticCurveTo(a, b, x, y) { this.say("Q", a, b, x, y); }
  closePath() { this.path += "Z"; }
  rect(x, y, w, h) { this.path += `M${svg_number(x)} ${svg_number(y)}h${svg_number(w)}v${svg_number(h)}h${svg_number(-w)}Z`; }
  roundRect(x, y, w, h, r) {
    const [n, s, e] = [svg_number(r), svg_number(w - 2 * r), svg_number(h - 2 * r)], turn = (dx, dy) => `a${n} ${n} 0 0 1 ${svg_number(dx)} ${svg_number(dy)}`;
    this.path += `M${svg_number(x + r)} ${svg_number(y)}h${s}${turn(r, r)}v${e}${turn(-r, r)}h-${s}${turn(-r, -r)}v-${e}${turn(r, -r)}Z`;
  }
  /** Whole circles. */
  arc(x, y, r) {
    const n = svg_number(r), across = svg_number(2 * r);
    this.path += `M${svg_number(x - r)} ${svg_number(y)}a${n} ${n} 0 1 0 ${across} 0a${n} ${n} 0 1 0 -${across} 0Z`;
  }
  fill() { this.add("path", {d: this.path, ...this.filled()}); }
  stroke() { if (this.path) this.add("path", {d: this.path, ...this.stroked()}); }

  // -- shapes, texts, pictures ------------------------------------------------------------------------------------------------

  fillRect(x, y, width, height) { if (width > 0 && height > 0) this.add("rect", {...this.box(x, y, width, height), ...this.filled()}); }
  strokeRect(x, y, width, height) { this.add("rect", {...this.box(x, y, Math.max(0, width), Math.max(0, height)), ...this.stroked()}); }
  measureText(text) {
    this.measuring.font = this.font;
    return this.measuring.measureText(text);
  }
  fillText(text, x, y) { this.write(text, x, y, this.filled()); }
  strokeText(text, x, y) { this.write(text, x, y, this.stroked()); }
  write(text, x, y, style) {
    const [, weight, size, family] = /^(\d+) ([\d.]+)px (.*)$/.exec(this.font);
    // Not every program that reads SVG knows where the middle of a line is.
    const down = this.textBaseline === "middle" ? 0.3 * size : 0;
    this.add("text", {x: svg_number(x), y: svg_number(y + down), "font-family": family, "font-size": size, "font-weight": weight === "400" ? null : weight,
      "text-anchor": {right: "end", center: "middle"}[this.textAlign], ...style}, text);
  }
  drawImage(image, x, y, width, height) {
    const copy = element("canvas", {width: image.width, height: image.height});
    copy.getContext("2d").drawImage(image, 0, 0);
    this.add("image", {...this.box(x, y, width, height), preserveAspectRatio: "none", href: copy.toDataURL("image/png"),
      style: this.imageSmoothingEnabled ? null : "image-rendering:pixelated"});
  }

  // -- as attributes ----------------------------------------------------------------------------------------------------------

  box(x, y, width, height) { return {x: svg_number(x), y: svg_number(y), width: svg_number(width), height: svg_number(height)}; }
  paint(style) {
    const stripes = stripes_of.get(style);
    if (!stripes) return style;
    if (!this.patterns.has(style)) {
      this.patterns.set(style, `${this.name}stripes${this.patterns.size}`);
      this.defs.append(svg_pattern(this.patterns.get(style), stripes));
    }
    return `url(#${this.patterns.get(style)})`;
  }
  filled() { return {fill: this.paint(this.fillStyle), ...this.faint()}; }
  stroked() {
    return {fill: "none", stroke: this.paint(this.strokeStyle), "stroke-width": this.lineWidth === 1 ? null : svg_number(this.lineWidth),
      "stroke-linejoin": this.lineJoin === "miter" ? null : this.lineJoin, ...this.faint()};
  }
  faint() { return this.globalAlpha < 1 ? {opacity: svg_number(this.globalAlpha)} : {}; }
  add(tag, attributes, ...children) {
    this.into.append(svg_element(tag, Object.fromEntries(Object.entries(attributes).filter(([, value]) => value !== null && value !== undefined)), ...children));
  }
}
