// One line of a chat as an element.

import { avatar, botAvatar, byId, clock, icon, make, picture } from "./dom.js";
import { drawMessage, summary } from "./messages.js";

const ERRORS = {
  could_not_connect: "ボットのサーバーに接続できません",
  request_timeout: "ボットのサーバーが時間内に答えません",
  no_webhook_url: "Webhook URLが設定されていません",
  unclassified: "ボットのサーバーと通信できません",
};

const known = new Map(); // message id -> bubble, for quotes

// `context`: me (the user whose phone this is), bot (its name), names (a name by user id), and handlers
// menu(bubble, place) and choose(action).
export function render(bubble, context) {
  if (bubble.messageId) known.set(bubble.messageId, bubble);
  const row = rowOf(bubble, context);
  row.dataset.number = bubble.number;
  row.dataset.at = bubble.at;
  if (bubble.messageId && !bubble.unsent) {
    row.querySelector(".line").addEventListener("contextmenu", (event) => {
      if (event.target.closest("a, video, audio")) return;
      event.preventDefault();
      const { clientX: x, clientY: y } = event;
      context.handlers.menu(bubble, { left: x, right: x, top: y, bottom: y });
    });
  }
  return row;
}

function more(bubble, { handlers }) {
  if (!bubble.messageId) return null;
  const open = ({ currentTarget }) => handlers.menu(bubble, currentTarget.getBoundingClientRect());
  return make("button", { class: "more", type: "button", ariaLabel: "メッセージのメニュー", ariaHasPopup: "menu", onclick: open }, icon("more"));
}

function rowOf(bubble, context) {
  if (bubble.unsent) return notice("メッセージの送信を取り消しました", bubble);
  if (bubble.speaker === "notice") return notice(noticeText(bubble, context.names), bubble);
  return bubble.userId && bubble.userId === context.me ? mine(bubble, context) : theirs(bubble, context);
}

function mine(bubble, context) {
  const aside = make(
    "span",
    { class: "aside" },
    more(bubble, context),
    bubble.edited ? make("span", {}, "編集済み") : null,
    make("span", { class: "read" }, bubble.read ? "既読" : bubble.fate === "sending" ? "送信中" : ""),
    make("time", {}, clock(bubble.at)),
  );
  return make(
    "li",
    { class: "mine" },
    make("div", { class: "line" }, aside, content(bubble, context)),
    failure(bubble),
  );
}

function theirs(bubble, context) {
  const fromBot = bubble.speaker === "bot";
  const name = nameOf(bubble, context);
  const edited = bubble.edited ? make("span", {}, "編集済み") : null;
  const aside = make("span", { class: "aside" }, more(bubble, context), edited, make("time", {}, clock(bubble.at)));
  return make(
    "li",
    { class: `theirs${fromBot ? " bot" : ""}` },
    fromBot ? botPicture(bubble.message.sender) : avatar(bubble.userId, name),
    make(
      "div",
      { class: "said" },
      make("span", { class: "sender" }, name),
      make("div", { class: "line" }, content(bubble, context), aside),
      failure(bubble),
    ),
  );
}

function notice(text, bubble) {
  return make("li", { class: "notice" }, make("span", {}, text), failure(bubble));
}

function noticeText({ message, userId }, names) {
  const who = userId ? names(userId) : "";
  const texts = {
    follow: message.isUnblocked ? "ブロックを解除しました" : "ボットを友だちに追加しました",
    unfollow: "ボットをブロックしました",
    join: "ボットが参加しました",
    leave: "ボットが退出しました",
    videoPlayComplete: "動画を最後まで見ました",
    beacon: "ビーコンに近づきました",
    accountLink: "アカウントを連携しました",
    memberJoined: `${who}が参加しました`,
    memberLeft: `${who}が退出しました`,
    postback: `「${message.text}」を選びました`,
  };
  return texts[message.type] || message.type;
}

function failure({ fate, status, error }) {
  if (fate !== "failed") return null;
  const why = status ? `応答 ${status}` : ERRORS[error] || error;
  return make("p", { class: "failure" }, `ボットに届いていません（${why}）`);
}

function nameOf({ speaker, message, userId }, { bot, names }) {
  return speaker === "bot" ? message.sender?.name || bot : names(userId);
}

function botPicture(sender) {
  return sender?.iconUrl ? picture(sender.iconUrl, { class: "avatar", alt: "" }) : botAvatar();
}

function content(bubble, context) {
  const drawn = drawMessage(bubble, context);
  const quoted = bubble.quoted || bubble.message.quotedMessageId;
  return quoted ? make("div", { class: "quoting" }, quote(quoted, context), drawn) : drawn;
}

function quote(messageId, context) {
  const quoted = known.get(messageId);
  if (!quoted || quoted.unsent) return make("span", { class: "quote" }, "元のメッセージは表示できません");
  const show = () => byId("bubbles").querySelector(`[data-number="${quoted.number}"]`)?.scrollIntoView({ block: "center" });
  return make(
    "button",
    { class: "quote", type: "button", title: "元のメッセージへ", onclick: show },
    make("strong", {}, nameOf(quoted, context)),
    make("span", {}, summary(quoted.message, context.names)),
  );
}
