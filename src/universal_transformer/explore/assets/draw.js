/* draw(element, trace): what a Universal Transformer does with one input.

Needs Plot 0.6 and d3 7 as globals, reads nothing from the network, and writes all text as text. The trace is plain
JSON, `InputTrace.to_dict()` of input_trace.py:

  model, answer, probability, finished, right (the right answer or null), choices [[text, probability]…]
  view            {form: a member of VIEWS, side, box_rows, box_columns}: how the source is shown
  max_steps       the largest number of steps; halting: whether positions stop by themselves; threshold or null
  sides           encoder, decoder or both, each with: side, tokens and columns (what a row and a column of attention
                  is), steps (N), remainders, halting [step][position] or null, supports (positions),
                  self_attention and cross_attention: {data, shape [layers, heads, rows, columns], blocks} or null,
                    where
                  data is base64 of bytes round(255 weight) and blocks is layers in a step (0: layers are no steps)
  output          [[token or tag, probability]…] at the positions `places` of the last side
  after_steps     [step] -> [[answer, probability]…]: one, or one at each position of the last side
  unknown, cut    words that the model does not know; what the trace leaves out

The step and the head that are shown are in `element.dataset` (step, head, block, matrix): set them before a call to
choose them. A change fires the event "choose" at the element. */

const STYLE = `
.ut { font: 15px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
.ut h3 { font-size: 16px; margin: 0 0 4px; } .ut p { margin: 2px 0 8px; }
.ut .panels { display: flex; flex-wrap: wrap; gap: 14px; align-items: flex-start; }
.ut figure { margin: 0; min-width: 300px; padding: 12px 14px; border: 1px solid #8886; border-radius: 10px; max-width: 100%;
  box-sizing: border-box; overflow: auto; max-height: 86vh; }
.ut .note { font-size: 13.5px; opacity: .8; margin: 4px 0 0; } .ut .said { min-height: 1.5em; }
.ut figure .note { width: 0; min-width: 100%; }
.ut .controls { display: flex; flex-wrap: wrap; gap: 6px 16px; align-items: center; margin: 8px 0 12px; }
.ut .controls input { width: 220px; vertical-align: middle; }
.ut .answer b { font-size: 20px; } .ut .unknown { text-decoration: underline wavy #d55e00; }
.ut .save { float: right; margin-left: 12px; } .ut button, .ut select { font: inherit; }
.ut .save button { font-size: 12px; padding: 1px 7px; }
.ut :focus-visible { outline: 3px solid #0072b2; outline-offset: 2px; }
.ut svg { max-width: none; } .ut [aria-label="tip"] { --plot-background: Canvas; color: CanvasText; }`;
const CHANGED = "#d55e00", FONT = 13;
const shade = (value) => d3.interpolateCividis(value), inkOn = (value) => (value > 0.55 ? "#111" : "#fff");
const PALETTE = d3.range(256).map((value) => { const { r, g, b } = d3.rgb(shade(value / 255)); return [r, g, b, 255];
  });
const short = (text, most = 38) => (text.length > most ? text.slice(0, most - 1) + "…" : text);
const percent = (value) => (value >= 0.9995 ? "100 %" : d3.format(".1f")(100 * value) + " %");

/* An element with properties and children. */
export function make(tag, given = {}, ...children) {
  const node = Object.assign(document.createElement(tag), given);
  node.append(...children);
  return node;
}

