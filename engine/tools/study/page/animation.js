// The animated choreography: ranks with the cells that they hold, messages on their way between them; and the same as a matrix.

/** The cell that all drawings of a run stress, or -1: {cell}. */
class choreography_view {
  constructor(run, shared, changed) {
    this.run = run;
    this.shared = shared;
    this.followed = -1;
    this.changed = changed;
    this.canvas = element("canvas", {class: "animation", role: "img", "aria-label": "ranks, the cells that they hold, and messages under way"});
    this.matrix_canvas = element("canvas", {class: "matrix", role: "img", "aria-label": "rank by cell: how complete each cell is"});
    this.news = element("p", {class: "news", "aria-live": "off"});
    this.follow_note = element("span", {class: "follow"});
  }

  attach() {
    this.surface = new surface(this.canvas, () => { this.place(); this.changed(); });
    const least = 36 + 44 * this.run.ranks;
    if (least < this.matrix_canvas.getBoundingClientRect().height) this.matrix_canvas.style.height = `${least}px`;
    this.matrix = new surface(this.matrix_canvas, this.changed);
    this.place();
    this.canvas.addEventListener("mousemove", e => this.hover_animation(e));
    this.matrix_canvas.addEventListener("mousemove", e => this.hover_matrix(e));
    for (const c of [this.canvas, this.matrix_canvas]) c.addEventListener("mouseleave", () => tooltip.hide());
    this.canvas.addEventListener("click", e => this.follow(this.tile_at(...this.surface.point(e))?.cell ?? -1));
    this.matrix_canvas.addEventListener("click", e => this.follow(this.matrix_at(...this.matrix.point(e))?.cell ?? -1));
    this.follow(-1);
  }

  follow(cell) {
    this.followed = cell === this.followed ? -1 : cell;
    this.follow_note.replaceChildren(this.followed < 0 ? "Click a tile to follow it. Space plays, ← and → step." : `Following ${this.run.cell_name(this.followed)}. `);
    if (this.followed >= 0)
      this.follow_note.append(element("button", {class: "link", type: "button", onclick: () => this.follow(-1)}, "Follow all"));
    this.changed();
  }

  /** Boxes of ranks: on a circle, or on a small circle for each server. */
  place() {
    if (this.shared.grid) return this.place_in_rows(this.shared.grid);
    const groups = this.run.groups(), count = groups.length, margin = 8;
    // Two servers need half the height that a circle needs.
    if (count === 2) {
      const height = `${Math.round(Math.min(540, this.surface.width / 2 + margin))}px`;
      if (this.canvas.style.height !== height) { this.canvas.style.height = height; this.surface.fit(); }
    }
    const {width: w, height: h} = this.surface;
    this.group_boxes = [];
    this.nodes = new Array(this.run.ranks);
    const sine = Math.sin(Math.PI / Math.max(2, count)), half = Math.min(w, h) / 2 - margin;
    const cluster = count === 1 ? half : count === 2 ? Math.min(w / 4, h / 2) - margin : half * sine / (1 + sine) * 1.04;
    groups.forEach((group, g) => {
      const turn = count === 2 ? Math.PI * (1 - g) : 2 * Math.PI * g / count - Math.PI / 2;
      const a = count === 1 ? 0 : w / 2 - cluster - margin, b = count === 1 ? 0 : h / 2 - cluster - margin;
      const [cx, cy] = [w / 2 + (count === 2 ? (g ? 1 : -1) * (w / 4 - margin / 2) : a * Math.cos(turn)), h / 2 + (count === 2 ? 0 : b * Math.sin(turn))];
      if (count > 1) this.group_boxes.push({x: cx, y: cy, radius: cluster, name: group.name});
      const n = group.ranks.length, wide = count === 1 ? Math.min(1.35, (w / 2 - margin) / cluster) : 1;
      let size = 110;
      const room = width => (n > 24 ? width * 1.6 + 8 : width / 2) + (count > 1 ? 12 : 0);  // numbers and backward messages stand outside
      for (let i = 0; i < 12; ++i) {
        const reach = Math.max(8, cluster - room(size));
        size = n === 1 ? Math.min(110, cluster) : Math.max(9, Math.min(110, cluster * 0.62, 2 * reach * Math.sin(Math.PI / n) * 0.86));
      }
      const reach = n === 1 ? 0 : cluster - room(size);
      group.ranks.forEach((rank, i) => {
        const angle = 2 * Math.PI * i / n - Math.PI / 2 + (n === 4 || n === 2 ? (n === 4 ? -Math.PI / 4 : 0) : 0);
        this.nodes[rank] = this.node_at(cx + reach * wide * Math.cos(angle), cy + reach * Math.sin(angle), size);
        const every = [1, 2, 4, 8, 16, 32, 64, 128, 256].find(k => k * size > 30) ?? 512, out = size * 0.9 + 6;
        if (!this.nodes[rank].label && i % every === 0) this.nodes[rank].number = [out * Math.cos(angle), out * Math.sin(angle)];
      });
    });
  }

