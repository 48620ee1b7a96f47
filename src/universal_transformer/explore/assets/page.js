/* The page of `ut explore` and of `ut export --format web`: asks for traces and draws them. The fragment of its address
holds its state. The answers come from backend.js, which gives

  about()                                {models, most_new, same_test, note}; of a model: page_model.py
  answer(model, asked, signal, onToken)  {text, trace} of a text, or of an example (set, number), at a depth;
                                         onToken(token): each token that is written, before that
  test(model, asked)                     a row for each example of the test
  emptyPage()                            {page, place}: a page without traces, and what stands in their place */
import { VIEWS, draw, download, make, saving } from "./draw.js";
import * as backend from "./backend.js";

const $ = (id) => document.getElementById(id);
const SHOWN = ["step", "head", "block", "matrix"], DIAL = ["steps", "rule", "threshold"], BOTH = "both";
const STATE = ["text", "set", "number", "from", "most", "view", "tested", ...SHOWN,
  ...DIAL.flatMap((name) => [name, name + 2])];
const RULES = { state_change: "when its state changes by less than",
  output_change: "when its prediction changes by less than",
  confidence: "when the model is surer than", halting_threshold: "when its halting probabilities sum to" };
const NEVER = "state_change:1e-30";
const state = {};
let models, about, most_new, same_test, dials, traces = [], asking, timer;

/* State ------------------------------------------------------------------------------------------------------ */

function readState() {
  const given = new URLSearchParams(location.hash.slice(1));
  for (const name of STATE) if (given.has(name)) state[name] = given.get(name); else delete state[name];
  for (const each of dials) each.begin();
  about = models[state.from] ?? models.find((each) => Object.keys(each.sets).length) ?? models[0];
}
function writeState() {
  const kept = STATE.filter((name) => state[name] !== undefined && state[name] !== "");
  history.replaceState(null, "", "#" + new URLSearchParams(kept.map((name) => [name, state[name]])));
}

/* The depth of a model: `node` chooses it, `asked()` is what a request says of it. */
function dial(of, number) {
  const suffix = number ? number + 1 : "", key = (name) => name + suffix, get = (name) => state[key(name)];
  const range = (id, min, max) => make("input", { type: "range", id: id + suffix, min, max, step: 1 });
  const most = range("max-steps", of.least_steps, of.most_steps), mostShown = make("output");
  const limit = range("threshold", 0, 0), limitShown = make("output"), rule = make("select", { id: `rule${suffix}` });
  const limits = make("label", {}, "at ", limit, " ", limitShown);
  const choices = { ...(of.calibration && { calibrated: "as calibrated" }),
    trained: of.halts ? "as trained" : "after the last step",
    ...(of.halts && of.rules.state_change && { fixed: "after the last step, as all others" }),
    ...Object.fromEntries(Object.entries(RULES).filter(([name]) => of.rules[name])) };
  rule.append(...Object.entries(choices).map(([value, textContent]) => make("option", { value, textContent })));
  const change = (values) => {
    for (const [name, value] of Object.entries(values)) state[key(name)] = value;
    writeState(); show(); later(60);
  };
  most.oninput = () => change({ steps: most.value, ...(get("rule") === "calibrated" && { rule: "trained" }) });
  rule.onchange = () => change({ rule: rule.value, threshold: 0 });
  limit.oninput = () => change({ threshold: limit.value });
  most.disabled = of.least_steps === of.most_steps;
  const value = () => of.rules[get("rule")]?.[Number(get("threshold") ?? 0)];
  return {
    node: make("div", { className: "dial" }, models.length > 1 ? make("h3", { textContent: of.name }) : "",
      make("label", {}, "Most steps ", most, " ", mostShown), make("label", {}, "A position stops ", rule), limits,
      make("p", { className: "note", textContent: of.limits })),
    begin() { if (!(get("rule") in choices)) state[key("rule")] = Object.keys(choices)[0]; },
    show() {
      most.value = get("steps") ?? of.max_steps;
      mostShown.textContent = most.value + (Number(most.value) === of.max_steps ? " (as trained)" : "");
      rule.value = get("rule");
      limits.hidden = value() === undefined;
      if (limits.hidden) return;
      limit.max = of.rules[get("rule")].length - 1;
      limit.value = get("threshold") ?? 0;
      limitShown.textContent = d3.format(".4~g")(value());
    },
    asked() {
      const steps = Number(get("steps") ?? of.max_steps), name = get("rule");
      const asked = { calibrated: name === "calibrated" };
      if (steps !== of.max_steps) asked.max_steps = steps;
      if (name === "halting_threshold") asked[name] = value();
      else if (name === "fixed" && steps > 1) asked.exit = NEVER;
      else if (value() !== undefined) asked.exit = `${name}:${value()}`;
      if (of.writes && state.most) asked.max_new_tokens = Number(state.most);
      return asked;
    },
  };
}

