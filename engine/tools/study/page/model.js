// One run as the views need it: columns instead of rows, sorted once, so that a frame costs what is visible, not what there is.

const reducing = new Set(["all_reduce", "reduce_scatter", "reduce", "reduce_scatter_v"]);
const actor_order = ["job", "rank", "node", "core", "dma", "ring_segment", "pcie", "link", "nic", "switch"];
/** States of cells beyond this are not followed; 4 million are 16 MB and 20 ms a frame. */
const most_cell_states = 4e6;

/** The document as one of its rows: each has what the first one shown has. Another size, or none: as it is. */
function at_size(doc, bytes) {
  if (doc.bytes === bytes || !Array.isArray(doc.sizes)) return doc;
  const found = doc.sizes.find(size => size.bytes === bytes);
  return found ? {...doc, ...found} : doc;
}

class study_run {
  /** Of the whole document, one size's row. */
  constructor(whole, letter, bytes = NaN) {
    const doc = at_size(whole, bytes);
    this.document = whole;
    const list = name => (Array.isArray(doc[name]) ? doc[name] : []);
    this.doc = doc;
    this.letter = letter;
    this.title = doc.title || [doc.choreography, doc.collective].filter(Boolean).join(" ") || "study";
    this.scenario = doc.scenario ?? {};
    this.ranks = doc.ranks | 0;
    this.actors = list("actors");
    this.jobs = list("jobs");  // not empty: several ran at the same time; there are no rows, and nothing is known of single messages but on the elements that jobs share
    this.rows = list("rows");
    this.utilisation = list("utilisation");
    this.critical_path = list("critical_path");
    this.sweeps = list("sweeps");
    this.span_kinds = doc.span_kinds ?? ["send", "reduce", "copy", "wait_chunk", "wait_credit", "occupy", "launch", "sync", "compute"];
    this.blocks = Math.max(0, doc.blocks | 0);
    this.parts = Math.max(1, doc.parts | 0);
    this.cells = this.blocks * this.parts;
    this.read_spans(list("spans"));
    this.read_moves(list("moves"));
    const last = (column) => column.reduce((most, value) => Math.max(most, value), 0);
    this.end_ps = doc.end_ps || Math.max(last(this.span_end), last(this.move_end), 1);
    this.journey = this.move_count ? follow_contributions(this) : null;
    this.row = this.rows[doc.row] ?? this.rows.findLast(row => row.bytes === doc.bytes) ?? this.rows[this.rows.length - 1] ?? null;
  }

  get label() { return this.letter ? `${this.letter} · ${this.title}` : this.title; }

  cell_name(cell) {
    const block = Math.floor(cell / this.parts), part = cell % this.parts;
    if (this.doc.collective?.startsWith("all_to_all") && this.blocks === this.ranks * this.ranks) {
      const pair = `block ${Math.floor(block / this.ranks)}→${block % this.ranks}`;
      return this.parts > 1 ? `${pair} part ${part}` : pair;
    }
    if (this.blocks === 1) return this.parts > 1 ? `part ${part}` : "the block";
    return this.parts > 1 ? `block ${block} part ${part}` : `block ${block}`;
  }

  /** Columns, and for every actor its spans in lanes: in a lane none overlaps another, so begins and ends both ascend. */
  read_spans(rows) {
    const n = rows.length;
    this.span_count = n;
    this.span_begin = new Float64Array(n);
    this.span_end = new Float64Array(n);
    this.span_kind = new Uint8Array(n);
    this.span_actor = new Int32Array(n);
    this.span_from = new Int32Array(n);
    this.span_to = new Int32Array(n);
    this.span_bytes = new Float64Array(n);
    this.span_flow = new Int32Array(n);
    this.span_names = Array.isArray(this.doc.span_names) ? this.doc.span_names : [];
    this.span_name = new Int32Array(n);
    rows.forEach(([actor, begin, end, kind, from, to, bytes, flow, name = -1], i) => {
      this.span_name[i] = name;
      this.span_actor[i] = actor; this.span_begin[i] = begin; this.span_end[i] = end; this.span_kind[i] = kind;
      this.span_from[i] = from; this.span_to[i] = to; this.span_bytes[i] = bytes; this.span_flow[i] = flow;
    });
    const order = Uint32Array.from({length: n}, (_, i) => i);
    order.sort((a, b) => this.span_begin[a] - this.span_begin[b] || this.span_end[b] - this.span_end[a]);
    this.lanes = this.actors.map(() => []);
    for (const i of order) {
      const lanes = this.lanes[this.span_actor[i]];
      if (!lanes) continue;
      let lane = lanes.find(l => this.span_end[l[l.length - 1]] <= this.span_begin[i]);
      if (!lane) lanes.push(lane = []);
      lane.push(i);
    }
    this.actor_order = this.actors.map((_, i) => i).sort((a, b) => {
      const place = actor => (actor_order.indexOf(actor.kind) + 1 || 99);
      const [x, y] = [this.actors[a], this.actors[b]];
      return place(x) - place(y) || (x.kind === "rank" ? x.rank - y.rank : 0) || a - b;
    });
  }

