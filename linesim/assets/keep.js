// Saves and loads the simulator's state, and saves a chat as a test.

import { post, reason } from "./api.js";
import { byId, make } from "./dom.js";

// `chosen()` is the open chat's id; `tell(text)` shows an error, and an empty text clears it.
export function setUpKeep(chosen, tell) {
  byId("load").addEventListener("click", () => byId("saved").click());
  byId("saved").addEventListener("change", async ({ target }) => {
    const [file] = target.files;
    target.value = "";
    if (!file || !confirm("今の利用者とトークは、ファイルの内容に置き換わります。読み込みますか？")) return;
    await trying("読み込めませんでした", () => post("/sim/saved", file));
  });
  byId("record").addEventListener("click", () =>
    trying("テストとして保存できませんでした", () => download(`/sim/chats/${encodeURIComponent(chosen())}/test`)),
  );

  async function trying(failure, job) {
    try {
      await job();
      tell("");
    } catch (error) {
      tell(`${failure}: ${error.message}`);
    }
  }
}

async function download(path) {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error(await reason(answer));
  const url = URL.createObjectURL(await answer.blob());
  const name = answer.headers.get("content-disposition").match(/filename="(.+)"/)[1];
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
