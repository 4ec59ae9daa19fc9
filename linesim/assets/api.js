// The page's calls to the simulator, and the stream of what changes there.

const request = (path, more) =>
  fetch(path, more).catch(() => {
    throw new Error("シミュレーターに接続できません");
  });

export async function get(path) {
  const answer = await request(path);
  if (!answer.ok) throw new Error(await reason(answer));
  return answer.json();
}

export async function post(path, body) {
  const answer = await request(path, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: body instanceof Blob ? body : JSON.stringify(body),
  });
  if (!answer.ok) throw new Error(await reason(answer));
  return answer.json();
}

export async function upload(file) {
  const answer = await request(`/sim/media?name=${encodeURIComponent(file.name)}`, {
    method: "POST",
    headers: { "content-type": file.type || "application/octet-stream" },
    body: file,
  });
  if (!answer.ok) throw new Error(await reason(answer));
  return (await answer.json()).medium;
}

// One webhook with one event; resolves when the bot server has answered or failed to.
export function act(details) {
  return post("/sim/deliveries", { acts: [details] });
}

// `handlers`: open, lost, and one for each kind of change. The browser reconnects by itself.
export function listen(handlers) {
  const stream = new EventSource("/sim/stream");
  stream.onopen = handlers.open;
  stream.onerror = handlers.lost;
  for (const kind of ["bubble", "people", "loading", "clock", "menu"]) {
    stream.addEventListener(kind, (event) => handlers[kind](JSON.parse(event.data)));
  }
}

export async function reason(answer) {
  const body = await answer.json().catch(() => ({}));
  return body.error || `エラー ${answer.status}`;
}
