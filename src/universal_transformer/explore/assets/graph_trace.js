/* Texts to ids, and the outputs of an exported graph to the trace that draw.js draws, as codec.py and input_trace.py do.

`about` is page.json, which web_page.py writes, with the source of codec.json. A member of FORMS reads a text: it returns
the ids and their shape, what stands at each position in the order of the graph, and the positions in reading order.
EXITS are those of rules/exits.py that need no more than the outputs of the graph, of a model that answers once. */

const MOST_WEIGHTS = 3 * 2 ** 20, UNKNOWN = 1, DIGITS = 1e6;
const wordsOf = (text) => text.split(/\s+/).map((word) => word.replace(/^[.,?!]+|[.,?!]+$/g, "")).filter(Boolean);
const rounded = (value) => Math.round(value * DIGITS) / DIGITS;
const range = (count) => Array.from({ length: count }, (_, i) => i);

export const FORMS = {
  /* A line for each fact, which may have a number as in the bAbI format, and the question as the last line. */
  facts(text, { source, longest }) {
    const [question, ...before] = text.split("\n").map((line) => line.trim().replace(/^\d+\s+/, "")).reverse();
    const lines = before.reverse().filter((line) => wordsOf(line).length);
    if (!wordsOf(question).length) throw new Error("Type a question.");
    if (lines.length >= longest) throw new Error(`${lines.length} facts; at most ${longest - 1} here.`);
    const kept = source.max_facts ? lines.slice(-source.max_facts) : lines;
    const rows = [...(source.recent_first ? kept.slice().reverse() : kept), question], last = rows.length - 1;
    const index = new Map(source.vocabulary.map((word, i) => [word, i + 2])), width = source.max_fact_words;
    const ids = new BigInt64Array(rows.length * width), names = ["<padding>", "<unknown>", ...source.vocabulary];
    const tokens = rows.map((row, at) => {
      const found = wordsOf(row).map((word) => index.get(word.toLowerCase()) ?? UNKNOWN);
      if (found.length > width) throw new Error(`“${row}” has ${found.length} words; a fact has at most ${width}.`);
      found.forEach((id, place) => { ids[at * width + place] = BigInt(id); });
      return found.map((id) => names[id]).join(" ");
    });
    const unknown = [...new Set([...lines, question].flatMap(wordsOf).filter((word) => !index.has(word.toLowerCase())))];
    const order = source.recent_first ? [...range(last).reverse(), last] : range(rows.length);
    return { ids, shape: [1, rows.length, width], tokens, order, unknown };
  },

  /* The cells of a board row by row, "." or 0 for a blank one; white space between them does not count. */
  board(text, { view }) {
    const cells = [...text.replace(/\s/g, "").replaceAll(".", "0")], { side, box_rows: rows, box_columns: columns } = view;
    const wrong = cells.find((cell) => !"0123456789".slice(0, side + 1).includes(cell));
    if (wrong !== undefined) throw new Error(`“${wrong}” in the board; expected digits 1 to ${side}, and 0 or . as blank.`);
    if (cells.length !== side ** 2) throw new Error(`A board of ${cells.length} cells; expected ${side ** 2}, row after row.`);
    const seen = new Set();
    cells.forEach((digit, i) => {
      const row = Math.floor(i / side), column = i % side, box = Math.floor(row / rows) * rows + Math.floor(column / columns);
      for (const unit of digit === "0" ? [] : [`row ${row + 1}`, `column ${column + 1}`, `box ${box + 1}`]) {
        if (seen.has(unit + digit)) throw new Error(`The digit ${digit} twice in ${unit}; expected once.`);
        seen.add(unit + digit);
      }
    });
    const ids = BigInt64Array.from(cells, (digit) => BigInt(Number(digit) + 1)), tokens = cells.map((digit) => (digit === "0" ? "." : digit));
    return { ids, shape: [1, cells.length], tokens, order: range(cells.length), unknown: [], given: cells.map(Number) };
  },
};

function softmax(logits) {
  const most = Math.max(...logits), all = logits.map((logit) => Math.exp(logit - most)), sum = all.reduce((a, b) => a + b);
  return all.map((value) => value / sum);
}

/* Numbers of a tensor in rows of its last axis. */
function rowsOf({ data, dims }) {
  const width = dims.at(-1);
  return range(data.length / width).map((row) => Array.from(data.subarray(row * width, (row + 1) * width)));
}

