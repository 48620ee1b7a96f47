/* The page of `ut explore`: asks for traces and draws them. The fragment of its address holds its state. */
import { VIEWS, draw, download, make, saving } from "/draw.js";

const $ = (id) => document.getElementById(id);
const STATE = ["text", "set", "number", "steps", "rule", "threshold", "most", "view", "step", "head", "block",
  "matrix"];
const RULES = { state_change: "when its state changes by less than",
  output_change: "when its prediction changes by less than",
  confidence: "when the model is surer than", halting_threshold: "when its halting probabilities sum to" };
const state = {};
let models, about, most_new, traces = [], asking, timer;

async function post(path, body, signal) {
  const reply = await fetch(path, { method: "POST", headers: { "content-type": "application/json" },
    body: JSON.stringify(body), signal });
  if (reply.ok) return reply;
  throw new Error((await reply.json()).error.message);
}

/* State ------------------------------------------------------------------------------------------------------ */

function readState() {
  const given = new URLSearchParams(location.hash.slice(1));
  for (const name of STATE) if (given.has(name)) state[name] = given.get(name); else delete state[name];
}
function writeState() {
  const kept = STATE.filter((name) => state[name] !== undefined && state[name] !== "");
  history.replaceState(null, "", "#" + new URLSearchParams(kept.map((name) => [name, state[name]])));
}

function depth() {
  const body = {}, [rule, name] = [state.rule ?? "trained", state.rule];
  if (state.steps !== undefined && Number(state.steps) !== about.max_steps) body.max_steps = Number(state.steps);
  if (about.rules[name] && rule !== "max_steps") {
    const value = about.rules[name][Number(state.threshold ?? 0)];
    Object.assign(body, name === "halting_threshold" ? { halting_threshold: value } : { exit: `${name}:${value}` });
  }
  body.calibrated = rule === "calibrated";
  if (about.writes && state.most) body.max_new_tokens = Number(state.most);
  return body;
}

function input() {
  return state.set !== undefined ? { set: state.set, number: Number(state.number ?? 0) } : { text: state.text ?? "" };
}

/* Controls --------------------------------------------------------------------------------------------------- */

function controls() {
  $("title").textContent = models.map((each) => each.name).join(" and ") + ": step by step";
  document.title = $("title").textContent;
  const view = VIEWS[about.view.form];
  $("text-label").textContent = view.typed;
  $("board").replaceChildren(...[view.editor?.(about.view, $("text"))].filter(Boolean));
  $("text").disabled = about.reads_files;
  $("max-steps").max = about.most_steps;
  const choices = [...(about.calibration ? [["calibrated", "as calibrated"]] : []),
    ["trained", about.halts ? "as trained" : "after the last step"],
    ...Object.keys(RULES).filter((rule) => about.rules[rule]).map((rule) => [rule, RULES[rule]])];
  $("rule").replaceChildren(...choices.map(([value, text]) => make("option", { value, textContent: text })));
  $("most-label").hidden = !about.writes;
  $("most").max = most_new;
  $("example").hidden = !Object.keys(about.sets).length;
  $("tab-test").disabled = Boolean(about.obstacle);
  $("tab-test").title = about.obstacle;
}

function show() {
  if (document.activeElement !== $("text")) $("text").value = state.text ?? $("text").value;
  $("board").firstChild?.utShow();
  $("text").rows = Math.max(2, Math.min(14, $("text").value.split("\n").length));
  $("max-steps").value = state.steps ?? about.max_steps;
  $("max-steps-shown").textContent = $("max-steps").value + (Number($("max-steps").value) === about.max_steps
    ? " (as trained)" : "");
  $("rule").value = state.rule ?? "trained";
  const values = about.rules[state.rule];
  $("threshold-label").hidden = !values;
  if (values) {
    $("threshold").max = values.length - 1;
    $("threshold").value = state.threshold ?? 0;
    $("threshold-shown").textContent = d3.format(".4~g")(values[Number($("threshold").value)]);
  }
  $("most").value = state.most ?? "";
  const test = state.view === "test";
  for (const [name, on] of [["input", !test], ["test", test]]) {
    $(`view-${name}`).hidden = !on;
    $(`tab-${name}`).setAttribute("aria-selected", on);
  }
}

const later = (wait = 200) => { clearTimeout(timer); timer = setTimeout(ask, wait); };
function typed() { state.text = $("text").value; delete state.set; delete state.number; writeState(); show(); later(); }
function set(name, value) { state[name] = value; writeState(); show(); later(60); }

/* Answers ---------------------------------------------------------------------------------------------------- */