/* Controls --------------------------------------------------------------------------------------------------- */

function controls() {
  $("title").textContent = document.title = models.map((each) => each.name).join(" and ") + ": step by step";
  const view = VIEWS[about.view.form];
  $("text-label").textContent = view.typed;
  $("board").replaceChildren(...[view.editor?.(about.view, $("text"))].filter(Boolean));
  $("dials").replaceChildren(...dials.map((each) => each.node));
  $("most-label").hidden = !models.some((each) => each.writes);
  $("most").max = most_new;
  $("example").hidden = !sets().length;
  const tested = models.map(({ name }, value) => [value, name]).concat(same_test ? [[BOTH, "both, side by side"]] : []);
  $("tested").replaceChildren(...tested.map(([value, textContent]) => make("option", { value, textContent })));
  $("tested-label").hidden = models.length === 1;
}

function show() {
  if (document.activeElement !== $("text")) $("text").value = state.text ?? $("text").value;
  $("board").firstChild?.utShow();
  $("text").rows = Math.max(2, Math.min(14, $("text").value.split("\n").length));
  for (const each of dials) each.show();
  $("most").value = state.most ?? "";
  $("tested").value = state.tested ?? (same_test ? BOTH : 0);
  $("origin").textContent = state.set ? `Example ${d3.format(",")(Number(state.number) + 1)} of ${
    d3.format(",")(about.sets[state.set])}: ${state.set}.` : "";
  $("missing").hidden = !about.obstacle;
  $("missing").lastChild.textContent = ` ${about.obstacle}`;
  const test = state.view === "test";
  for (const [name, on] of [["input", !test], ["test", test]]) {
    $(`view-${name}`).hidden = !on;
    $(`tab-${name}`).setAttribute("aria-selected", on);
  }
  document.querySelector("main").className = test ? "test" : "";
}

const later = (wait = 200) => { clearTimeout(timer); timer = setTimeout(ask, wait); };
function typed() { state.text = $("text").value; delete state.set; delete state.number; writeState(); show(); later(); }
const sets = () => Object.keys(about.sets);

/* Answers ---------------------------------------------------------------------------------------------------- */

async function ask() {
  clearTimeout(timer);
  asking?.abort();
  const mine = (asking = new AbortController()), begun = performance.now(), number = models.indexOf(about);
  $("error").textContent = $("made").textContent = "";
  $("status").textContent = "…";
  const token = (each) => $("made").append(make("span", { title: `p = ${d3.format(".3f")(each.probability)}` },
    each.token || "␣", make("sub", { textContent: each.steps })));
  const answer = (model, given, onToken) =>
    backend.answer(model, { ...given, ...dials[model].asked() }, mine.signal, onToken);
  try {
    const example = { set: state.set, number: Number(state.number) };
    const first = await answer(number, state.set === undefined ? { text: state.text ?? "" } : example, token);
    const found = [];
    for (const model of models.keys())
      found.push(model === number ? first.trace
        : alike((await answer(model, { text: first.text }, () => {})).trace, first.trace));
    if (mine !== asking) return;
    traces = found;
    if (state.set !== undefined || state.text === undefined) $("text").value = first.text;
    $("made").textContent = "";
    redraw();
    show();
    $("status").textContent = `${Math.round(performance.now() - begun)} ms`;
  } catch (error) {
    if (error.name === "AbortError" || mine !== asking) return;
    $("status").textContent = "";
    $("error").textContent = error.message;
  }
}
function alike(trace, first) {  // both read the same text, so that what is known of it holds for both
  trace.right = first.right;
  if (trace.sides[0].tokens.length === first.sides[0].tokens.length) trace.sides[0].supports = first.sides[0].supports;
  return trace;
}

