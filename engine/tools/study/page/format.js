"use strict";
// Numbers, times and names as people read them. Times are integer picoseconds throughout; 2^53 ps are two and a half hours.

const time_units = [[1e12, "s"], [1e9, "ms"], [1e6, "µs"], [1e3, "ns"], [1, "ps"]];

/** Four significant digits unless told otherwise, no exponent. */
function number_text(value, digits = 4) {
  if (!Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  const before = Math.floor(Math.log10(Math.abs(value))) + 1;
  return value.toFixed(Math.max(0, Math.min(12, digits - Math.max(before, before <= 0 ? before : 1))));
}

function time_text(ps, digits = 4) {
  if (!Number.isFinite(ps)) return "–";
  if (ps === 0) return "0\u00a0µs";
  const [size, unit] = time_units.find(([least]) => Math.abs(ps) >= least) ?? time_units[4];
  return `${number_text(ps / size, digits)}\u00a0${unit}`;  // never broken across lines
}

/** One unit for a whole axis, by its span. */
function time_unit(ps) { return time_units.find(([least]) => ps >= least) ?? time_units[4]; }

function bytes_text(bytes) {
  for (const [size, unit] of [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]])
    if (bytes >= size) return `${number_text(bytes / size, 4).replace(/\.0+$/, "")}\u00a0${unit}`;
  return `${bytes}\u00a0B`;
}

/** As on the command line: 64K, 8M. */
function short_bytes(bytes) {
  for (const [size, unit] of [[2 ** 30, "G"], [2 ** 20, "M"], [2 ** 10, "K"]])
    if (bytes >= size && bytes % (size / 4) === 0) return `${bytes / size}${unit}`;
  return String(bytes);
}

function percent_text(share) { return `${number_text(100 * share, share >= 0.1 ? 3 : 2)}\u00a0%`; }

function plural(count, word) { return `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`; }

/** 0–3, 7, 9–11 */
function ranges_text(sorted) {
  const out = [];
  for (let i = 0; i < sorted.length;) {
    let j = i;
    while (j + 1 < sorted.length && sorted[j + 1] === sorted[j] + 1) ++j;
    out.push(j > i + 1 ? `${sorted[i]}–${sorted[j]}` : j > i ? `${sorted[i]}, ${sorted[j]}` : `${sorted[i]}`);
    i = j + 1;
  }
  return out.join(", ");
}

const kind_words = {
  send: "send", reduce: "reduce", copy: "copy", wait_chunk: "wait for a chunk", wait_credit: "wait for a credit",
  occupy: "occupied", launch: "launch", sync: "synchronise", compute: "compute", call: "a call", next_call: "the next call of the round",
};
const kind_spent = {
  send: "sending", reduce: "reducing", copy: "copying", wait_chunk: "waiting for chunks", wait_credit: "waiting for credits",
  occupy: "occupied", launch: "launching", sync: "synchronising", compute: "computing", call: "in calls",
};
const actor_words = {
  rank: "ranks", link: "links", ring_segment: "ring segments", dma: "DMA engines", nic: "NICs", switch: "switches",
  pcie: "PCIe", core: "cores", job: "jobs", node: "loads and stores of nodes",
};
/** Of a critical path: what is spent in hardware of a kind, and its colour. */
const actor_spent = {
  link: ["on links", "occupy"], ring_segment: ["on ring segments", "s4"], dma: ["in DMA engines", "s7"], nic: ["in NICs", "s3"],
  switch: ["in switches", "s2"], pcie: ["on PCIe", "s5"], core: ["in cores", "compute"],
};
/** Of a replay's critical path, in the words of its table: what is spent, and its colour. */
const replay_spent = {
  compute: ["compute", "compute"], collective: ["collective", "call"], message: ["message", "send"], queue: ["queue", "wait_credit"], core: ["core", "wait_chunk"],
  memory: ["memory", "copy"], launch: ["launches", "launch"], sync: ["syncs", "sync"],
};
/** The name of the colour of a job's messages on the elements that it shares with others. Behind the plain colours come stripes of them, one way and
 *  the other; more jobs than that have one in common with others. */
const plain_job_colours = 18, job_colours = 3 * plain_job_colours;
const job_colour = job => `job-${job % job_colours}`;
/** A wait is no work: it leaves its actor idle. */
const is_wait = kind => kind === "wait_chunk" || kind === "wait_credit";

/** element("div", {class: "x", onclick: f}, child, "text", …) */
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

function svg_element(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** First index for which `beyond(index)` holds; it must hold for all later ones. */
function first_where(count, beyond) {
  let low = 0, high = count;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (beyond(middle)) high = middle; else low = middle + 1;
  }
  return low;
}

/** About `wanted` round numbers from `from` to `to`. */
function round_ticks(from, to, wanted) {
  const raw = (to - from) / Math.max(1, wanted);
  if (!(raw > 0)) return [from];
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map(f => f * power).find(s => s >= raw * 0.999);
  const ticks = [];
  for (let i = Math.ceil(from / step - 1e-9); i * step <= to + step * 1e-9; ++i) ticks.push(i * step);
  return ticks;
}
