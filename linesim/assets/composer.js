// The input line, with its drafts, its trays of stickers and attachments, and files that are dropped.

import { sendPlace } from "./actions.js";
import { upload } from "./api.js";
import { byId, make, moveByArrows } from "./dom.js";
import { offer, takesKey, withdraw } from "./mentions.js";
import { STICKERS, stickerPicture } from "./stickers.js";

const text = byId("text");
const TRAYS = ["tools", "stickers"];
let where = null; // the open chat's id
let about = null; // the message that is quoted or edited: { bubble, edits, before }
let send; // sends an act, or what a promise makes one; resolves to whether it was sent
let people; // the names that can be mentioned

const canSend = () => where && !byId("composer").hidden;
const draftOf = (chatId) => localStorage.getItem(`draft:${chatId}`) || "";

function keep(chatId, words) {
  if (words) localStorage.setItem(`draft:${chatId}`, words);
  else localStorage.removeItem(`draft:${chatId}`);
}

export function setUpComposer(perform, names) {
  [send, people] = [perform, names];
  byId("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    submit();
  });
  text.addEventListener("input", () => {
    changed();
    offer(text, people());
  });
  text.addEventListener("blur", () => withdraw(text));
  text.addEventListener("keydown", (event) => {
    // While an input method converts kana, Enter accepts the conversion; Safari reports 229
    // instead.
    if (event.isComposing || event.keyCode === 229 || takesKey(text, event)) return;
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      submit();
    }
  });
  byId("about-close").addEventListener("click", () => dismiss());
  byId("composer").addEventListener("keydown", ({ key }) => key === "Escape" && dismiss());
  setUpTrays();
  setUpFiles();
}

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
  const act = wanted?.edits ? { act: "edit", message, text: words } : { act: "text", text: words, ...(message && { quoted: message }) };
  if (await send(act)) return;
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

export function closeTrays() {
  for (const name of TRAYS) toggle(name, false);
}

function setUpTrays() {
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
    ...STICKERS.map(({ packageId, stickerId, keywords }) =>
      make(
        "button",
        { type: "button", ariaLabel: `スタンプ ${keywords[0]}`, onclick: () => chosen({ act: "sticker", package: packageId, sticker: stickerId, keywords }) },
        stickerPicture({ packageId, stickerId }),
      ),
    ),
  );
  byId("tools").addEventListener("click", ({ target }) => {
    const kind = target.closest("[data-send]")?.dataset.send;
    if (!kind) return;
    if (kind === "upload") byId("upload").click();
    else chosen(kind === "location" ? null : { act: kind });
  });
}

function chosen(act) {
  closeTrays();
  text.focus();
  if (act) send(act);
  else sendPlace();
}

function toggle(name, open) {
  byId(name).hidden = !open;
  byId(`open-${name}`).setAttribute("aria-expanded", String(open));
}

// Files that are chosen, pasted or dropped; each is one message, in order.
function setUpFiles() {
  const input = byId("upload");
  input.addEventListener("change", () => {
    closeTrays();
    sendFiles([...input.files]);
    input.value = "";
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
}

function take(event, { files }) {
  if (!files.length) return;
  event.preventDefault();
  if (canSend()) sendFiles([...files]);
}

async function sendFiles(files) {
  for (const file of files) {
    const [kind] = file.type.split("/");
    const act = ["image", "video", "audio"].includes(kind) ? kind : "file";
    if (!(await send(upload(file).then((medium) => ({ act, medium }))))) return;
  }
}