function redraw() {
  const holder = $("traces");
  holder.className = traces.length > 1 ? "two" : "";
  holder.replaceChildren(...traces.map((trace) => {
    const place = make("div");
    for (const name of SHOWN) if (state[name] !== undefined) place.dataset[name] = state[name];
    place.addEventListener("choose", () => {
      for (const name of SHOWN) if (place.dataset[name]) state[name] = place.dataset[name];
      writeState();
    });
    queueMicrotask(() => draw(place, trace));
    return make("section", {}, traces.length > 1 ? make("h2", { textContent: trace.model }) : "", place);
  }));
}

function nextExample() {
  const [set, number] = state.set === undefined ? about.first : [state.set, Number(state.number) + 1];
  const next = number < about.sets[set] ? set : sets()[(sets().indexOf(set) + 1) % sets().length];
  open(next, next === set && number < about.sets[set] ? number : 0);
}
function open(set, number, of = about) {
  about = of;
  Object.assign(state, { set, number, from: models.indexOf(of), view: "input" });
  delete state.text;
  writeState(); show(); ask();
  window.scrollTo(0, 0);
}

/* The whole test --------------------------------------------------------------------------------------------- */

async function runTest() {
  $("test-error").textContent = "";
  $("test-status").textContent = "running …";
  const begun = performance.now(), tested = $("tested").value, chosen = tested === BOTH ? [...models.keys()]
    : [Number(tested)];
  try {
    const limit = Number($("limit").value), parts = [], missing = chosen.find((model) => models[model].obstacle);
    if (missing !== undefined) throw new Error(models[missing].obstacle);
    for (const model of chosen) parts.push(await backend.test(model, { ...dials[model].asked(), limit }));
    const seconds = (performance.now() - begun) / 1000, number = parts[0].length;
    $("test-status").textContent = `${number} examples in ${seconds.toFixed(1)} s`;
    $("test").className = parts.length > 1 ? "two" : "";
    $("test").replaceChildren(...parts.map((rows, i) => drawTest(rows, models[chosen[i]])));
  } catch (error) {
    $("test-status").textContent = "";
    $("test-error").textContent = error.message;
  }
}