async function ask() {
  clearTimeout(timer);
  asking?.abort();
  const mine = (asking = new AbortController()), begun = performance.now();
  $("error").textContent = $("made").textContent = "";
  $("status").textContent = "…";
  try {
    const first = await answerOf({ ...input(), ...depth() }, 0, mine.signal);
    const found = [first.trace];
    if (models.length > 1) found.push(alike((await answerOf({ text: first.text, model: 1, ...sharedDepth() }, 1,
      mine.signal)).trace, first.trace));
    if (mine !== asking) return;
    traces = found;
    if (state.set !== undefined || state.text === undefined) $("text").value = first.text;
    $("status").textContent = `${Math.round(performance.now() - begun)} ms`;
    $("made").textContent = "";
    redraw();
    show();
  } catch (error) {
    if (error.name === "AbortError") return;
    $("status").textContent = "";
    $("error").textContent = error.message;
  }
}
const answerOf = async (body, model, signal) => (models[model].writes ? streamed(body, signal, model)
  : (await post("/api/trace", body, signal)).json());
function alike(trace, first) {  // both read the same text, so that what is known of it holds for both
  trace.right = first.right;
  if (trace.sides[0].tokens.length === first.sides[0].tokens.length) trace.sides[0].supports = first.sides[0].supports;
  return trace;
}
function sharedDepth() {  // the second model has the same cap where that is one that it can make
  const steps = Number(state.steps);
  return state.steps !== undefined && steps <= models[1].most_steps && steps !== models[1].max_steps
    ? { max_steps: steps } : {};
}

async function streamed(body, signal, model) {
  const reader = (await post("/api/stream", body, signal)).body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) throw new Error("the answer ended too early");
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events.map((text) => JSON.parse(text.slice(6)))) {
      if (event.error) throw new Error(event.error.message);
      if (event.trace) return event;
      if (!model) $("made").append(make("span", { title: `p = ${d3.format(".3f")(event.probability)}` },
        event.token || "␣", make("sub", { textContent: event.steps })));
    }
  }
}

function redraw() {
  const holder = $("traces");
  holder.className = traces.length > 1 ? "two" : "";
  holder.replaceChildren(...traces.map((trace) => {
    const place = make("div");
    for (const name of ["step", "head", "block",
      "matrix"]) if (state[name] !== undefined) place.dataset[name] = state[name];
    place.addEventListener("choose", () => {
      for (const name of ["step", "head", "block",
        "matrix"]) if (place.dataset[name]) state[name] = place.dataset[name];
      writeState();
    });
    const part = traces.length > 1 ? make("section", {}, make("h2", { textContent: trace.model }), place)
      : make("section", {}, place);
    queueMicrotask(() => draw(place, trace));
    return part;
  }));
}

function nextExample() {
  const names = Object.keys(about.sets), name = state.set ?? about.first?.[0] ?? names[0];
  open(name, ((state.set === undefined ? about.first[1] - 1 : Number(state.number)) + 1) % about.sets[name]);
}
function open(name, number) {
  Object.assign(state, { set: name, number, view: "input" });
  delete state.text;
  writeState(); show(); ask();
  window.scrollTo(0, 0);
}

/* The whole test --------------------------------------------------------------------------------------------- */

async function runTest() {
  $("test-error").textContent = "";
  $("test-status").textContent = "running …";
  const begun = performance.now();
  try {
    const body = { ...depth(), limit: Number($("limit").value) };
    const { rows } = await (await post("/api/test", body)).json();
    const seconds = (performance.now() - begun) / 1000;
    const error = d3.format(".2f")(100 * d3.mean(rows, (d) => d.wrong));
    const steps = d3.format(".2f")(d3.mean(rows, (d) => d.steps));
    $("test-status").textContent =
      `${rows.length} examples in ${seconds.toFixed(1)} s; mean error ${error} %, mean steps ${steps}`;
    drawTest(rows);
  } catch (error) {
    $("test-status").textContent = "";
    $("test-error").textContent = error.message;
  }
}