export function draw(element, trace) {
  clearInterval(element.utTimer);
  const state = element.dataset, view = VIEWS[trace.view.form];
  const matrices = trace.sides.flatMap((side) => [
    { name: `${side.side} self-attention`, rows: side, columns: side.columns, read: decoded(side.self_attention) },
    ...(side.cross_attention ? [{ name: "attention to the source", rows: side, columns: trace.sides[0].tokens,
      read: decoded(side.cross_attention) }] : [])]);
  const steps = Math.max(1, trace.after_steps.length, ...trace.sides.map((side) => Math.max(0, ...side.steps)),
    ...matrices.map((m) => (m.read.blocks ? 0 : m.read.layers)));
  const choose = (name, value) => { state[name] = value; refresh();
    element.dispatchEvent(new Event("choose", { bubbles: true })); };
  const chosen = (name, most, otherwise) => { const value = Number(state[name]); return value >= 0 && value <= most
    && state[name] ? value : otherwise; };
  const root = make("div", { className: "ut" }), panels = make("div", { className: "panels" }), moving = [];
  element.replaceChildren(make("style", { textContent: STYLE }), root);
  root.append(answerOf(trace, view), controls(), panels);

  function controls() {
    const slider = make("input", { type: "range", min: 1, max: steps, step: 1 }), shown = make("output");
    slider.setAttribute("aria-label", "step");
    const play = make("button", { type: "button", textContent: "▶ play" });
    const pause = () => { clearInterval(element.utTimer); element.utTimer = 0; play.textContent = "▶ play"; };
    play.onclick = () => {
      if (element.utTimer) return pause();
      if (at() >= steps) choose("step", 1);
      play.textContent = "❚❚ pause";
      element.utTimer = setInterval(() => (at() < steps ? choose("step", at() + 1) : pause()), 900);
    };
    slider.oninput = () => { pause(); choose("step", Number(slider.value)); };
    moving.push(() => { slider.value = at(); shown.textContent = `${at()} of ${steps}`; });
    const parts = [make("label", {}, "Step ", slider, " ", shown), play];
    if (matrices.length > 1) parts.push(select("matrix", "Attention", matrices.map((m) => m.name)));
    if (matrices[0].read.heads > 1) parts.push(select("head", "Head",
      ["mean of all", ...d3.range(1, matrices[0].read.heads + 1)]));
    if (matrices[0].read.blocks > 1) parts.push(select("block", "Block", d3.range(1, matrices[0].read.blocks + 1)));
    return make("div", { className: "controls" }, ...parts);
  }
  function select(name, label, texts) {
    const box = make("select", { onchange: () => choose(name, box.selectedIndex) });
    box.append(...texts.map((text) => make("option", { textContent: text })));
    moving.push(() => { box.selectedIndex = chosen(name, texts.length - 1, 0); });
    return make("label", {}, `${label} `, box);
  }
  const at = () => Math.max(1, chosen("step", steps, steps));
  function panel(title, note, plot, name) {
    const holder = make("div"), node = make("figure", {}, saving(holder, `${trace.model || "model"} ${name}`, title),
      make("h3", { textContent: title }), holder, make("p", { className: "note", textContent: note }));
    panels.append(node);
    node.utAgain = () => { if (!node.utStill) holder.replaceChildren(...[plot(node)].flat().filter(Boolean)); };
    moving.push(() => node.utAgain());
  }
  function refresh() { for (const update of moving) update(); }

  const shown = { matrices, steps, step: at, matrix: () => matrices[chosen("matrix", matrices.length - 1,
    matrices.length - 1)], head: () => chosen("head", 99, 0), block: () => chosen("block", 99, 0),
    room: () => Math.min(1000, (element.clientWidth || 1000) - 48) };
  for (const { title, note, name, plot } of view.panels(trace, shown)) panel(title, note, plot, name);
  if (matrices.length > 1 && !state.matrix) state.matrix = matrices.length - 1;
  refresh();
}

function decoded(attention) {
  const bytes = Uint8Array.from(atob(attention.data), (c) => c.charCodeAt(0)),
    [layers, heads, rows, columns] = attention.shape;
  const size = rows * columns;
  function weight(layer, head, row, column) {  // head 0: the mean of all
    const first = head ? head - 1 : 0, last = head || heads;
    let sum = 0;
    for (let each = first; each < last; each++) sum += bytes[(layer * heads + each) * size + row * columns + column];
    return sum / (255 * (last - first));
  }
  return { top: Math.max(0.1, Math.ceil((10 * d3.max(bytes)) / 255) / 10), blocks: attention.blocks, layers, heads,
    rows, columns, weight };
}

const layerOf = (read, step, block) => Math.min(read.layers - 1, read.blocks
  ? (step - 1) * read.blocks + Math.min(block, read.blocks - 1) : step - 1);
const ramp = (label, top = 1) => Plot.legend({ color: { type: "linear", interpolate: d3.interpolateCividis,
  domain: [0, top], label }, width: 260, height: 54, marginTop: 20, marginBottom: 20,
  style: { background: "none", fontSize: "12px" } });

