/* The answers of `ut explore`: its server makes the traces. page.js says what a backend gives. */

async function post(path, body, signal) {
  const reply = await fetch(path, { method: "POST", headers: { "content-type": "application/json" },
    body: JSON.stringify(body), signal });
  if (reply.ok) return reply;
  throw new Error((await reply.json()).error.message);
}

let models;
export async function about() {
  const found = await (await fetch("api/models")).json();
  ({ models } = found);
  return found;
}
export const test = async (model, body) => (await (await post("api/test", { ...body, model })).json()).rows;
export const emptyPage = async () => (await fetch("api/saved")).json();

export async function answer(model, body, signal, onToken) {
  if (!models[model].writes) return (await post("api/trace", { ...body, model }, signal)).json();
  const reply = await post("api/stream", { ...body, model }, signal);
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ;) {
    const { done, value } = await reader.read();
    if (done) throw new Error("the answer ended too early");
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events.map((text) => JSON.parse(text.slice(6)))) {
      if (event.error) throw new Error(event.error.message);
      if (event.trace) return event;
      onToken(event);
    }
  }
}