  read_moves(all) {
    // A token moves no cell.
    const rows = all.filter(([, from, to, , , block, part]) => from >= 0 && from < this.ranks && to >= 0 && to < this.ranks &&
      block >= 0 && block < this.blocks && part >= 0 && part < this.parts);
    const n = rows.length;
    this.move_count = n;
    this.only_tokens = all.length > 0 && n === 0;
    this.move_flow = new Int32Array(n);
    this.move_from = new Int32Array(n);
    this.move_to = new Int32Array(n);
    this.move_begin = new Float64Array(n);
    this.move_end = new Float64Array(n);
    this.move_cell = new Int32Array(n);
    this.move_bytes = new Float64Array(n);
    this.move_reduces = new Uint8Array(n);
    this.longest_move = 0;
    this.largest_move = 1;
    rows.forEach(([flow, from, to, begin, end, block, part, bytes, reduces], i) => {
      this.move_flow[i] = flow; this.move_from[i] = from; this.move_to[i] = to; this.move_begin[i] = begin; this.move_end[i] = end;
      this.move_cell[i] = block * this.parts + part; this.move_bytes[i] = bytes; this.move_reduces[i] = reduces ? 1 : 0;
      this.longest_move = Math.max(this.longest_move, end - begin);
      this.largest_move = Math.max(this.largest_move, bytes);
    });
    const sorted = column => Uint32Array.from({length: n}, (_, i) => i).sort((a, b) => column[a] - column[b] || a - b);
    this.moves_by_begin = sorted(this.move_begin);
    this.moves_by_end = sorted(this.move_end);
    const times = new Set(this.move_count ? [...this.move_begin, ...this.move_end] : [...this.span_begin, ...this.span_end]);
    this.event_times = Float64Array.from(times).sort();
  }

  /** Calls see(move) for every message under way at `ps`. */
  in_flight(ps, see) {
    const order = this.moves_by_begin;
    let i = first_where(this.move_count, k => this.move_begin[order[k]] >= ps - this.longest_move);
    for (; i < this.move_count && this.move_begin[order[i]] <= ps; ++i)
      if (this.move_end[order[i]] > ps) see(order[i]);
  }

  /** How many messages are under way in each of `bins` equal pieces of [0, end_ps]; where there are none, as of jobs, how many actors do something. */
  activity(bins) {
    const out = new Float64Array(bins), width = this.end_ps / bins;
    for (let m = 0; m < this.move_count; ++m) spread(this.move_begin[m], this.move_end[m], 0, width, out);
    if (this.move_count) return out;
    for (let s = 0; s < this.span_count; ++s)
      if (!is_wait(this.span_kinds[this.span_kind[s]])) spread(this.span_begin[s], this.span_end[s], 0, width, out);
    return out;
  }

  /** Share of its time that each piece of [from, to] is busy, over all lanes of the actor, at most 1. */
  busy_bins(actor, from, to, bins) {
    const out = new Float32Array(bins), width = (to - from) / bins;
    for (const lane of this.lanes[actor]) {
      let i = first_where(lane.length, k => this.span_end[lane[k]] > from);
      for (; i < lane.length && this.span_begin[lane[i]] < to; ++i)
        if (!is_wait(this.span_kinds[this.span_kind[lane[i]]])) spread(this.span_begin[lane[i]], this.span_end[lane[i]], from, width, out);
    }
    for (let i = 0; i < bins; ++i) out[i] = Math.min(1, out[i]);
    return out;
  }

