// One line of a chat as an element.

import { copy } from "./actions.js";
import { edit, quote } from "./composer.js";
import { avatar, botAvatar, byId, clock, icon, make, picture } from "./dom.js";
import { drawMessage, summary } from "./messages.js";
import { openPopup } from "./popup.js";
import { chat, here, me, nameById, perform } from "./state.js";
import { note } from "./strip.js";

const ERRORS = {
  could_not_connect: "ボットのサーバーに接続できないか、接続が切れました",
  request_timeout: "ボットのサーバーが時間内に応答しません",
  no_webhook_url: "Webhook URLが設定されていません",
  unclassified: "ボットのサーバーと通信できません",
};

const known = new Map(); // message id -> bubble, for quotes

const isMine = ({ userId }) => Boolean(userId) && userId === me();

export function render(bubble) {
  const { unsent, speaker, messageId, message, userId } = bubble;
  if (messageId) known.set(messageId, bubble);
  if (unsent || speaker === "notice") {
    return make("li", { class: "notice" }, make("span", {}, summary(bubble)), failure(bubble));
  }
  const line = make("div", { class: "line" }, content(bubble));
  const aside = asideOf(bubble);
  if (messageId) line.addEventListener("contextmenu", (event) => openAt(event, bubble));
  if (isMine(bubble)) {
    line.prepend(aside);
    return make("li", { class: "mine" }, line, failure(bubble));
  }
  line.append(aside);
  const [fromBot, name] = [speaker === "bot", nameOf(bubble)];
  return make(
    "li",
    { class: `theirs${fromBot ? " bot" : ""}` },
    fromBot ? botPicture(message.sender) : avatar(userId, name),
    make("div", { class: "said" }, make("span", { class: "sender" }, name), line, failure(bubble)),
  );
}

function asideOf(bubble) {
  const { messageId, edited, read, fate, at } = bubble;
  const properties = { class: "more", type: "button", ariaLabel: "メッセージのメニュー", ariaHasPopup: "menu" };
  const onclick = ({ currentTarget }) => openMenu(bubble, currentTarget.getBoundingClientRect());
  return make(
    "span",
    { class: "aside" },
    messageId ? make("button", { ...properties, onclick }, icon("more")) : null,
    edited ? make("span", {}, "編集済み") : null,
    isMine(bubble) ? make("span", { class: "read" }, read ? "既読" : fate === "sending" ? "送信中" : "") : null,
    make("time", {}, clock(at)),
  );
}

function openAt(event, bubble) {
  if (event.target.closest("a, video, audio")) return;
  event.preventDefault();
  const { clientX: x, clientY: y } = event;
  openMenu(bubble, { left: x, right: x, top: y, bottom: y });
}

const UNQUOTABLE = new Set(["audio", "file", "location", "imagemap"]);

function openMenu(bubble, place) {
  const { message, messageId } = bubble;
  const [canQuote, mine] = [!byId("composer").hidden && !UNQUOTABLE.has(message.type), isMine(bubble)];
  const items = [
    canQuote && ["リプライ", "reply", () => quote(bubble, nameOf(bubble), summary(bubble))],
    message.text && ["コピー", "copy", () => copy({ clipboardText: message.text })],
    mine && message.type === "text" && chat().kind === "group" && ["編集", "edit", () => edit(bubble)],
    mine && ["送信取消", "undo", () => perform({ act: "unsend", message: messageId })],
  ].filter(Boolean);
  if (items.length) openPopup(place, items);
}

function failure({ fate, status, error }) {
  if (fate !== "failed") return null;
  const why = status ? `応答 ${status}` : ERRORS[error] || error;
  return note("bad failure", `ボットに届いていません（${why}）`);
}

function nameOf({ speaker, message, userId }) {
  return speaker === "bot" ? message.sender?.name || here.state.bot.name : nameById(userId);
}

function botPicture(sender) {
  return sender?.iconUrl ? picture(sender.iconUrl, { class: "avatar", alt: "" }) : botAvatar();
}

function content(bubble) {
  const drawn = drawMessage(bubble);
  const quoted = bubble.quoted || bubble.message.quotedMessageId;
  return quoted ? make("div", { class: "quoting" }, drawQuote(quoted), drawn) : drawn;
}

function drawQuote(messageId) {
  const quoted = known.get(messageId);
  if (!quoted || quoted.unsent) return make("span", { class: "quote" }, "元のメッセージは表示できません");
  const row = () => byId("bubbles").querySelector(`[data-number="${quoted.number}"]`);
  const onclick = () => row()?.scrollIntoView({ block: "center" });
  return make(
    "button",
    { class: "quote", type: "button", title: "元のメッセージへ", onclick },
    make("strong", {}, nameOf(quoted)),
    make("span", {}, summary(quoted)),
  );
}