  /** For tori and meshes: rank r in column r mod `columns`. */
  place_in_rows(columns) {
    const n = this.run.ranks, across = Math.min(columns, n), rows = Math.ceil(n / columns), {width: w, height: h} = this.surface;
    this.group_boxes = [];
    const size = Math.max(9, Math.min(110, 0.62 * Math.min((w - 16) / across, (h - 16) / rows)));
    this.nodes = Array.from({length: n}, (_, rank) => {
      const column = rank % columns, row = Math.floor(rank / columns);
      const node = this.node_at(8 + (column + 0.5) * (w - 16) / across, 8 + (row + 0.5) * (h - 16) / rows, size);
      if (!node.label && size >= 12) node.number = [0, -node.height / 2 - 6];
      return node;
    });
  }

  /** A box with room for tiles; they are square and as large as possible. */
  node_at(x, y, size) {
    const label = size >= 34 ? 14 : 0, width = size, height = size * 0.86, cells = this.run.cells;
    let best = {tile: 0, columns: 1};
    for (let columns = 1; columns <= cells; ++columns) {
      const tile = Math.min((width - 6) / columns, (height - label - 6) / Math.ceil(cells / columns));
      if (tile > best.tile) best = {tile, columns};
    }
    const tile = Math.min(36, best.tile), rows = Math.ceil(cells / best.columns);
    return {x, y, width, height, label, tile, columns: best.columns,
      left: x - best.columns * tile / 2, top: y - height / 2 + label + (height - label - rows * tile) / 2};
  }

  draw(ps) {
    const journey = this.run.journey;
    journey.seek(ps);
    this.part_ramp = ramp(colours["part-low"], colours["part-high"]);
    this.flying = [];
    this.run.in_flight(ps, m => this.flying.push(m));
    if (this.surface.visible) this.draw_animation(ps);
    if (this.matrix.visible) this.draw_matrix();
  }

  draw_animation(ps) {
    const {context: c} = this.surface;
    this.surface.clear(colours.panel);
    c.textAlign = "center";
    c.textBaseline = "middle";
    for (const box of this.group_boxes) {
      c.strokeStyle = colours.line;
      c.beginPath(); c.arc(box.x, box.y, box.radius, 0, 2 * Math.PI); c.stroke();
      c.fillStyle = colours.soft;
      c.font = text_font(12);
      c.fillText(box.name, box.x, box.y);
    }
    this.draw_ways();
    this.nodes.forEach((node, rank) => this.draw_node(node, rank));
    this.draw_messages(ps);
    this.nodes.forEach((node, rank) => this.draw_name(node, rank));  // above the messages, which pass there
  }

  way(m) {
    const a = this.nodes[this.run.move_from[m]], b = this.nodes[this.run.move_to[m]];
    const dx = b.x - a.x, dy = b.y - a.y, far = Math.hypot(dx, dy) || 1, close = far < a.width * 1.6;
    // To one side, so that both directions are apart; clear of the boxes where they stand close. Clockwise is inside of a circle.
    const bend = close ? (a.label ? 0.3 : 1.9 * a.width / far) : 0.14;
    return {a, b, far, x: (a.x + b.x) / 2 - dy * bend, y: (a.y + b.y) / 2 + dx * bend, trim: close ? 0.2 : Math.min(0.3, a.width * 0.5 / far)};
  }