  /** The name of a span's colour: its kind's; where jobs share an element, the job's. */
  colour_of_span(s) {
    const kind = this.span_kinds[this.span_kind[s]];
    return kind === "occupy" && this.span_name[s] >= 0 && this.span_name[s] < this.jobs.length ? job_colour(this.span_name[s]) : kind;
  }

  /** What a span is called: by its own name, or by its kind's words. */
  name_of_span(s) {
    const kind = this.span_kinds[this.span_kind[s]];
    return this.span_names[this.span_name[s]] ?? kind_words[kind] ?? kind;
  }

  /** Picoseconds of all actors by what their spans are called, most first: [[name, kind, ps, how many], …]. */
  time_by_name() {
    const all = new Map();
    for (let s = 0; s < this.span_count; ++s) {
      const name = this.name_of_span(s), old = all.get(name) ?? [name, this.span_kinds[this.span_kind[s]], 0, 0];
      old[2] += this.span_end[s] - this.span_begin[s];
      ++old[3];
      all.set(name, old);
    }
    return [...all.values()].sort((a, b) => b[2] - a[2]);
  }

  /** Picoseconds of the critical path by what they were spent on, largest first: [[words, colour name, ps], …]. */
  critical_shares() {
    const spent = new Map();
    for (const piece of this.critical_path) {
      const [words, colour] = this.spent_on(piece);
      const old = spent.get(words);
      spent.set(words, [words, colour, (old ? old[2] : 0) + piece.end_ps - piece.begin_ps]);
    }
    return [...spent.values()].sort((a, b) => b[2] - a[2]);
  }

  spent_on({actor, begin_ps, end_ps, spent}) {
    if (spent === "travel") return ["with messages on their way", "wait_chunk"];
    if (this.doc.timeline && replay_spent[spent]) return replay_spent[spent];
    const who = this.actors[actor];
    if (!who) return ["elsewhere", "sync"];
    if (who.kind === "rank" && spent === "queue") return ["waiting for a core", "wait_credit"];
    if (who.kind !== "rank") return actor_spent[who.kind] ?? [`in ${who.kind}`, "sync"];
    // A wait that lies under work of half the time is only the work's other side.
    const overlap = new Map();
    for (const lane of this.lanes[actor]) {
      let i = first_where(lane.length, k => this.span_end[lane[k]] > begin_ps);
      for (; i < lane.length && this.span_begin[lane[i]] < end_ps; ++i) {
        const shared = Math.min(end_ps, this.span_end[lane[i]]) - Math.max(begin_ps, this.span_begin[lane[i]]);
        const kind = this.span_kinds[this.span_kind[lane[i]]];
        overlap.set(kind, (overlap.get(kind) ?? 0) + shared);
      }
    }
    const sorted = [...overlap].sort((a, b) => b[1] - a[1]);
    const [kind] = sorted.find(([k, ps]) => !is_wait(k) && ps * 2 >= end_ps - begin_ps) ?? sorted[0] ?? [null];
    return kind ? [kind_spent[kind] ?? kind, kind] : ["in ranks", "send"];
  }

  /** Ranks in a row of a torus or a mesh, whose sides the machine says, those of neighbouring numbers first; of three sides so that the picture is about as wide as high. 0: on circles. */
  get columns() {
    const sides = Array.isArray(this.doc.sides) ? this.doc.sides : [];
    if (sides.length < 2 || sides.reduce((a, b) => a * b) !== this.ranks) return 0;
    const unlike = columns => Math.abs(Math.log(columns * columns / this.ranks));
    return sides.length > 2 && unlike(sides[0] * sides[1]) <= unlike(sides[0]) ? sides[0] * sides[1] : sides[0];
  }

