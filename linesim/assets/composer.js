// The input line, with its drafts and mentions, its trays, and files that are pasted or dropped.

import { sendFiles, sendPlace } from "./actions.js";
import { byId, make, moveByArrows } from "./dom.js";
import { chat, here, nameById, perform } from "./state.js";
import { STICKERS, stickerPicture } from "./stickers.js";

const text = byId("text");
const TRAYS = ["tools", "stickers"];
let where = null; // the open chat's id
let about = null; // the message that is quoted or edited: { bubble, edits, before }

const canSend = () => where && !byId("composer").hidden;
const draftOf = (chatId) => localStorage.getItem(`draft:${chatId}`) || "";

function keep(chatId, words) {
  if (words) localStorage.setItem(`draft:${chatId}`, words);
  else localStorage.removeItem(`draft:${chatId}`);
}

byId("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  submit();
});
text.addEventListener("input", () => {
  changed();
  offer(fitting(), 0);
});
text.addEventListener("blur", () => offer([]));
text.addEventListener("keydown", (event) => {
  // While an input method converts kana, Enter accepts the conversion; Safari reports 229 instead.
  if (event.isComposing || event.keyCode === 229) return;
  if (takesKey(event)) event.preventDefault();
  else if (event.key === "Enter" && !event.shiftKey) {
    event.preventDefault();
    submit();
  }
});
byId("about-close").addEventListener("click", () => dismiss());
byId("composer").addEventListener("keydown", ({ key, defaultPrevented }) => key === "Escape" && !defaultPrevented && dismiss());

// The open chat, with its draft.
export function writeIn(chatId) {
  closeTrays();
  where = chatId;
  setAbout(null);
  fill(chatId ? draftOf(chatId) : "");
}

export function quote(bubble, name, words) {
  setAbout({ bubble, title: `${name}へのリプライ`, words });
  text.focus();
}

export function edit(bubble) {
  setAbout({ bubble, edits: true, title: "メッセージを編集", words: bubble.message.text, before: text.value });
  fill(bubble.message.text);
  text.focus();
}

function setAbout(found) {
  about = found;
  byId("about").hidden = !found;
  byId("about-title").textContent = found?.title || "";
  byId("about-words").textContent = found?.words || "";
}

// Esc ends one thing at a time.
function dismiss() {
  if (about) {
    const { edits, before } = about;
    setAbout(null);
    if (edits) fill(before);
    return text.focus();
  }
  const open = TRAYS.find((name) => !byId(name).hidden);
  closeTrays();
  return open && byId(`open-${open}`).focus();
}

async function submit() {
  const [words, chatId, wanted] = [text.value, where, about];
  if (!words.trim()) return;
  setAbout(null);
  fill(wanted?.edits ? wanted.before : "");
  const message = wanted?.bubble.messageId;
  const said = { act: "text", text: words, ...(message && { quoted: message }) };
  const act = wanted?.edits ? { act: "edit", message, text: words } : said;
  if (await perform(act)) return;
  const again = (later) => (wanted?.edits ? words : [words, later].filter(Boolean).join("\n"));
  if (chatId !== where) keep(chatId, again(draftOf(chatId)));
  else {
    if (!about) setAbout(wanted);
    fill(again(text.value));
  }
}

function fill(words) {
  text.value = words;
  changed();
}

function changed() {
  if (where && !about?.edits) keep(where, text.value);
  text.style.height = "auto";
  text.style.height = `${Math.min(text.scrollHeight, 130)}px`;
  byId("send").disabled = !text.value.trim();
}

function closeTrays() {
  for (const name of TRAYS) toggle(name, false);
}

for (const name of TRAYS) {
  moveByArrows(byId(name));
  byId(`open-${name}`).addEventListener("click", () => {
    const open = byId(name).hidden;
    closeTrays();
    toggle(name, open);
    if (open) byId(name).querySelector("button").focus();
  });
}
byId("stickers").replaceChildren(
  ...STICKERS.map(({ packageId, stickerId, keywords }) => {
    const onclick = () => leaveTray(() => perform({ act: "sticker", package: packageId, sticker: stickerId, keywords }));
    const properties = { type: "button", ariaLabel: `スタンプ ${keywords[0]}`, onclick };
    return make("button", properties, stickerPicture({ packageId, stickerId }));
  }),
);
byId("tools").addEventListener("click", ({ target }) => {
  const kind = target.closest("[data-send]")?.dataset.send;
  if (kind === "upload") byId("upload").click();
  else if (kind) leaveTray(() => (kind === "location" ? sendPlace() : perform({ act: kind })));
});

function leaveTray(send) {
  closeTrays();
  text.focus();
  send();
}

function toggle(name, open) {
  byId(name).hidden = !open;
  byId(`open-${name}`).ariaExpanded = String(open);
}

byId("upload").addEventListener("change", ({ target }) => {
  closeTrays();
  sendFiles([...target.files]);
  target.value = "";
});
text.addEventListener("paste", (event) => take(event, event.clipboardData));
// On the whole page: a browser would open a file that is dropped beside the chat.
const page = document.body;
page.addEventListener("dragover", (event) => {
  if (!event.dataTransfer.types.includes("Files")) return;
  event.preventDefault();
  page.classList.toggle("dropping", canSend());
});
page.addEventListener("dragleave", () => page.classList.remove("dropping"));
page.addEventListener("drop", (event) => {
  page.classList.remove("dropping");
  take(event, event.dataTransfer);
});

function take(event, { files }) {
  if (!files.length) return;
  event.preventDefault();
  if (canSend()) sendFiles([...files]);
}

// Typing @ in a group offers its members, the bot and All.
let offered = [];
let place = 0;

// The names that fit the letters from the last @ to the caret.
function fitting() {
  const [, letters] = /@([^\s@]*)$/.exec(text.value.slice(0, text.selectionStart)) || [];
  const { kind, members } = chat() || {};
  if (letters === undefined || !members || kind === "user") return [];
  const names = [...members.filter((id) => id !== here.speaker).map(nameById), here.state.bot.name, "All"];
  return names.filter((name) => name.toLowerCase().startsWith(letters.toLowerCase()));
}

function offer(names, chosen) {
  [offered, place] = [names, chosen];
  byId("mentions").hidden = !names.length;
  byId("mentions").replaceChildren(
    ...names.map((name, number) => {
      const onpointerdown = (event) => {
        event.preventDefault();
        insert(name);
      };
      const properties = { id: `mention-${number}`, role: "option", ariaSelected: String(number === place) };
      return make("li", { ...properties, onpointerdown }, `@${name}`);
    }),
  );
  text.setAttribute("aria-activedescendant", names.length ? `mention-${place}` : "");
  byId(`mention-${place}`)?.scrollIntoView({ block: "nearest" });
}

// Whether the key was for the offered names.
function takesKey({ key }) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[key];
  if (!offered.length) return false;
  if (step) offer(offered, (place + step + offered.length) % offered.length);
  else if (key === "Enter" || key === "Tab") insert(offered[place]);
  else if (key === "Escape") offer([]);
  else return false;
  return true;
}

function insert(name) {
  const start = text.value.slice(0, text.selectionStart).lastIndexOf("@");
  text.setRangeText(`@${name} `, start, text.selectionStart, "end");
  changed();
  offer([]);
}