function packed({ data, dims: [made, , heads, n] }, layers, order, blocks, cut) {
  const averaged = heads > 1 && layers * heads * n * n > MOST_WEIGHTS, kept = averaged ? 1 : heads;
  if (averaged) cut.push(`attention is the mean over ${heads} heads`);
  const most = layers * kept * n * n > MOST_WEIGHTS ? Math.floor(Math.sqrt(MOST_WEIGHTS / layers)) : n;
  if (most < n) cut.push(`attention is that of the first ${most} positions`);
  const at = order.slice(0, most), bytes = new Uint8Array(layers * kept * most * most);
  let place = 0, text = "";
  for (let layer = 0; layer < layers; layer++)
    for (let head = 0; head < kept; head++)
      for (const row of at)
        for (const column of at) {
          const one = (each) => data[((layer * heads + each) * n + row) * n + column];
          bytes[place++] = Math.round(255 * (averaged ? range(heads).reduce((sum, each) => sum + one(each), 0) / heads : one(head)));
        }
  for (let from = 0; from < bytes.length; from += 8192) text += String.fromCharCode(...bytes.subarray(from, from + 8192));
  return { data: btoa(text), shape: [layers, kept, most, most], blocks };
}

const EXITS = {
  confidence: (now, before, value) => Math.max(...now) > value,
  output_change: (now, before, value) => Boolean(before)
    && before.reduce((sum, p, i) => sum + (p ? p * Math.log(p / now[i]) : 0), 0) < value,
};

/* The steps of a model whose positions stop together, from its answers after each step, and whether an exit held. */
function stopAfter(answers, most, exit) {
  const [name, value] = exit.split(":"), holds = (step) => EXITS[name](answers[step], answers[step - 1], Number(value));
  const step = range(most).find(holds);
  return { made: (step ?? most - 1) + 1, held: step !== undefined };
}

/* The trace of the outputs of the graph for what a form has read, at a depth of which each part may be missing. `known`:
the example, if the text is one. */
export function traceOf(outputs, read, about, known, { max_steps: most = about.max_steps, exit, halting_threshold }) {
  const { order, given } = read, label = (index) => about.labels[index], cut = [], n = order.length;
  const pick = (values) => order.map((row) => values[row]), each = rowsOf(outputs.step_logits).map(softmax);
  const perStep = each.length / outputs.step_logits.dims[0], after = (step) => each.slice(step * perStep, (step + 1) * perStep);
  const stopped = exit ? stopAfter(each, most, exit) : { made: about.halts ? Math.max(...outputs.encoder_steps.data) : most };
  const { made, held } = stopped, steps = about.halts ? outputs.encoder_steps.data : Array(n).fill(made);
  const all = about.halts ? rowsOf(outputs.logits).map(softmax) : after(made - 1);
  const best = (row) => { const largest = Math.max(...row); return [row.indexOf(largest), largest]; };
  const answerAt = (row, place) => (given?.[place] ? [String(given[place]), 1] : [label(best(row)[0]), rounded(best(row)[1])]);
  const output = given ? all.map(answerAt) : [], whole = given && all.reduce((product, row, i) => product * (given[i] ? 1 : best(row)[1]), 1);
  const ranked = range(all[0].length).sort((a, b) => all[0][b] - all[0][a]).slice(0, 3).map((index) => [label(index), rounded(all[0][index])]);
  const choices = given ? [[output.map(([text]) => text).join(""), rounded(whole)]] : ranked;
  const halting = exit ? range(made).map((step) => Array(n).fill(Number(held && step === made - 1)))
    : outputs.encoder_halting && rowsOf(outputs.encoder_halting).slice(0, made).map((row) => pick(row.map(rounded)));
  const side = {
    side: "encoder", tokens: pick(read.tokens), columns: pick(read.tokens), steps: pick(steps),
    remainders: pick(outputs.encoder_remainder ? Array.from(outputs.encoder_remainder.data, rounded) : Array(n).fill(Number(Boolean(exit)))),
    halting: halting ?? null, self_attention: packed(outputs.encoder_attention, made * about.blocks, order, about.blocks, cut),
    cross_attention: null, supports: known?.supports ?? [],
  };
  return {
    model: about.name, view: about.view, max_steps: most, halting: about.halts || Boolean(exit),
    threshold: exit ? null : halting_threshold ?? about.threshold, sides: [side], answer: choices[0][0], probability: choices[0][1], finished: true,
    right: known?.right ?? null, choices, output, places: given ? range(n) : [],
    after_steps: range(made).map((step) => after(step).map(answerAt)), unknown: read.unknown, cut,
  };
}