  /** Ranks by server, as the scenario's layout or the ranks' names tell; one nameless group if neither does. */
  groups() {
    const all = Array.from({length: this.ranks}, (_, r) => r);
    const named = new Map();
    for (const actor of this.actors) {
      const found = actor.kind === "rank" && /\b(server|node|host|card)[ _#]*(\d+)/i.exec(actor.name);
      if (found) {
        const name = `${found[1].toLowerCase()} ${found[2]}`;
        named.set(name, [...(named.get(name) ?? []), actor.rank]);
      }
    }
    const from_names = [...named].map(([name, ranks]) => ({name, ranks}));
    if (from_names.length > 1 && from_names.flatMap(g => g.ranks).length === this.ranks) return from_names;
    const key = Object.keys(this.scenario).find(k => /(^|[._])layout$/.test(k) && /^\d+([x+]\d+)+$/.test(this.scenario[k]));
    if (key) {
      const text = this.scenario[key];
      const sizes = text.includes("+") ? text.split("+").map(Number)
        : [text.split("x").map(Number)].flatMap(([first, ...inner]) => Array(first).fill(inner.reduce((a, b) => a * b, 1)));
      let next = 0;
      const groups = sizes.map((size, i) => ({name: `server ${i}`, ranks: all.slice(next, next += size)})).filter(g => g.ranks.length);
      if (groups.length > 1 && next >= this.ranks) return groups;
    }
    return [{name: "", ranks: all}];
  }
}

/** Adds to each bin the share of it that [begin, end) covers. */
function spread(begin, end, from, width, out) {
  const a = Math.max(0, (begin - from) / width), b = Math.min(out.length, (end - from) / width);
  for (let i = Math.floor(a); i < b; ++i) out[i] += Math.min(b, i + 1) - Math.max(a, i);
}

/**
 * Which ranks' contributions every cell of every rank holds, at every time. A message carries what its sender held when it began.
 * A long cell travels in slices: the k-th message of a cell between two ranks is its k-th slice, and each slice has a state of its
 * own. Returns null if that is too much to follow.
 *
 * States are ids of sets (bit masks, kept once). Every arrival is a list of (state, id before, id after), so that time can run both
 * ways at the price of the arrivals passed.
 */
function follow_contributions(run) {
  const {ranks, cells, move_count} = run;
  const slices = new Int32Array(cells).fill(1), seen = new Map(), occurrence = new Int32Array(move_count);
  const key_of = m => ((run.move_from[m] * ranks + run.move_to[m]) * cells + run.move_cell[m]) * 2 + run.move_reduces[m];
  for (const m of run.moves_by_begin) {
    const key = key_of(m), count = seen.get(key) ?? 0;
    occurrence[m] = count;
    seen.set(key, count + 1);
    slices[run.move_cell[m]] = Math.max(slices[run.move_cell[m]], count + 1);
  }
  const first_slice = new Int32Array(cells + 1);
  for (let c = 0; c < cells; ++c) first_slice[c + 1] = first_slice[c] + slices[c];
  const per_rank = first_slice[cells];
  if (per_rank * ranks > most_cell_states) return null;

  const sets = [0n], sizes = [0], ids = new Map([[0n, 0]]), unions = new Map();
  const intern = set => {
    let id = ids.get(set);
    if (id === undefined) {
      ids.set(set, id = sets.length);
      sets.push(set);
      let size = 0;
      for (let rest = set; rest; rest &= rest - 1n) ++size;
      sizes.push(size);
    }
    return id;
  };
  const unite = (a, b) => {
    if (a === b || b === 0) return a;
    if (a === 0) return b;
    const key = a < b ? a * 4294967296 + b : b * 4294967296 + a;
    let id = unions.get(key);
    if (id === undefined) unions.set(key, id = intern(sets[a] | sets[b]));
    return id;
  };
  const alone = Array.from({length: ranks}, (_, r) => intern(1n << BigInt(r)));

  const what = run.doc.collective ?? "";
  const reduction = reducing.has(what) || run.move_reduces.includes(1);
  const initial = new Int32Array(ranks * per_rank);
  const starts_with = (rank, block) => reduction || (/^(all_)?gather/.test(what) && block === rank) ||
    (what.startsWith("all_to_all") && run.blocks === ranks * ranks && Math.floor(block / ranks) === rank);
  for (let r = 0; r < ranks; ++r)
    for (let c = 0; c < cells; ++c)
      if (starts_with(r, Math.floor(c / run.parts))) initial.fill(alone[r], r * per_rank + first_slice[c], r * per_rank + first_slice[c + 1]);

  const state = initial.slice(), carried = new Array(move_count).fill(null);
  const slice_range = m => {
    const cell = run.move_cell[m], all = slices[cell], count = seen.get(key_of(m));
    return [first_slice[cell] + Math.floor(occurrence[m] * all / count), first_slice[cell] + Math.floor((occurrence[m] + 1) * all / count)];
  };
  const depart = m => {
    const [from, to] = slice_range(m), base = run.move_from[m] * per_rank;
    carried[m] = [];
    for (let s = from; s < to; ++s) {
      // Who sends what it never received has had it from the start: a root, a source.
      if (state[base + s] === 0) initial[base + s] = state[base + s] = alone[run.move_from[m]];
      carried[m].push(state[base + s]);
    }
  };
  const at = [], before = [], after = [], first_change = new Uint32Array(move_count + 1);
  let next = 0;
  for (let k = 0; k < move_count; ++k) {
    const m = run.moves_by_end[k];
    // Arrivals come before departures of the same moment: a rank passes on what has just come.
    while (next < move_count && run.move_begin[run.moves_by_begin[next]] < run.move_end[m]) {
      const departing = run.moves_by_begin[next++];
      if (!carried[departing]) depart(departing);
    }
    if (!carried[m]) depart(m);
    const [from, to] = slice_range(m), base = run.move_to[m] * per_rank;
    for (let s = from; s < to; ++s) {
      // Also when it is only copied: what was there is kept beside it and combined later, or is part of what has come.
      const id = unite(state[base + s], carried[m][s - from]);
      if (id === state[base + s]) continue;
      at.push(base + s); before.push(state[base + s]); after.push(id);
      state[base + s] = id;
    }
    first_change[k + 1] = at.length;
  }
  return new journey({run, reduction, per_rank, first_slice, slices, sets, sizes, initial, at, before, after, first_change});
}

/** The states of all cells at one moment, which can be moved. */
class journey {
  constructor(parts) {
    Object.assign(this, parts);
    this.full = this.reduction ? this.run.ranks : 1;
    this.cell_of_slice = new Int32Array(this.per_rank);
    for (let c = 0; c < this.run.cells; ++c) this.cell_of_slice.fill(c, this.first_slice[c], this.first_slice[c + 1]);
    this.state = this.initial.slice();
    this.held = new Int32Array(this.run.ranks * this.run.cells);  // contributions, over all slices of a cell
    this.state.forEach((id, i) => { this.held[this.cell_index(i)] += this.sizes[id]; });
    this.arrived = 0;
  }
  cell_index(i) { return Math.floor(i / this.per_rank) * this.run.cells + this.cell_of_slice[i % this.per_rank]; }