  draw_ways() {
    const {context: c} = this.surface, drawn = new Set();
    c.strokeStyle = colours.faint;
    c.lineWidth = 1;
    c.beginPath();
    for (const m of this.flying) {
      const pair = this.run.move_from[m] * this.run.ranks + this.run.move_to[m];
      if (drawn.has(pair) || (this.followed >= 0 && this.run.move_cell[m] !== this.followed)) continue;
      drawn.add(pair);
      const way = this.way(m);
      c.moveTo(way.a.x, way.a.y);
      c.quadraticCurveTo(way.x, way.y, way.b.x, way.b.y);
    }
    c.stroke();
  }

  draw_messages(ps) {
    const {context: c} = this.surface, run = this.run, many = this.flying.length > 400;
    for (const m of this.flying) {
      const way = this.way(m), done = (ps - run.move_begin[m]) / (run.move_end[m] - run.move_begin[m] || 1);
      const t = way.trim + done * (1 - 2 * way.trim), u = 1 - t;
      const x = u * u * way.a.x + 2 * u * t * way.x + t * t * way.b.x, y = u * u * way.a.y + 2 * u * t * way.y + t * t * way.b.y;
      const radius = Math.min(many ? 3 : 5.6, Math.max(2, way.a.width * 0.14)) * (0.6 + 0.4 * Math.sqrt(run.move_bytes[m] / run.largest_move));
      c.globalAlpha = this.followed >= 0 && run.move_cell[m] !== this.followed ? 0.12 : 1;
      c.fillStyle = run.move_reduces[m] ? colours.reduce : colours.copy;
      c.beginPath();
      // The shape says it as well as the colour: a disc is copied, a diamond is reduced.
      if (run.move_reduces[m]) { const r = radius * 1.25; c.moveTo(x, y - r); c.lineTo(x + r, y); c.lineTo(x, y + r); c.lineTo(x - r, y); c.closePath(); }
      else c.arc(x, y, radius, 0, 2 * Math.PI);
      c.fill();
      c.strokeStyle = colours.panel; c.lineWidth = 1; c.stroke();
    }
    c.globalAlpha = 1;
  }

  draw_node(node, rank) {
    const {context: c} = this.surface, journey = this.run.journey, cells = this.run.cells;
    c.fillStyle = colours.paper;
    c.strokeStyle = colours.line;
    c.lineWidth = 1;
    c.beginPath(); c.roundRect(node.x - node.width / 2, node.y - node.height / 2, node.width, node.height, Math.min(6, node.width / 5)); c.fill(); c.stroke();
    if (node.tile < 3) return this.draw_gauge(node, rank);
    const gap = node.tile > 6 ? 1 : 0.5;
    for (let cell = 0; cell < cells; ++cell) {
      const x = node.left + (cell % node.columns) * node.tile, y = node.top + Math.floor(cell / node.columns) * node.tile, size = node.tile - gap;
      const share = journey.share(rank, cell);
      c.globalAlpha = this.followed >= 0 && cell !== this.followed ? 0.2 : 1;
      c.fillStyle = colours.empty;
      c.fillRect(x, y, size, size);
      if (share > 0) {
        c.fillStyle = this.share_colour(share);
        c.fillRect(x, y + size * (1 - share), size, size * share);
      }
    }
    c.globalAlpha = 1;
  }

  /** In the box, if there is room, or beside it; on a rim of its own, so that it can be read on what it covers. */
  draw_name(node, rank) {
    const {context: c} = this.surface;
    const write = (text, x, y) => { c.lineWidth = 3; c.strokeText(text, x, y); c.fillText(text, x, y); };
    c.lineJoin = "round";
    if (node.label) {
      c.strokeStyle = colours.paper;
      c.fillStyle = colours.ink;
      c.font = text_font(11, 600);
      write(node.width >= 56 ? `rank ${rank}` : rank, node.x, node.y - node.height / 2 + node.label / 2 + 2);
    }
    if (node.number) {
      c.strokeStyle = colours.panel;
      c.fillStyle = colours.soft;
      c.font = text_font(10);
      write(rank, node.x + node.number[0], node.y + node.number[1]);
    }
  }

