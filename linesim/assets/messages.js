// The content of a message as an element, by its kind.

import { drawImagemap } from "./areas.js";
import { film, icon, make, picture, shape } from "./dom.js";
import { drawFlex } from "./flex.js";
import { nameById, perform } from "./state.js";
import { stickerPicture } from "./stickers.js";
import { drawTemplate } from "./templates.js";

// `bubble` is a line of the chat.
export function drawMessage(bubble) {
  return (KINDS[bubble.message.type] || unknown)(bubble.message, bubble);
}

const ours = (bubble) => `/sim/contents/${encodeURIComponent(bubble.messageId)}`;

const KINDS = {
  text: (message) => make("p", { class: "text" }, ...words(message.text, signs(message))),
  textV2: (message) => make("p", { class: "text" }, ...words(message.text, substitutes(message))),
  sticker: (message) => make("span", { title: `${message.packageId} / ${message.stickerId}` }, stickerPicture(message)),
  image: ({ originalContentUrl: url, previewImageUrl }, bubble) =>
    link({ href: url || ours(bubble) }, picture(previewImageUrl || url || ours(bubble), { class: "medium", alt: "写真" })),
  video: ({ originalContentUrl: url, previewImageUrl, trackingId }, bubble) => {
    const drawn = film(url || ours(bubble), previewImageUrl, url ? "none" : "metadata");
    if (trackingId) drawn.firstChild.addEventListener("ended", () => perform({ act: "videoPlayComplete", tracking: trackingId }));
    return drawn;
  },
  audio: ({ originalContentUrl: url, duration }, bubble) =>
    make(
      "div",
      { class: "audio" },
      make("audio", { src: url || ours(bubble), controls: true, preload: url ? "none" : "metadata" }),
      url ? make("small", {}, seconds(duration)) : null,
    ),
  file: ({ fileName, fileSize }, bubble) =>
    make("a", { class: "card", href: ours(bubble), download: fileName }, ...card("file", fileName, bytes(fileSize))),
  location: place,
  template: drawTemplate,
  flex: ({ contents }) => drawFlex(contents),
  imagemap: drawImagemap,
  coupon: ({ couponId }) => make("div", { class: "card" }, ...card("coupon", "クーポン", couponId)),
};

const unknown = ({ type, altText }) => make("div", { class: "card" }, ...card("unknown", type, altText));

const card = (sign, title, text = "") => [icon(sign), make("span", {}, make("strong", {}, title), make("small", {}, text))];

const link = (properties, ...children) =>
  make("a", { target: "_blank", rel: "noopener noreferrer", ...properties }, ...children);

const bytes = (size) => `${size.toLocaleString()} バイト`;

function seconds(milliseconds = 0) {
  const whole = Math.round(milliseconds / 1000);
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}`;
}

const MAP = [
  ["park", "M0 0h78v44H0zM176 70h64v34h-64z"],
  ["water", "M150 0q-8 30 22 44t68 6V0z"],
  ["road", "M-5 62q80-18 250 10M96-5q-6 60 12 114M-5 92l110-24M196-5q-14 60 8 114"],
  ["pin", "M120 62c-10-11-15-18-15-25a15 15 0 0 1 30 0c0 7-5 14-15 25zM120 42a5 5 0 1 0 0-10 5 5 0 0 0 0 10z"],
];

function place({ title, address, latitude, longitude }) {
  const parts = MAP.map(([name, d]) => shape("path", { class: name, d }));
  const href = `https://www.google.com/maps/search/?api=1&query=${latitude},${longitude}`;
  return link(
    { class: "card place", href },
    shape("svg", { viewBox: "0 0 240 104", preserveAspectRatio: "xMidYMid slice" }, ...parts),
    make("strong", {}, title || "位置情報"),
    make("small", {}, address || `${latitude}, ${longitude}`),
  );
}

// Texts with links. `parts` are the elements that take the place of a piece: { index, length, shown }, as
// LINE counts in UTF-16 units.
function words(text, parts) {
  const nodes = [];
  let end = 0;
  for (const { index, length, shown } of parts.sort((a, b) => a.index - b.index)) {
    nodes.push(...linked(text.slice(end, index)), shown);
    end = index + length;
  }
  return [...nodes, ...linked(text.slice(end))];
}

const LINK = /(?:https?:\/\/|line:\/\/|tel:\+?\d)[!-~]*/gi;

function linked(text) {
  const nodes = [];
  let end = 0;
  for (const { 0: found, index } of text.matchAll(LINK)) {
    const ends = found.includes("(") ? /[<>"].*|[.,;:!?']+$/ : /[<>"].*|[.,;:!?')]+$/;
    const href = found.replace(ends, "");
    nodes.push(text.slice(end, index), link({ href }, href));
    end = index + href.length;
  }
  return [...nodes, text.slice(end)];
}

const mention = (name) => make("span", { class: "mention" }, name);

function emoji({ productId, emojiId }) {
  return make("span", { class: "emoji", role: "img", title: `${productId} / ${emojiId}`, ariaLabel: "絵文字" }, icon("smile"));
}

function signs({ text, emojis = [], mention: { mentionees } = { mentionees: [] } }) {
  return [
    ...emojis.map((each) => ({ index: each.index, length: each.length || 1, shown: emoji(each) })),
    ...mentionees.map(({ index, length }) => ({ index, length, shown: mention(text.slice(index, index + length)) })),
  ];
}

function substitutes({ text, substitution = {} }) {
  return [...text.matchAll(/\{\{|\}\}|\{(\w+)\}/g)].map(({ 0: found, 1: name, index }) => {
    const { mentionee, ...sign } = substitution[name] || {};
    const drawn = () => (mentionee ? mention(`@${mentionee.userId ? nameById(mentionee.userId) : "All"}`) : emoji(sign));
    return { index, length: found.length, shown: name ? drawn() : found[0] };
  });
}

const TITLES = {
  sticker: "スタンプ",
  image: "写真",
  video: "動画",
  audio: "ボイスメッセージ",
  file: "ファイル",
  location: "位置情報",
  coupon: "クーポン",
};

function noticeText({ message, userId }) {
  const who = userId ? nameById(userId) : "";
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

// A bubble in a few words: in the list of chats, where it is quoted, and as a notice.
export function summary(bubble) {
  const { message, unsent, speaker } = bubble;
  if (unsent) return "メッセージの送信を取り消しました";
  if (speaker === "notice") return noticeText(bubble);
  if (message.type === "textV2") return make("p", {}, ...words(message.text, substitutes(message))).textContent;
  return TITLES[message.type] || message.text || message.altText || message.type;
}
