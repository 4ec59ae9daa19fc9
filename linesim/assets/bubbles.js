// One line of a chat as an element.

import { avatar, botAvatar, clock, make } from "./dom.js";
import { emojiOf } from "./stickers.js";

const ERRORS = {
  could_not_connect: "ボットのサーバーに接続できません",
  request_timeout: "ボットのサーバーが時間内に答えません",
  no_webhook_url: "Webhook URLが設定されていません",
  unclassified: "ボットのサーバーと通信できません",
};

// `context`: me (the user whose phone this is), bot (its name), names (a name by user id), and handlers
// unsend(bubble) and choose(action).
export function render(bubble, context) {
  const row = rowOf(bubble, context);
  row.dataset.number = bubble.number;
  row.dataset.at = bubble.at;
  return row;
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
    make("button", { class: "unsend", type: "button", title: "送信を取り消す", onclick: () => context.handlers.unsend(bubble) }, "取消"),
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
  const { bot, names } = context;
  const fromBot = bubble.speaker === "bot";
  const name = fromBot ? bubble.message.sender?.name || bot : names(bubble.userId);
  const aside = make("span", { class: "aside" }, make("time", {}, clock(bubble.at)));
  return make(
    "li",
    { class: `theirs${fromBot ? " bot" : ""}` },
    fromBot ? botAvatar() : avatar(bubble.userId, name),
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

function content(bubble, context) {
  const draw = CONTENTS[bubble.message.type] || unknown;
  return draw(bubble.message, bubble, context);
}

const source = (bubble) => `/sim/contents/${encodeURIComponent(bubble.messageId)}`;

const CONTENTS = {
  text: (message) => make("p", { class: "text" }, message.text),
  textV2: (message, bubble, { names }) => make("p", { class: "text" }, substituted(message, names)),
  sticker: (message) => {
    const emoji = emojiOf(message);
    return emoji
      ? make("span", { class: "sticker", role: "img", ariaLabel: "スタンプ" }, emoji)
      : card("🎟️", "スタンプ", `${message.packageId} / ${message.stickerId}`);
  },
  image: (message, bubble) =>
    bubble.speaker === "bot" ? card("🖼️", "写真", message.originalContentUrl) : photo(source(bubble)),
  video: (message, bubble) =>
    bubble.speaker === "bot"
      ? card("🎬", "動画", message.originalContentUrl)
      : make("video", { class: "medium", src: source(bubble), controls: true, preload: "metadata" }),
  audio: (message, bubble) =>
    bubble.speaker === "bot"
      ? card("🎤", "ボイスメッセージ", message.originalContentUrl)
      : make("audio", { class: "audio", src: source(bubble), controls: true, preload: "metadata" }),
  file: (message, bubble) =>
    make(
      "a",
      { class: "card", href: source(bubble), download: message.fileName },
      make("span", { class: "icon", ariaHidden: "true" }, "📄"),
      make("span", {}, make("strong", {}, message.fileName), make("small", {}, `${message.fileSize.toLocaleString()} バイト`)),
    ),
  location: (message) =>
    make(
      "div",
      { class: "card place" },
      make("span", { class: "map", ariaHidden: "true" }, "📍"),
      make("strong", {}, message.title || "位置情報"),
      make("small", {}, message.address || `${message.latitude}, ${message.longitude}`),
    ),
  template: ({ template, altText }, bubble, context) => tappable(template.title, template.text || altText, template, context),
  flex: ({ contents, altText }, bubble, context) => tappable("🧩 Flex Message", altText, contents, context),
  imagemap: ({ actions, altText }, bubble, context) => tappable("🗺️ イメージマップ", altText, actions, context),
  coupon: (message) => card("🎁", "クーポン", message.couponId),
};

const unknown = (message) => card("❔", message.type, "");

function photo(url) {
  return make("a", { href: url, target: "_blank", rel: "noopener" }, make("img", { class: "medium", src: url, alt: "写真" }));
}

function card(icon, title, text) {
  return make(
    "div",
    { class: "card" },
    make("span", { class: "icon", ariaHidden: "true" }, icon),
    make("span", {}, make("strong", {}, title), make("small", {}, text || "")),
  );
}

// A card with a button for each action in a part of the message.
function tappable(title, text, part, { handlers }) {
  const buttons = actionsIn(part).map((action) =>
    make("button", { type: "button", onclick: () => handlers.choose(action) }, action.label || action.text || action.data || action.uri),
  );
  return make("div", { class: "card template" }, title ? make("strong", {}, title) : null, make("p", {}, text), ...buttons);
}

const ACTIONS = new Set(["message", "postback", "uri", "datetimepicker", "richmenuswitch", "clipboard", "camera", "cameraRoll", "location"]);

function actionsIn(part) {
  if (!part || typeof part !== "object") return [];
  return ACTIONS.has(part.type) ? [part] : Object.values(part).flatMap(actionsIn);
}

// The text of a message with mentions.
export function substituted({ text, substitution = {} }, names) {
  return text.replace(/\{\{|\}\}|\{(\w+)\}/g, (found, name) => {
    if (!name) return found[0];
    const { mentionee } = substitution[name];
    return mentionee ? `@${mentionee.userId ? names(mentionee.userId) : "All"}` : "";
  });
}