  /** Too small for tiles: how much there is of all cells together. */
  draw_gauge(node, rank) {
    const {context: c} = this.surface, cells = this.run.cells;
    let sum = 0;
    for (let cell = 0; cell < cells; ++cell) sum += this.run.journey.share(rank, cell);
    const share = this.followed >= 0 ? this.run.journey.share(rank, this.followed) : sum / cells, height = (node.height - node.label - 4) * share;
    c.fillStyle = this.share_colour(share);
    c.fillRect(node.x - node.width / 2 + 2, node.y + node.height / 2 - 2 - height, node.width - 4, height);
  }

  share_colour(share) { return share >= 1 ? colours.complete : this.part_ramp.words[Math.round(share * 255)]; }

  // -- the matrix -----------------------------------------------------------------------------------------------------------

  matrix_box() {
    const left = 40, top = 30, {width, height} = this.matrix;
    const w = Math.min((width - left - 6) / this.run.cells, 64), h = Math.min((height - top - 6) / this.run.ranks, 44);
    return {left, top, w, h};
  }

  draw_matrix() {
    const {context: c} = this.matrix, {ranks, cells, journey} = this.run, {left, top, w, h} = this.matrix_box();
    this.matrix.clear(colours.panel);
    const image = new ImageData(cells, ranks), pixels = new Uint32Array(image.data.buffer);
    const [complete] = ramp(colours.complete, colours.complete).pixels, [empty] = ramp(colours.empty, colours.empty).pixels;
    for (let r = 0, i = 0; r < ranks; ++r)
      for (let k = 0; k < cells; ++k, ++i) {
        const share = journey.share(r, k);
        pixels[i] = share >= 1 ? complete : share > 0 ? this.part_ramp.pixels[Math.round(share * 255)] : empty;
      }
    this.sheet ??= new OffscreenCanvas(cells, ranks);
    this.sheet.getContext("2d").putImageData(image, 0, 0);
    c.imageSmoothingEnabled = w < 1 || h < 1;
    c.drawImage(this.sheet, left, top, w * cells, h * ranks);
    this.draw_matrix_grid(left, top, w, h);
    this.draw_matrix_messages(left, top, w, h);
  }

  draw_matrix_grid(left, top, w, h) {
    const {context: c} = this.matrix, {ranks, cells, parts, blocks} = this.run;
    c.fillStyle = colours.panel;
    if (w >= 4) for (let k = 1; k < cells; ++k) c.fillRect(left + k * w - (k % parts ? 0.5 : 1), top, k % parts ? 1 : 2, h * ranks);
    if (h >= 4) for (let r = 1; r < ranks; ++r) c.fillRect(left, top + r * h - 0.5, w * cells, 1);
    c.font = text_font(11);
    c.fillStyle = colours.soft;
    c.textBaseline = "middle";
    c.textAlign = "right";
    const every = (size, least) => [1, 2, 4, 5, 8, 10, 16, 20, 32, 50, 64, 100, 128, 200, 256, 500, 512, 1000, 1024].find(n => n * size >= least) ?? 4096;
    for (let r = 0, n = every(h, 13); r < ranks; r += n) c.fillText(r, left - 6, top + (r + 0.5) * h);
    c.textAlign = "center";
    const count = parts > 1 && blocks === 1 ? parts : blocks, width = w * cells / count;
    for (let k = 0, n = every(width, 24); k < count; k += n) {
      const most = this.matrix.width - c.measureText(k).width / 2 - 1;  // the last one may be wider than its column
      c.fillText(k, Math.min(left + (k + 0.5) * width, most), top - 8);
    }
    c.textAlign = "left";
    c.fillText("rank", 2, 10);
    c.fillText(blocks === 1 ? "part of the block" : parts > 1 ? `block, of ${parts} parts` : "block", left, 10);
    if (this.followed >= 0) {
      c.strokeStyle = colours.ink; c.lineWidth = 1.5;
      c.strokeRect(left + this.followed * w, top - 1, Math.max(2, w), h * ranks + 2);
    }
  }