function answerOf(trace, view) {
  const box = make("div", { className: "answer" }, ...view.answer(trace));
  const note = (...parts) => box.append(make("p", { className: "note" }, ...parts));
  if (trace.choices.length > 1)
    note("then " + trace.choices.slice(1).map(([text, p]) => `${text} ${percent(p)}`).join(" · "));
  if (trace.unknown.length)
    note("unknown to the model: ", make("span", { className: "unknown", textContent: trace.unknown.join(", ") }));
  if (trace.cut.length) note(`Bounded: ${trace.cut.join("; ")}.`);
  return box;
}

function answersByStep(trace, now) {
  const rows = trace.after_steps.map(([[text, p]], i) => ({ step: i + 1, text, p }));
  return Plot.plot({ style: { fontSize: FONT, background: "none" }, width: 380, height: 58 + 30 * rows.length,
    marginLeft: 48, marginRight: 20, marginBottom: 40,
    x: { domain: [0, 1], label: "probability of the answer", ticks: 5 },
    y: { label: "step", domain: rows.map((d) => d.step), type: "band" },
    marks: [Plot.barX(rows, { y: "step", x: "p", fill: (d) => (d.step === now ? "#0072b2" : "#56b4e9"), tip: true,
      title: (d) => `after step ${d.step}: ${d.text}, ${percent(d.p)}` }),
      Plot.text(rows, { y: "step", x: 0, text: (d) => `${short(d.text)} · ${percent(d.p)}`, dx: 6, textAnchor: "start",
        fill: "#000", stroke: "#fff", strokeWidth: 3, fontWeight: (d) => (d.step === now ? 700 : 400) })] });
}

const measure = document.createElement("canvas").getContext("2d");
function widthOf(text) {
  measure.font = `${FONT}px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif`;
  return measure.measureText(text).width * 1.04;
}

function layout(texts, { square }) {
  const n = texts.length, size = n <= 24 ? 26 : n <= 40 || (n <= 130 && !square) ? 18 : n <= 130 ? 8 : 4,
    every = Math.ceil(14 / size);
  return { size, ticks: d3.range(n).filter((i) => i % every === 0), font: size < 16 ? 11 : FONT,
    margin: 14 + Math.max(14, ...texts.map((text) => widthOf(short(text)))) };
}

const wordy = (texts) => Math.max(0, ...texts.map((text) => text.length)) > 12 || texts.length > 60;
const named = (texts, supports = []) => texts.map((text, i) => (supports.includes(i) ? "★ " : "") + (wordy(texts)
  ? `${i + 1} ` : "") + (text.trim() || "␣"));

function stepMap(trace, side, answers, now) {
  const names = named(side.tokens, side.supports), { size, ticks, font, margin } = layout(names, { square: false });
  const made = side.tokens.flatMap((_, i) => d3.range(side.steps[i]).map((s) =>
    ({ i, step: s + 1, p: side.halting ? side.halting[s][i] : null,
    said: answers && trace.after_steps[s]?.length > 1 ? trace.after_steps[s][i] : null })));
  const most = Math.max(trace.max_steps, ...side.steps), texts = size >= 18 && made.some((d) => d.said);
  const wide = Math.max(texts ? 58 : 24, Math.min(texts ? 64 : 44, 300 / most));
  const title = (d) => `${side.tokens[d.i]}\nstep ${d.step}` + (d.p === null ? ""
    : `: halts with p = ${d3.format(".3f")(d.p)}`) +
    (d.step === side.steps[d.i] ? `\nN = ${side.steps[d.i]}, remainder ${d3.format(".3f")(side.remainders[d.i])}`
      : "") + (d.said ? `\nbest answer here: ${d.said[0]}, ${percent(d.said[1])}` : "");
  const fill = (d) => (d.p === null ? "#56b4e9" : shade(d.p));
  const plot = Plot.plot({ style: { fontSize: font, background: "none" }, width: margin + 50 + wide * most,
    height: 44 + size * names.length, marginLeft: margin, marginTop: 38, marginRight: 46, marginBottom: 4,
    x: { domain: d3.range(1, most + 1), type: "band", label: "step", axis: "top", padding: 0.06 },
    y: { domain: d3.range(names.length), type: "band", label: null, ticks, tickFormat: (i) => short(names[i]),
      padding: size > 8 ? 0.08 : 0, tickSize: 0 },
    marks: [Plot.cell(made, { x: "step", y: "i", fill, fillOpacity: (d) => (d.step > now ? 0.35 : 1), tip: true,
      title }),
      texts ? Plot.text(made, { x: "step", y: "i", text: (d) => (d.said ? short(d.said[0].trim() || "␣", 7) : ""),
        fill: (d) => (d.p === null ? "#000" : d.step > now ? "currentColor" : inkOn(d.p)) }) : null,
      size >= 12 ? Plot.text(d3.range(names.length), { y: (i) => i, frameAnchor: "right", dx: 26, text: (i) =>
        `${side.steps[i]}`, fontWeight: 700 }) : null] });
  return [side.halting ? ramp("halting probability") : null, plot];
}

