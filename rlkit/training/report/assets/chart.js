// One chart: curves over an axis, the values under the pointer, the arrow keys.

const COLORS = 7;
const MOST_SHOWN = 14; // values beside the pointer
const MARGIN = { left: 52, right: 12, top: 8, bottom: 34 };

/** An SVG element with attributes. */
function svg(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** The classes of an entry: its colour, and its dashes once colours repeat. */
function look(entry) {
  return `c${entry % COLORS} dash${Math.floor(entry / COLORS) % 4}`;
}

class Chart {
  /** `view` is shared by all charts: axis, spread, hidden entries, range [low, high] or null. */
  constructor(plot, lines, entries, view) {
    Object.assign(this, { plot, lines, entries, view, place: null });
    this.values = Object.assign(document.createElement("div"), { className: "values", hidden: true });
    plot.addEventListener("pointermove", (event) => this.point(event));
    plot.addEventListener("pointerdown", (event) => this.grab(event));
    plot.addEventListener("pointerup", (event) => this.release(event));
    plot.addEventListener("pointerleave", () => this.leave());
    plot.addEventListener("blur", () => this.leave());
    plot.addEventListener("keydown", (event) => this.press(event));
  }

  /** The curves that are shown, on the chosen axis, within the range. */
  shown() {
    const [low, high] = this.view.range ?? [-Infinity, Infinity];
    return this.lines
      .filter((line) => !this.view.hidden.has(line.entry))
      .map((line) => {
        const { y, low: from, high: to, seeds } = line;
        const [x, marks] = [line.x[this.view.axis], line.marks[this.view.axis]];
        // One point beyond either end, so that lines run to the edge.
        const inside = x.map((_, i) => (x[i + 1] ?? Infinity) >= low && (x[i - 1] ?? -Infinity) <= high);
        const cut = (values) => values && values.filter((_, i) => inside[i]);
        const named = marks.map((at, i) => ({ at, name: line.names[i] })).filter(({ at }) => at >= low && at <= high);
        return { entry: line.entry, x: cut(x), y: cut(y), from: cut(from), to: cut(to), seeds: seeds.map(cut), marks: named };
      })
      .filter((line) => line.x.length);
  }

  draw() {
    const curves = this.shown();
    const least = MARGIN.left + MARGIN.right + 10;
    const [width, height] = [Math.max(this.plot.clientWidth, least), this.plot.clientHeight];
    this.curves = curves;
    this.scale(curves, width, height);
    this.svg = svg("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
    this.axes(width, height);
    const clip = `clip${this.plot.dataset.chart}`;
    const { left, top } = MARGIN;
    const frame = { x: left, y: top - 4, width: this.width + 4, height: this.height + 8 };
    this.svg.append(svg("clipPath", { id: clip }, svg("rect", frame)));
    const inner = svg("g", { "clip-path": `url(#${clip})` });
    for (const curve of curves) inner.append(this.curve(curve));
    this.pointer = svg("g");
    this.svg.append(inner, this.pointer);
    this.plot.replaceChildren(this.svg, this.values);
    if (this.place !== null) this.show(this.place, false);
  }

  /** Functions from values to pixels. */
  scale(curves, width, height) {
    const spread = this.view.spread;
    const ys = curves.flatMap((curve) => [
      ...curve.y,
      ...(spread === "band" && curve.from ? [...curve.from, ...curve.to] : []),
      ...(spread === "seeds" ? curve.seeds.flat() : []),
    ]);
    let [low, high] = extent(ys);
    if (low === high) [low, high] = [low - (Math.abs(low) / 10 || 1), high + (Math.abs(high) / 10 || 1)];
    const pad = (high - low) * 0.04;
    let [first, last] = this.view.range ?? extent(curves.flatMap((curve) => curve.x));
    if (first === last) [first, last] = [first - 1, last + 1];
    this.domain = { x: [first, last], y: [low - pad, high + pad] };
    this.width = width - MARGIN.left - MARGIN.right;
    this.height = height - MARGIN.top - MARGIN.bottom;
    this.toX = (x) => MARGIN.left + ((x - first) / (last - first)) * this.width;
    this.toY = (y) => MARGIN.top + ((high + pad - y) / (high - low + 2 * pad)) * this.height;
    this.fromX = (pixel) => first + ((pixel - MARGIN.left) / this.width) * (last - first);
  }

  axes(width, height) {
    const bottom = height - MARGIN.bottom;
    const right = width - MARGIN.right;
    const values = ticks(...this.domain.y, Math.max(2, Math.round(this.height / 45)));
    const digits = exactDigits(values);
    for (const value of values) {
      const y = this.toY(value);
      this.svg.append(svg("line", { class: "grid", x1: MARGIN.left, x2: right, y1: y, y2: y }));
      const text = Math.abs(value) >= 1e4 ? abbreviated(value, digits) : short(value, digits);
      this.svg.append(svg("text", { x: MARGIN.left - 6, y: y + 4, "text-anchor": "end" }, text));
    }
    const count = Math.max(2, Math.round(this.width / 90));
    const isTime = this.view.axis === "wall_seconds";
    for (const { value, text } of (isTime ? durationTicks : countTicks)(...this.domain.x, count)) {
      const x = this.toX(value);
      this.svg.append(svg("line", { class: "axis", x1: x, x2: x, y1: bottom, y2: bottom + 4 }));
      this.svg.append(svg("text", { x, y: bottom + 16, "text-anchor": "middle" }, text));
    }
    this.svg.append(svg("line", { class: "axis", x1: MARGIN.left, x2: right, y1: bottom, y2: bottom }));
    const name = this.view.names[this.view.axis];
    this.svg.append(svg("text", { x: right, y: height - 3, "text-anchor": "end" }, name));
  }

  curve({ entry, x, y, from, to, seeds, marks }) {
    const group = svg("g", { class: look(entry) });
    for (const mark of marks) {
      const at = this.toX(mark.at);
      group.append(svg("line", { class: "mark", x1: at, x2: at, y1: MARGIN.top, y2: MARGIN.top + this.height }));
      // At the foot, where curves that rise leave room.
      const [x, y] = [at + 12, MARGIN.top + this.height - 5];
      group.append(svg("text", { x, y, transform: `rotate(-90 ${x} ${y})` }, mark.name));
    }
    if (this.view.spread === "band" && from) group.append(svg("path", { class: "band", d: this.area(x, from, to) }));
    if (this.view.spread === "seeds")
      for (const seed of seeds) group.append(svg("path", { class: "seed", d: this.path(x, seed) }));
    group.append(svg("path", { class: `line ${look(entry)}`, d: this.path(x, y) }));
    const known = y.flatMap((value, i) => (value === null ? [] : [i]));
    if (known.length === 1) group.append(this.dot(x[known[0]], y[known[0]]));
    return group;
  }

  dot(x, y) {
    return svg("circle", { class: "dot", cx: this.toX(x), cy: this.toY(y), r: 4 });
  }

  /** A line through the known values. */
  path(x, y) {
    const points = x.flatMap((at, i) => (y[i] === null ? [] : [`${this.toX(at).toFixed(1)},${this.toY(y[i]).toFixed(1)}`]));
    return points.length ? `M${points.join("L")}` : "";
  }

  /** The stretch between two lines. */
  area(x, low, high) {
    const known = x.map((_, i) => i).filter((i) => low[i] !== null && high[i] !== null);
    const point = (values) => (i) => `${this.toX(x[i]).toFixed(1)},${this.toY(values[i]).toFixed(1)}`;
    const points = [...known.map(point(high)), ...known.reverse().map(point(low))];
    return points.length ? `M${points.join("L")}Z` : "";
  }

  /** All places of the axis with a value, rising. */
  places() {
    const [low, high] = this.domain.x;
    const all = this.curves.flatMap((curve) => curve.x.filter((at, i) => curve.y[i] !== null && at >= low && at <= high));
    return [...new Set(all)].sort((a, b) => a - b);
  }

  /** Shows the values at the place that is nearest to `wanted`. */
  show(wanted, isSpoken) {
    const places = this.places();
    if (!places.length) return this.leave();
    const place = (this.place = places[nearest(places, wanted)]);
    const at = this.toX(place);
    const rows = this.curves
      .map((curve) => this.valueAt(curve, place))
      .filter((row) => row !== null)
      .sort((a, b) => b.y - a.y);
    const cursor = svg("line", { class: "cursor", x1: at, x2: at, y1: MARGIN.top, y2: MARGIN.top + this.height });
    const dots = rows.map((row) => svg("g", { class: look(row.entry) }, this.dot(row.x, row.y)));
    this.pointer.replaceChildren(cursor, ...dots);
    const isTime = this.view.axis === "wall_seconds";
    const where = isTime ? duration(place) : `${Math.round(place).toLocaleString("en-US")} ${this.view.names[this.view.axis]}`;
    this.values.replaceChildren(where, ...rows.slice(0, MOST_SHOWN).map((row) => this.row(row)));
    if (rows.length > MOST_SHOWN) this.values.append(`and ${rows.length - MOST_SHOWN} lower ones`);
    this.values.hidden = false;
    this.values.style.left = `${this.beside(at)}px`;
    if (isSpoken) {
      const said = rows.map((row) => `${this.entries[row.entry]} ${this.text(row)}`);
      document.getElementById("spoken").textContent = `${where}: ${said.join("; ")}`;
    }
  }

  /** Where the values stand: right of the cursor, or left of it where the window ends. */
  beside(at) {
    const wide = this.values.offsetWidth;
    const { left } = this.plot.getBoundingClientRect();
    const isRoom = left + at + 12 + wide < document.documentElement.clientWidth;
    return isRoom ? at + 12 : Math.max(4 - left, at - 12 - wide);
  }

  /** The nearest value of a curve, if the curve reaches that place. */
  valueAt(curve, place) {
    const known = curve.x.flatMap((_, i) => (curve.y[i] === null ? [] : [i]));
    const xs = known.map((i) => curve.x[i]);
    if (!known.length || place < xs[0] || place > xs[xs.length - 1]) return null;
    const i = known[nearest(xs, place)];
    return { entry: curve.entry, x: curve.x[i], y: curve.y[i], from: curve.from?.[i], to: curve.to?.[i] };
  }

  row(row) {
    const line = document.createElement("div");
    const key = swatch(row.entry);
    const name = Object.assign(document.createElement("span"), { textContent: this.entries[row.entry] });
    const value = Object.assign(document.createElement("b"), { textContent: this.text(row) });
    line.append(key, name, value);
    return line;
  }

  text({ y, from, to }) {
    const isBand = this.view.spread === "band" && from != null && to != null;
    return short(y, 5) + (isBand ? ` [${short(from)}, ${short(to)}]` : "");
  }

  point(event) {
    const pixel = event.clientX - this.plot.getBoundingClientRect().left;
    this.show(this.fromX(pixel), false);
    if (this.from === undefined) return;
    const [left, right] = [Math.min(this.from, pixel), Math.max(this.from, pixel)];
    const box = { class: "chosen", x: left, width: right - left, y: MARGIN.top, height: this.height };
    this.pointer.append(svg("rect", box));
  }

  grab(event) {
    if (event.pointerType !== "touch" && event.button === 0) this.from = event.clientX - this.plot.getBoundingClientRect().left;
  }

  release(event) {
    const [from, to] = [this.from, event.clientX - this.plot.getBoundingClientRect().left];
    this.from = undefined;
    if (from === undefined || Math.abs(to - from) < 8) return;
    const [first, last] = this.domain.x;
    const edges = [this.fromX(Math.min(from, to)), this.fromX(Math.max(from, to))];
    this.view.setRange([Math.max(first, edges[0]), Math.min(last, edges[1])]);
  }

  leave() {
    this.from = undefined;
    this.place = null;
    this.values.hidden = true;
    this.pointer?.replaceChildren();
  }

  press(event) {
    const places = this.places();
    const now = this.place === null ? -1 : nearest(places, this.place);
    const last = places.length - 1;
    const next = { ArrowRight: Math.min(now + 1, last), ArrowLeft: Math.max(now - 1, 0), Home: 0, End: last }[event.key];
    if (event.key === "Escape") {
      this.leave();
      this.view.setRange(null);
    } else if (next !== undefined && places.length) {
      event.preventDefault();
      this.show(places[next], true);
    }
  }
}

/** The least and the greatest known number; 0 and 1 without any. */
function extent(numbers) {
  let [low, high] = [Infinity, -Infinity];
  for (const n of numbers) {
    if (n === null) continue;
    if (n < low) low = n;
    if (n > high) high = n;
  }
  return low <= high ? [low, high] : [0, 1];
}

/** A piece of an entry's line. */
function swatch(entry) {
  const line = svg("line", { class: `line ${look(entry)}`, x1: 0, x2: 22, y1: 5, y2: 5 });
  return svg("svg", { class: look(entry), width: 22, height: 10, "aria-hidden": "true" }, line);
}