  draw_matrix_messages(left, top, w, h) {
    const {context: c} = this.matrix, run = this.run;
    if (w < 2 || h < 2) return;
    for (const m of this.flying) {
      c.strokeStyle = run.move_reduces[m] ? colours.reduce : colours.copy;
      c.lineWidth = Math.min(2, w / 3);
      const inset = c.lineWidth / 2 + (w > 5 ? 0.5 : 0);
      c.strokeRect(left + run.move_cell[m] * w + inset, top + run.move_to[m] * h + inset, Math.max(0.5, w - 2 * inset), Math.max(0.5, h - 2 * inset));
    }
  }

  // -- the mouse ------------------------------------------------------------------------------------------------------------

  tile_at(x, y) {
    const rank = this.nodes.findIndex(n => Math.abs(x - n.x) <= n.width / 2 && Math.abs(y - n.y) <= n.height / 2);
    if (rank < 0) return null;
    const node = this.nodes[rank], column = Math.floor((x - node.left) / node.tile), row = Math.floor((y - node.top) / node.tile);
    const cell = row * node.columns + column;
    return {rank, cell: node.tile >= 3 && column >= 0 && column < node.columns && row >= 0 && cell < this.run.cells ? cell : undefined};
  }
  matrix_at(x, y) {
    const {left, top, w, h} = this.matrix_box(), cell = Math.floor((x - left) / w), rank = Math.floor((y - top) / h);
    return cell >= 0 && rank >= 0 && cell < this.run.cells && rank < this.run.ranks ? {rank, cell} : null;
  }
  hover_animation(event) { this.explain(event, this.tile_at(...this.surface.point(event))); }
  hover_matrix(event) { this.explain(event, this.matrix_at(...this.matrix.point(event))); }
  explain(event, found) {
    const {run} = this;
    if (!found) return tooltip.hide();
    if (found.cell === undefined) {
      let complete = 0;
      for (let k = 0; k < run.cells; ++k) complete += run.journey.share(found.rank, k) >= 1;
      return tooltip.show(event, `Rank ${found.rank}`, `${complete} of ${plural(run.cells, "cell")} complete`);
    }
    tooltip.show(event, `Rank ${found.rank}, ${run.cell_name(found.cell)}`, run.journey.words(found.rank, found.cell));
  }

  /** What happens at this very moment, in words; three sentences at most. */
  tell(ps) {
    const {run} = this, {journey} = run;
    const said = [], most = 3;
    let happened = 0;
    const say = sentence => { if (++happened <= most) said.push(sentence()); };
    const ends = run.moves_by_end, begins = run.moves_by_begin;
    for (let i = first_where(run.move_count, k => run.move_end[ends[k]] >= ps); i < run.move_count && run.move_end[ends[i]] === ps; ++i) {
      const m = ends[i], cell = run.move_cell[m];
      say(() => `Rank ${run.move_to[m]} has ${run.cell_name(cell)} from rank ${run.move_from[m]}` + (run.move_reduces[m]
        ? ` and reduces it: ${journey.contributors(run.move_to[m], cell).length} of ${journey.full} contributions.` : "."));
    }
    for (let i = first_where(run.move_count, k => run.move_begin[begins[k]] >= ps); i < run.move_count && run.move_begin[begins[i]] === ps; ++i) {
      const m = begins[i];
      say(() => `Rank ${run.move_from[m]} sends ${run.cell_name(run.move_cell[m])} to rank ${run.move_to[m]}.`);
    }
    const tail = happened > most ? ` And ${plural(happened - most, "more event")} at this moment.` : "";
    this.news.textContent = said.length ? said.join(" ") + tail : `${plural(new Set((this.flying ?? []).map(m => run.move_flow[m])).size, "message")} under way.`;
  }
}
