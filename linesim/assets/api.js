// The page's calls to the simulator, and the stream of what changes there.

async function call(path, more) {
  const answer = await fetch(path, more).catch(() => {
    throw new Error("シミュレーターに接続できません");
  });
  if (answer.ok) return answer;
  const { error } = await answer.json().catch(() => ({}));
  throw new Error(error || `エラー ${answer.status}`);
}

export async function get(path) {
  return (await call(path)).json();
}

export async function post(path, body, type = "application/json") {
  const sent = body instanceof Blob ? body : JSON.stringify(body);
  return (await call(path, { method: "POST", headers: { "content-type": type }, body: sent })).json();
}

// Types that a form could send are refused, so what is no picture, film or sound has none.
export async function upload(file) {
  const type = /^(image|video|audio)\//.test(file.type) ? file.type : "application/octet-stream";
  return (await post(`/sim/media?name=${encodeURIComponent(file.name)}`, file, type)).medium;
}

export async function download(path) {
  const answer = await call(path);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await answer.blob());
  link.download = answer.headers.get("content-disposition").match(/filename="(.+)"/)[1];
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

// One webhook with one event; resolves when the bot server has answered or failed to.
export function act(details) {
  return post("/sim/deliveries", { acts: [details] });
}

// `handlers`: open, lost, and one for each kind of change. The browser reconnects by itself.
export function listen({ open, lost, ...changes }) {
  const stream = new EventSource("/sim/stream");
  stream.onopen = open;
  stream.onerror = lost;
  for (const [kind, take] of Object.entries(changes)) {
    stream.addEventListener(kind, (event) => take(JSON.parse(event.data)));
  }
}