function attention(node, shown) {
  const matrix = shown.matrix(), { read, rows: side, columns } = matrix, room = shown.room();
  const layer = layerOf(read, shown.step(), shown.block()), at = Math.min(shown.head(), read.heads);
  const names = named(side.tokens.slice(0, read.rows), side.supports);
  const { size, ticks, font, margin } = layout(names, { square: true }), numbers = wordy(columns),
    width = Math.min(size, Math.max(180, room - margin - 20) / read.columns);
  const longest = Math.max(...columns.map((c) => c.length)), below = numbers || longest < 3 ? 40 : 46 + 7 * longest;
  const halted = (row) => read.blocks && layer >= side.steps[row] * read.blocks,
    canvas = make("canvas", { width: read.columns, height: read.rows });
  const pen = canvas.getContext("2d"), image = pen.createImageData(read.columns, read.rows);
  for (let row = 0, place = 0; row < read.rows; row++)
    for (let column = 0; column < read.columns; column++, place += 4) {
      image.data.set(PALETTE[Math.min(255, Math.round((255 * read.weight(layer, at, row, column)) / read.top))], place);
      if (halted(row)) image.data[place + 3] = 70;
    }
  pen.putImageData(image, 0, 0);
  const frame = { width: margin + 20 + width * read.columns, height: 12 + below + size * read.rows, marginLeft: margin,
    marginTop: 8, marginRight: 14, marginBottom: below };
  const inner = { x: margin, y: 8, width: frame.width - margin - 14, height: frame.height - 8 - below };
  const plot = Plot.plot({ style: { fontSize: font, background: "none" }, ...frame, padding: 0,
    x: { domain: d3.range(read.columns), type: "band", label: numbers && read.columns > 5 ? "looks at (number)"
      : "looks at", ticks: d3.range(0, read.columns, Math.ceil((numbers ? 26 : 15) / width)), tickFormat: (i) =>
      (numbers ? i + 1 : columns[i].trim() || "␣"), tickRotate: below === 40 ? 0 : -60, tickSize: 3 },
    y: { domain: d3.range(read.rows), type: "band", label: null, ticks, tickFormat: (i) => short(names[i]),
      tickSize: 0 },
    marks: [() => Object.entries({ ...inner, href: canvas.toDataURL(), preserveAspectRatio: "none",
      style: "image-rendering: pixelated" })
      .reduce((made, [key, value]) => made.attr(key, value), d3.create("svg:image")).node()] });
  const mark = d3.select(plot).append("rect").attr("fill", "none").attr("stroke", CHANGED).attr("stroke-width",
    2.5).attr("width", inner.width / read.columns).attr("height", inner.height / read.rows);
  const said = make("p", { className: "note said" }); said.setAttribute("aria-live", "polite");
  const point = (row, column) => {
    node.utAt = [row, column] = [Math.max(0, Math.min(read.rows - 1, row)),
      Math.max(0, Math.min(read.columns - 1, column))];
    mark.attr("x", inner.x + (column * inner.width) / read.columns).attr("y",
      inner.y + (row * inner.height) / read.rows);
    said.textContent = halted(row) ? `“${side.tokens[row]}” has halted after step ${side.steps[row]}.`
      : `“${side.tokens[row]}” looks at “${columns[column]}”: weight ` +
        d3.format(".3f")(read.weight(layer, at, row, column));
  };
  const best = d3.maxIndex(d3.range(read.columns), (column) => read.weight(layer, at, read.rows - 1, column));
  point(...(node.utAt ?? [read.rows - 1, best]));
  plot.setAttribute("tabindex", "0"); plot.setAttribute("role", "img");
  plot.setAttribute("aria-label", `${matrix.name}: move the mark with the arrow keys`);
  plot.onpointermove = (event) => { const [x, y] = d3.pointer(event, plot);
    if (x >= inner.x && y >= inner.y && y < inner.y + inner.height
    && x < inner.x + inner.width) point(Math.floor(((y - inner.y) / inner.height) * read.rows),
    Math.floor(((x - inner.x) / inner.width) * read.columns)); };
  plot.onkeydown = (event) => { const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1],
    ArrowRight: [0, 1] }[event.key]; if (move) { event.preventDefault();
    point(node.utAt[0] + move[0], node.utAt[1] + move[1]); } };
  return [ramp("attention weight", read.top), plot, said];
}