  seek(ps) {
    const order = this.run.moves_by_end, arrivals = first_where(this.run.move_count, k => this.run.move_end[order[k]] > ps);
    for (; this.arrived < arrivals; ++this.arrived)
      for (let i = this.first_change[this.arrived]; i < this.first_change[this.arrived + 1]; ++i) this.set(this.at[i], this.after[i]);
    for (; this.arrived > arrivals; --this.arrived)
      for (let i = this.first_change[this.arrived]; i-- > this.first_change[this.arrived - 1];) this.set(this.at[i], this.before[i]);
  }
  set(i, id) {
    this.held[this.cell_index(i)] += this.sizes[id] - this.sizes[this.state[i]];
    this.state[i] = id;
  }
  /** 0: nothing there; 1: complete. */
  share(rank, cell) { return Math.min(1, this.held[rank * this.run.cells + cell] / (this.full * this.slices[cell])); }
  contributors(rank, cell) {
    let set = 0n;
    for (let s = this.first_slice[cell]; s < this.first_slice[cell + 1]; ++s) set |= this.sets[this.state[rank * this.per_rank + s]];
    const ranks = [];
    for (let r = 0; set; ++r, set >>= 1n) if (set & 1n) ranks.push(r);
    return ranks;
  }
  words(rank, cell) {
    const who = this.contributors(rank, cell), share = this.share(rank, cell);
    if (!who.length) return "not there";
    if (!this.reduction) return share < 1 ? `${percent_text(share)} of it has come` : `there, from rank ${ranges_text(who)}`;
    const some = share < 1 && this.slices[cell] > 1 ? `, ${percent_text(share)} of all slices` : "";
    return `${who.length} of ${this.full} contributions${some}: rank${who.length > 1 ? "s" : ""} ${ranges_text(who)}`;
  }
}
