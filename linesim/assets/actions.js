// What a tap on a bot's button does: of a quick reply, a message or a rich menu.

import { upload } from "./api.js";
import { time } from "./clock.js";
import { byId, icon, make, picture, ZONE } from "./dom.js";
import { openMenu, setUpMenu } from "./menu.js";
import { ask } from "./people.js";
import { PLACES } from "./stickers.js";

let perform; // sends an act of the open chat, or what a promise makes one
let tell; // shows an error; an empty text clears it
const toast = make("p", { class: "toast", role: "status", hidden: true });

export function setUpActions(send, show) {
  perform = send;
  tell = show;
  setUpMenu(choose);
  byId("talk").append(toast);
}

const ACTIONS = {
  message: ({ text }) => perform({ act: "text", text }),
  postback: answer,
  uri: visit,
  datetimepicker: pickMoment,
  camera: () => sendMedia({ capture: "environment" }),
  cameraRoll: () => sendMedia({ multiple: true }),
  location: sendPlace,
  clipboard: copy,
  watched: ({ trackingId: tracking }) => perform({ act: "videoPlayComplete", tracking }), // a video to its end
  richmenuswitch: ({ richMenuAliasId: alias, data }) => perform({ act: "richmenuswitch", alias, data }),
};

export function choose(action) {
  const act = ACTIONS[action.type];
  return act ? act(action) : tell(`この動作は試せません: ${action.type}`);
}

// These buttons stay until something is sent.
const STAYING = new Set(["camera", "cameraRoll", "location", "datetimepicker"]);

export function drawReplies(quickReply) {
  const items = quickReply?.items || [];
  byId("replies").hidden = !items.length;
  byId("replies").replaceChildren(...items.map(replyButton));
}

function replyButton({ imageUrl, action }) {
  const sign = { camera: "camera", cameraRoll: "photo", location: "pin" }[action.type];
  const onclick = () => {
    if (!STAYING.has(action.type)) drawReplies(null);
    choose({ ...action, altUri: undefined }); // LINE ignores it here
  };
  return make("button", { type: "button", onclick }, imageUrl ? picture(imageUrl, { alt: "" }) : sign ? icon(sign) : null, action.label);
}

const INPUTS = {
  closeRichMenu: () => openMenu(false),
  openRichMenu: () => openMenu(true),
  openKeyboard: (fillInText) => {
    openMenu(false);
    const field = byId("text");
    if (fillInText) field.value = fillInText;
    field.dispatchEvent(new Event("input"));
    field.focus();
  },
  openVoice: () => {
    openMenu(false);
    if (byId("tools").hidden) byId("open-tools").click();
    byId("tools").querySelector("[data-send=audio]").focus();
  },
};

async function answer({ data, displayText, text, inputOption, fillInText }) {
  INPUTS[inputOption]?.(fillInText);
  if (text) await perform({ act: "text", text });
  await perform({ act: "postback", data, shown: displayText });
}

function visit({ uri, altUri }) {
  const href = (matchMedia("(min-width: 760px)").matches && altUri?.desktop) || uri;
  const opens = /^https?:/i.test(href);
  if (opens) open(href, "_blank", "noopener,noreferrer");
  announce(opens ? "新しいタブで開きました: " : "LINEが開くアドレス: ", href);
}

export async function copy({ clipboardText }) {
  try {
    await navigator.clipboard.writeText(clipboardText);
    announce("コピーしました: ", clipboardText);
  } catch {
    announce("コピーできませんでした: ", clipboardText);
  }
}

let hiding;

function announce(what, value) {
  toast.replaceChildren(what, make("strong", {}, value));
  toast.hidden = false;
  clearTimeout(hiding);
  hiding = setTimeout(() => (toast.hidden = true), 6000);
}

const MOMENTS = { date: ["日付", "date", 0, 10], time: ["時刻", "time", 11, 16], datetime: ["日時", "datetime-local", 0, 16] };

async function pickMoment({ data, mode, initial = "", min = "", max = "" }) {
  const dialog = byId("moment-dialog");
  const input = byId("moment");
  const [name, type, start, end] = MOMENTS[mode];
  const now = new Date(time()).toLocaleString("sv-SE", ZONE).replace(" ", "T").slice(start, end);
  dialog.querySelector("h2").textContent = `${name}を選ぶ`;
  input.type = type;
  // LINE takes a small t as well.
  [input.min, input.max, input.value] = [min, max, initial || now].map((moment) => moment.replace("t", "T"));
  if (input.validity.rangeUnderflow) input.value = input.min;
  if (input.validity.rangeOverflow) input.value = input.max;
  byId("moment-range").textContent = min || max ? `${input.min.replace("T", " ")} 〜 ${input.max.replace("T", " ")}` : "";
  if ((await ask(dialog)) === "ok") await perform({ act: "postback", data, params: { [mode]: input.value } });
}

function sendMedia(properties) {
  const input = make("input", { type: "file", accept: "image/*,video/*", ...properties });
  input.addEventListener("change", async () => {
    for (const file of input.files) {
      const act = file.type.startsWith("video/") ? "video" : "image";
      await perform(upload(file).then((medium) => ({ act, medium })));
    }
  });
  input.click();
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