function boards(trace, shown) {
  const { read } = shown.matrices[0];
  const { side: n, box_rows, box_columns } = trace.view, given = trace.sides[0].tokens, steps = trace.sides[0].steps,
    size = Math.max(36, 340 / n);
  const places = d3.range(n * n).map((i) => ({ i, row: Math.floor(i / n), column: i % n })), name = (d) =>
    `row ${d.row + 1}, column ${d.column + 1}`;
  const box = (d) => n * Math.floor(d.row / box_rows) + Math.floor(d.column / box_columns), inside = (by) =>
    ({ x1: (d) => d.column + by, x2: (d) => d.column + 1 - by, y1: (d) => d.row + by, y2: (d) => d.row + 1 - by });
  const grid = (data, fill, marks, title) => Plot.plot({ style: { fontSize: 17, background: "none" },
    width: n * size + 16, height: n * size + 16, margin: 8, x: { domain: [0, n], axis: null },
    y: { domain: [n, 0], axis: null },
    marks: [Plot.rect(data, { ...inside(0), fill, stroke: "#8888", tip: true, title }),
      Plot.ruleX(d3.range(0, n + 1, box_columns), { strokeWidth: 2.5 }), Plot.ruleY(d3.range(0, n + 1, box_rows),
      { strokeWidth: 2.5 }), ...marks] });
  const text = (data, value, fill) => Plot.text(data, { x: (d) => d.column + 0.5, y: (d) => d.row + 0.5, text: value,
    fill });
  const framed = (data) => Plot.rect(data, { ...inside(0.05), fill: "none", stroke: CHANGED, strokeWidth: 3 });
  const cells = (step) => places.map((d) => ({ ...d, digit: trace.after_steps[step - 1][d.i][0],
    p: trace.after_steps[step - 1][d.i][1], given: given[d.i] !== ".",
    changed: step > 1 && trace.after_steps[step - 2][d.i][0] !== trace.after_steps[step - 1][d.i][0] }));
  const wrong = (all) => all.filter((d) => !d.given && (trace.right && trace.right[d.i] !== "."
    ? trace.right[d.i] !== d.digit
    : all.some((o) => o.i !== d.i && o.digit === d.digit && (o.row === d.row || o.column === d.column
      || box(o) === box(d)))));
  const after = () => {
    const now = Math.min(shown.step(), trace.after_steps.length), all = cells(now), bad = wrong(all),
      changed = all.filter((d) => d.changed);
    return [ramp("probability of the digit"), grid(all, (d) => (d.given ? "#8883" : shade(d.p)),
      [text(all, "digit", (d) => (d.given ? "currentColor" : inkOn(d.p))), framed(changed),
      Plot.text(bad, { x: (d) => d.column + 0.85, y: (d) => d.row + 0.2,
        text: () => "✗", fill: "#d00", stroke: "#fff",
        strokeWidth: 3, fontSize: 13 })],
      (d) => `${name(d)}: ${d.digit}, ${percent(d.p)}${d.given ? " (given)" : ""}\nN = ${steps[d.i]}`),
        make("p", { className: "note",
        textContent: `Changed at step ${now}: ${changed.length}. Wrong: ${bad.length}.` })];
  };
  const taken = () => [ramp("steps", trace.max_steps), grid(places, (d) => shade(steps[d.i] / trace.max_steps),
      [text(places, (d) => steps[d.i], (d) => inkOn(steps[d.i] / trace.max_steps))],
      (d) => `${name(d)}: ${steps[d.i]} steps`)];
  const looks = (node) => {
    const step = shown.step(), head = shown.head(), layer = layerOf(read, step, shown.block()),
      from = (node.utAt ??= Math.max(0, given.indexOf("."))), weight = (d) => read.weight(layer,
      Math.min(head, read.heads), from, d.i);
    const digits = cells(Math.min(step, trace.after_steps.length)),
      plot = grid(places, (d) => shade(weight(d) / read.top),
      [text(places, (d) => digits[d.i].digit, (d) => inkOn(weight(d) / read.top)), framed([places[from]])],
      (d) => `${name(d)}: weight ${d3.format(".3f")(weight(d))}`);
    const go = (to) => { if (to >= 0 && to < n * n) { node.utAt = to; node.utAgain();
      node.querySelector("[tabindex]").focus(); } };
    plot.setAttribute("tabindex", "0"); plot.setAttribute("role", "img");
    plot.setAttribute("aria-label", `attention of ${name(places[from])}`);
    plot.onclick = (event) => { const [x, y] = d3.pointer(event, plot);
      go(Math.floor((x - 8) / size) + n * Math.floor((y - 8) / size)); };
    plot.onkeydown = (event) => { const move = { ArrowUp: -n, ArrowDown: n, ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (move) { event.preventDefault(); go(from + move); } };
    return [ramp("attention weight", read.top), plot,
      make("p", { className: "note", textContent: steps[from] * read.blocks <= layer && read.blocks
      ? `${name(places[from])} has halted after step ${steps[from]}.`
      : `${name(places[from])} looks most at ${name(d3.greatest(places, weight))}.` })];
  };
  return [
    { title: "Board after the step", note: "Grey: given. Orange frame: changed at this step. ✗: wrong.", name: "board",
      plot: after },
    { title: "Steps of each cell", name: "cells", plot: taken,
      note: trace.halting ? "Number and colour: steps taken (N)." : "Every cell makes all steps." },
    ...(read.columns === n * n ? [{ title: "Where a cell looks", name: "attention", plot: looks,
      note: "Orange frame: the cell that looks. Click another one, or move it with the arrow keys." }] : []),
  ];
}

/* Views ------------------------------------------------------------------------------------------------------

A member of VIEWS says what a page shows of a source of its form: `typed`, what is typed; `rows`, what the positions of
a side are; `answer(trace)`, the elements of the headline; `panels(trace, shown)`, each with title, note, name (of a
file) and plot(node). `shown` gives what is chosen: step, matrix, head and block, and the room in pixels. A member may
have `editor(view, field)`, an element that writes into a text field, with utShow(), which shows what is in the field.
*/

const stepsOf = (trace, side, shown, rows) => ({ title: `Steps of ${rows[side.side]}`, name: `steps ${side.side}`,
  note: (trace.halting ? "Colour: probability to halt at this step; the number: steps taken (N)."
    : "Every position makes all steps.") + (side.supports.length ? " ★: supporting fact." : ""),
  plot: (node) => {
    node.utStill = side.tokens.length > 130;  // too many cells to draw again at every step
    return stepMap(trace, side, side === trace.sides.at(-1), node.utStill ? shown.steps : shown.step());
  } });
const attentionOf = (shown) => ({ title: "Attention", name: "attention", plot: (node) => attention(node, shown),
  note: "Row: the position that looks. Column: where it looks. Pale rows have halted. Arrow keys move the mark." });
const answersOf = (trace, shown) => (trace.after_steps[0]?.length === 1 && !trace.places.length
  ? [{ title: "Best answer after each step", name: "answers", note: "Read from the states after the step.",
    plot: () => answersByStep(trace, shown.step()) }] : []);

const tokens = {
  typed: "Input",
  rows: { encoder: "the input", decoder: "the output" },
  answer: (trace) => [make("p", {}, make("b", { textContent: trace.answer || "(empty)" }),
    ` ${percent(trace.probability)}`, trace.finished ? "" : " · cut at the limit of its length",
    trace.right === null ? "" : trace.right === trace.answer ? " · ✓ right" : ` · ✗ right: ${trace.right}`)],
  panels(trace, shown) {
    return [...trace.sides.map((side) => stepsOf(trace, side, shown, this.rows)), attentionOf(shown),
      ...answersOf(trace, shown)];
  },
};
const facts = { ...tokens, typed: "Story: one numbered fact a line, oldest first; the question last",
  rows: { encoder: "each fact", decoder: "the output" } };
const board = {
  ...tokens,
  typed: "Board: digits row after row, . for a blank cell",
  answer: () => [],
  panels(trace, shown) {
    const others = trace.sides.slice(1);
    return [...boards(trace, shown), ...others.map((side) => stepsOf(trace, side, shown, this.rows)),
      ...(others.length ? [attentionOf(shown)] : [])];
  },
  editor({ side, box_rows, box_columns }, field) {
    const cells = d3.range(side * side).map((i) => {
      const cell = make("input", { inputMode: "numeric", maxLength: 1, autocomplete: "off" }),
        row = Math.floor(i / side), column = i % side;
      cell.setAttribute("aria-label", `row ${row + 1}, column ${column + 1}`);
      if ((column + 1) % box_columns === 0 && column + 1 < side) cell.className = "right";
      if ((row + 1) % box_rows === 0 && row + 1 < side) cell.className += " below";
      cell.oninput = () => { field.value = cells.map((each) => (/^[1-9]$/.test(each.value) ? each.value : ".")).join("");
        field.dispatchEvent(new Event("input")); };
      cell.onfocus = () => cell.select();
      cell.onkeydown = (event) => {
        const move = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -side, ArrowDown: side }[event.key];
        if (move) { event.preventDefault(); cells[(i + move + side * side) % (side * side)].focus(); }
      };
      return cell;
    });
    const holder = make("div", { className: "board", utShow: () => cells.forEach((cell, i) => {
      const digit = field.value.replace(/\s/g, "")[i];
      if (document.activeElement !== cell) cell.value = /[1-9]/.test(digit) ? digit : "";
    }) }, ...cells);
    holder.style.gridTemplateColumns = `repeat(${side}, 36px)`;
    return holder;
  },
};
export const VIEWS = { tokens, facts, board };