function drawTest(rows, of) {
  const hundredths = d3.format(".2f"), error = hundredths(100 * d3.mean(rows, (d) => d.wrong)),
    mean = hundredths(d3.mean(rows, (d) => d.steps)), whole = (share) => `${d3.format(".0f")(100 * share)} %`;
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
      `${d.group}: ${d.number} examples of ${d.steps} steps (${whole(d.share)} of the group)` }),
      Plot.text(count, { x: "steps", y: "group", text: "number", fill: (d) => (d.share > 0.55 ? "#111" : "#fff") })] });
  const errors = d3.flatRollup(rows, (part) => ({ error: d3.mean(part, (d) => d.wrong), number: part.length }),
    bin).map(([steps, each]) => ({ steps, ...each })).sort((a, b) => a.steps - b.steps);
  const curve = Plot.plot({ style, width: 460, height: 300, marginLeft: 56, marginBottom: 44, insetLeft: 18,
    insetRight: 18, grid: true, x: { label: "mean steps of the positions of an example", tickFormat: "~g",
    ...(errors.length < 12 && { ticks: errors.map((d) => d.steps) }) },
    y: { label: "mean error", domain: [0, Math.max(0.05, d3.max(errors, (d) => d.error))], tickFormat: whole },
    marks: [Plot.lineY(errors, { x: "steps", y: "error", stroke: "#0072b2" }),
      Plot.dot(errors, { x: "steps", y: "error", r: "number", fill: "#0072b2", tip: true, title: (d) =>
      `${d.steps} steps: error ${d3.format(".1f")(100 * d.error)} % of ${d.number} examples` })] });
  const hardest = d3.sort(rows, (d) => -d.wrong, (d) => -d.steps).slice(0, 25);
  const table = make("table", {}, make("tr", {}, ...["example", "group", "error", "mean steps", "most steps",
    ...(rows.some((d) => d.supports) ? ["supporting facts"] : [])].map((text) => make("th", { textContent: text }))),
    ...hardest.map((d) =>
      make("tr", {}, make("td", {}, make("button", { type: "button", textContent: `${d.set} ${d.number + 1}`,
      onclick: () => open(d.set, d.number, of) })),
      ...[d.group || "all", whole(d.wrong), d3.format(".2f")(d.steps), d.most,
        ...(rows.some((e) => e.supports) ? [d.supports] : [])].map((text) => make("td", { textContent: text })))));
  const figure = (title, note, content) => { const holder = make("div", {}, content);
    return make("figure", {}, content === table ? "" : saving(holder, `${of.name} ${title}`, title),
    make("h3", { textContent: title }), holder, make("p", { className: "note", textContent: note })); };
  return make("section", {}, make("h2", { textContent: of.name }),
    make("p", { textContent: `mean error ${error} %, mean steps ${mean}` }), make("div", { className: "panels" },
      figure("Steps by group", "Number: examples; colour: share of the group.", histogram),
      figure("Error against steps", "Error of an example: 0 right, 1 wrong; size: number of examples.", curve),
      figure("Hardest examples", "The largest error first, then the most steps. A click opens one.", table)));
}

/* Start ------------------------------------------------------------------------------------------------------ */

async function save() {
  const { page, place } = await backend.emptyPage(), [before, after] = page.split(place);
  download(`${models.map((each) => each.name).join("_")}.html`, before + JSON.stringify(traces).replaceAll("<",
    "\\u003c") + after, "text/html");
}

async function start() {
  const reply = await backend.about();
  ({ models, most_new, same_test } = reply);
  dials = models.map(dial);
  readState();
  controls();
  if (state.text === undefined && state.set === undefined && about.first) [state.set, state.number] = about.first;
  $("note").textContent = reply.note;
  $("status").textContent = "";
  $("text").oninput = typed;
  $("most").oninput = () => { state.most = $("most").value; writeState(); later(); };
  $("tested").onchange = () => { state.tested = $("tested").value; writeState(); runTest(); };
  $("form").onsubmit = (event) => { event.preventDefault(); ask(); };
  $("example").onclick = nextExample;
  const turn = (view) => { state.view = view; writeState(); show(); };
  $("tab-input").onclick = () => turn("input");
  $("tab-test").onclick = () => { turn("test"); if (!$("test").children.length) runTest(); };
  $("run-test").onclick = runTest;
  $("save-json").onclick = () => download(`${models[0].name}.json`, JSON.stringify(traces.length > 1 ? traces
    : traces[0]), "application/json");
  $("save-html").onclick = save;
  $("link").onclick = async () => { await navigator.clipboard.writeText(location.href).catch(() => {});
    $("status").textContent = "the address of this page has the state"; };
  window.onhashchange = () => { readState(); show(); ask(); };
  show();
  if (state.text !== undefined || state.set !== undefined) await ask();
  $("text").disabled = about.reads_files;  // not before: the text of an example would replace what is typed
  if (state.view === "test") runTest();
}
start().catch((error) => { $("error").textContent = error.message; });
