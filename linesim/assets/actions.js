// What a tap on a bot's button does: of a quick reply, a message or a rich menu.

import { upload } from "./api.js";
import { time } from "./clock.js";
import { byId, icon, make, picture, ZONE } from "./dom.js";
import { announce, ask, hint, tell } from "./popup.js";
import { perform } from "./state.js";
import { PLACES } from "./stickers.js";

const ACTIONS = {
  message: ({ text }) => perform({ act: "text", text }),
  postback: answer,
  uri: visit,
  datetimepicker: pickMoment,
  camera: () => chooseMedia({ capture: "environment" }),
  cameraRoll: () => chooseMedia({ multiple: true }),
  location: sendPlace,
  clipboard: copy,
  richmenuswitch: ({ richMenuAliasId: alias, data }) => perform({ act: "richmenuswitch", alias, data }),
};

export function choose(action) {
  const act = ACTIONS[action.type];
  return act ? act(action) : tell(`このアクションは試せません: ${action.type}`);
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
  const shown = imageUrl ? picture(imageUrl, { alt: "" }) : sign ? icon(sign) : null;
  return make("button", { type: "button", onclick }, shown, action.label);
}

export function openMenu(open) {
  byId("menu-board").hidden = !open;
  byId("menu-bar").ariaExpanded = String(open);
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
  announce(opens ? "新しいタブで開きました: " : "LINEで開くURL: ", href);
}

export async function copy({ clipboardText }) {
  try {
    await navigator.clipboard.writeText(clipboardText);
    announce("コピーしました: ", clipboardText);
  } catch {
    announce("コピーできませんでした: ", clipboardText);
  }
}

const MOMENTS = {
  date: ["日付", "date", 0, 10],
  time: ["時刻", "time", 11, 16],
  datetime: ["日時", "datetime-local", 0, 16],
};

async function pickMoment({ data, mode, initial = "", min = "", max = "" }) {
  const [name, type, start, end] = MOMENTS[mode];
  const now = new Date(time()).toLocaleString("sv-SE", ZONE).replace(" ", "T").slice(start, end);
  const input = make("input", { type, id: "moment", ariaLabel: name, required: true });
  // LINE takes a small t as well.
  [input.min, input.max, input.value] = [min, max, initial || now].map((moment) => moment.replace("t", "T"));
  if (input.validity.rangeUnderflow) input.value = input.min;
  if (input.validity.rangeOverflow) input.value = input.max;
  const range = min || max ? [hint(`${input.min} 〜 ${input.max}`.replaceAll("T", " "))] : [];
  if ((await ask(`${name}を選ぶ`, [input, ...range], "決定")) === "ok") {
    await perform({ act: "postback", data, params: { [mode]: input.value } });
  }
}

function chooseMedia(properties) {
  const onchange = () => sendFiles(input.files);
  const input = make("input", { type: "file", accept: "image/*,video/*", ...properties, onchange });
  input.click();
}

// Each is one message, in order.
export async function sendFiles(files) {
  for (const file of files) {
    const [kind] = file.type.split("/");
    const act = ["image", "video", "audio"].includes(kind) ? kind : "file";
    if (!(await perform(upload(file).then((medium) => ({ act, medium }))))) return;
  }
}

export async function sendPlace() {
  const places = PLACES.map((place, number) =>
    make("button", { value: String(number) }, make("strong", {}, place.title), make("small", {}, place.address)),
  );
  const place = PLACES[await ask("位置情報を送る", [make("div", { class: "places" }, ...places)])];
  if (place) await perform({ act: "location", ...place });
}