/* Saving ----------------------------------------------------------------------------------------------------- */

export function download(name, content, type) {
  const link = make("a", { download: name.replace(/[^\w.-]+/g, "_"),
    href: URL.createObjectURL(new Blob([content], { type })) });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

export function saving(holder, name, title) {
  const button = (text, save) => { const made = make("button", { type: "button", textContent: text, onclick: save });
    made.setAttribute("aria-label", `save ${title} as ${text}`); return made; };
  return make("span", { className: "save" }, button("SVG", () => download(`${name}.svg`, picture(holder, title).text,
    "image/svg+xml")), " ", button("PNG", () => png(holder, name, title)));
}

function picture(holder, title) {
  const parts = [...holder.querySelectorAll("svg")].filter((svg) => !svg.parentElement.closest("svg")),
    css = getComputedStyle(holder);
  const back = getComputedStyle(document.body).backgroundColor, outer = d3.create("svg").attr("xmlns",
    "http://www.w3.org/2000/svg").attr("xmlns:xlink", "http://www.w3.org/1999/xlink");
  const width = 16 + Math.max(...parts.map((svg) => svg.width.baseVal.value)), height = 30 + d3.sum(parts,
    (svg) => svg.height.baseVal.value + 6);
  outer.attr("width", width).attr("height", height).attr("viewBox", `0 0 ${width} ${height}`).attr("color",
    css.color).attr("font-family", "system-ui, sans-serif");
  outer.append("rect").attr("width", width).attr("height", height).attr("fill", /, 0\)$|transparent/.test(back) ? "#fff"
    : back);
  outer.append("text").attr("x", 8).attr("y", 20).attr("fill", css.color).attr("font-size", 16).attr("font-weight",
    700).text(title);
  let y = 30;
  for (const svg of parts) { const copy = outer.node().appendChild(svg.cloneNode(true)); copy.setAttribute("x", 8);
    copy.setAttribute("y", y); copy.style.color = css.color; copy.style.overflow = "visible";
    y += svg.height.baseVal.value + 6; }
  return { width, height, text: new XMLSerializer().serializeToString(outer.node()) };
}

function png(holder, name, title) {
  const { width, height, text } = picture(holder, title), image = new Image(),
    canvas = make("canvas", { width: 2 * width, height: 2 * height });
  image.onload = () => { canvas.getContext("2d").drawImage(image, 0, 0, 2 * width, 2 * height);
    canvas.toBlob((blob) => download(`${name}.png`, blob, "image/png")); };
  image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(text);
}