function drawTest(rows) {
  const groups = [...new Set(rows.map((d) => d.group || d.set))].sort(d3.ascending).sort((a, b) =>
    (parseInt(a.replace(/\D+/g, "")) || 0) - (parseInt(b.replace(/\D+/g, "")) || 0));
  const most = Math.max(1, d3.max(rows, (d) => d.most)), wide = most > 8 ? 1 : 0.5, bin = (d) =>
    Math.round(d.steps / wide) * wide;
  const count = d3.flatRollup(rows, (part) => part.length, (d) => d.group || d.set, bin).map(([group, steps, number]) =>
    ({ group, steps, number, share: number / rows.filter((d) => (d.group || d.set) === group).length }));
  const bins = d3.range(d3.min(rows, bin), d3.max(rows, bin) + wide / 2, wide),
    left = 16 + 7.4 * Math.max(...groups.map((g) => g.length)), style = { fontSize: 13, background: "none" };
  const histogram = Plot.plot({ style, width: left + 40 + Math.max(220, 52 * bins.length),
    height: 64 + 26 * groups.length, marginLeft: left, marginBottom: 40, x: { domain: bins, type: "band",
    label: "mean steps of the positions of an example" }, y: { domain: groups, label: null, tickSize: 0 },
    marks: [Plot.cell(count, { x: "steps", y: "group", fill: (d) => d3.interpolateCividis(d.share), tip: true,
      title: (d) =>
      `${d.group}: ${d.number} examples of ${d.steps} steps (${d3.format(".0%")(d.share)} of the group)` }),
      Plot.text(count, { x: "steps", y: "group", text: "number", fill: (d) => (d.share > 0.55 ? "#111" : "#fff") })] });
  const errors = d3.flatRollup(rows, (part) => ({ error: d3.mean(part, (d) => d.wrong), number: part.length }),
    bin).map(([steps, each]) => ({ steps, ...each })).sort((a, b) => a.steps - b.steps);
  const curve = Plot.plot({ style, width: 460, height: 300, marginLeft: 56, marginBottom: 44, insetLeft: 18,
    insetRight: 18, grid: true, x: { label: "mean steps of the positions of an example" },
    y: { label: "mean error", domain: [0, Math.max(0.05, d3.max(errors, (d) => d.error))], tickFormat: ".0%" },
    marks: [Plot.lineY(errors, { x: "steps", y: "error", stroke: "#0072b2" }),
      Plot.dot(errors, { x: "steps", y: "error", r: "number", fill: "#0072b2", tip: true, title: (d) =>
      `${d.steps} steps: error ${d3.format(".1%")(d.error)} of ${d.number} examples` })] });
  const hardest = d3.sort(rows, (d) => -d.wrong, (d) => -d.steps).slice(0, 25);
  const table = make("table", {}, make("tr", {}, ...["example", "group", "error", "mean steps", "most steps",
    ...(rows.some((d) => d.supports) ? ["supporting facts"] : [])].map((text) => make("th", { textContent: text }))),
    ...hardest.map((d) =>
      make("tr", {}, make("td", {}, make("button", { type: "button", textContent: `${d.set} ${d.number + 1}`,
      onclick: () => open(d.set, d.number) })),
      ...[d.group || "all", d3.format(".0%")(d.wrong), d3.format(".2f")(d.steps), d.most,
        ...(rows.some((e) => e.supports) ? [d.supports] : [])].map((text) => make("td", { textContent: text })))));
  const figure = (title, note, content) => { const holder = make("div", {}, content);
    return make("figure", {}, content === table ? "" : saving(holder, `${about.name} ${title}`, title),
    make("h3", { textContent: title }), holder, make("p", { className: "note", textContent: note })); };
  $("test").replaceChildren(make("div", { className: "panels" },
    figure("Steps by group", "Number: examples; colour: share of the group.", histogram), figure("Error against steps",
    "Error of an example: 0 right, 1 wrong; size: number of examples.", curve),
    figure("Hardest examples", "A click opens one.", table)));
}

/* Start ------------------------------------------------------------------------------------------------------ */

async function save() {
  const { page, place } = await (await fetch("/api/saved")).json(), [before, after] = page.split(place);
  download(`${models.map((each) => each.name).join("_")}.html`, before + JSON.stringify(traces).replaceAll("<",
    "\\u003c") + after, "text/html");
}

async function start() {
  const reply = await (await fetch("/api/models")).json();
  ({ models, most_new } = reply);
  about = models[0];
  readState();
  if (state.rule === undefined && about.calibration) state.rule = "calibrated";
  controls();
  if (state.text === undefined && state.set === undefined && about.first) [state.set, state.number] = about.first;
  $("text").oninput = typed;
  $("max-steps").oninput = () => { if (state.rule === "calibrated") state.rule = "trained";
    set("steps", $("max-steps").value); };
  $("rule").onchange = () => { state.threshold = 0; set("rule", $("rule").value); };
  $("threshold").oninput = () => set("threshold", $("threshold").value);
  $("most").oninput = () => set("most", $("most").value);
  $("form").onsubmit = (event) => { event.preventDefault(); ask(); };
  $("example").onclick = nextExample;
  $("tab-input").onclick = () => { state.view = "input"; writeState(); show(); };
  $("tab-test").onclick = () => { state.view = "test"; writeState(); show(); if (!$("test").children.length) runTest();
    };
  $("run-test").onclick = runTest;
  $("save-json").onclick = () => download(`${models[0].name}.json`, JSON.stringify(traces.length > 1 ? traces
    : traces[0]), "application/json");
  $("save-html").onclick = save;
  $("link").onclick = async () => { await navigator.clipboard.writeText(location.href).catch(() => {});
    $("status").textContent = "the address of this page has the state"; };
  window.onhashchange = () => { readState(); show(); ask(); };
  show();
  if (state.text !== undefined || state.set !== undefined) ask();
  if (state.view === "test") runTest();
}
start().catch((error) => { $("error").textContent = error.message; });
