// What a tap on a bot's button does: of a quick reply, a message or a rich menu.

import { byId, make } from "./dom.js";
import { ask } from "./people.js";
import { PLACES } from "./stickers.js";

let perform; // sends an act of the open chat, or what a promise makes one
let tell; // shows an error; an empty text clears it

export function setUpActions(send, show) {
  perform = send;
  tell = show;
}

export function drawReplies(quickReply) {
  const items = quickReply?.items || [];
  byId("replies").hidden = !items.length;
  byId("replies").replaceChildren(
    ...items.map(({ action }) => make("button", { type: "button", onclick: () => choose(action) }, action.label || action.text || "")),
  );
}

export function choose(action) {
  drawReplies(null);
  if (action.type === "message") return perform({ act: "text", text: action.text });
  if (action.type === "postback") return perform({ act: "postback", data: action.data });
  if (action.type === "datetimepicker") return pickMoment(action);
  return tell(`この動作は試せません: ${action.type}`);
}

async function pickMoment({ data, mode, initial = "", min = "", max = "" }) {
  const input = byId("moment");
  input.type = mode === "datetime" ? "datetime-local" : mode;
  // LINE takes a small t as well.
  [input.value, input.min, input.max] = [initial || min, min, max].map((moment) => moment.replace("t", "T"));
  if ((await ask(byId("moment-dialog"))) !== "ok") return;
  await perform({ act: "postback", data, params: { [mode]: input.value } });
}

export async function sendPlace() {
  byId("places").replaceChildren(
    ...PLACES.map((place, number) =>
      make("button", { value: String(number) }, make("strong", {}, place.title), make("small", {}, place.address)),
    ),
  );
  const place = PLACES[await ask(byId("place-dialog"))];
  if (place) await perform({ act: "location", ...place });
}
