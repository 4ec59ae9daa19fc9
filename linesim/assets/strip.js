// Beside a message without an answer: what the simulator, and the console of a linedesk, know of it.

import { get } from "./api.js";
import { icon, make } from "./dom.js";

const FIRST_MS = 4000;
const AGAIN_MS = 4000;
const SELDOM_MS = 30_000;
const SELDOM_FROM_MS = 120_000;
const MOST = 10;
const ANSWERED = new Set([
  ...["text", "sticker", "image", "video", "audio", "file", "location"],
  ...["follow", "join", "memberJoined", "postback"],
]);

const UNREACHED = {
  blocked: "相手がボットをブロックしているため、メッセージは届きません",
  left: "ボットがこのトークにいないため、メッセージは届きません",
  "no friend": "友だちではない相手には届きません",
  unknown: "宛先が見つかりません",
};
const TEXTS = {
  webhook: () => null, // its bubble says it
  refused: ({ status, message, details }) =>
    `LINEなら${status}を返します: ${[message, ...details.map((one) => `${one.property}: ${one.message}`)].join(" / ")}`,
  lapsed: () => "応答トークンの期限が切れていました",
  unreached: ({ reason }) => UNREACHED[reason],
  silent: () => "ボットはまだ何も送っていません",
};

const waiting = new Map(); // event id -> { bubble, row, since, next, strip, isQuiet }
let timer = null;

// `look`: bad for a failure, quiet for a bot that may be silent on purpose.
export const note = (look, ...words) =>
  make("div", { class: `why ${look}`, role: "note" }, icon("warn"), make("p", {}, ...words));

export const forget = () => waiting.clear();

// A bubble of the open chat was drawn. An old one, which a transcript had, is asked for at once.
export function follow(bubble, row, isOld) {
  const { eventId, speaker, message, unsent, number } = bubble;
  for (const [id, other] of waiting) {
    // A push has no event, so it answers all before it. After an edit the bubble is another event's.
    const isReplaced = other.bubble.number === number && (unsent || id !== eventId);
    if (speaker === "bot" ? !eventId || eventId === id : isReplaced) end(id);
  }
  if (speaker === "bot" || !eventId || unsent || !ANSWERED.has(message.type)) return;
  const one = { since: Date.now() - (isOld ? FIRST_MS : 0), ...waiting.get(eventId), bubble, row };
  waiting.set(eventId, one);
  // Of several messages without an answer only the newest says so.
  for (const other of waiting.values()) if (other.isQuiet && other !== one) other.strip?.remove();
  if (one.strip) attach(one);
  if (waiting.size > MOST) end(waiting.keys().next().value);
  timer ??= setTimeout(askAll, 1000);
}

function end(id) {
  waiting.get(id).strip?.remove();
  waiting.delete(id);
}

async function askAll() {
  for (const [id, one] of [...waiting]) {
    if (Date.now() < Math.max(one.since + FIRST_MS, one.next ?? 0)) continue;
    one.next = Date.now() + (Date.now() > one.since + SELDOM_FROM_MS ? SELDOM_MS : AGAIN_MS);
    const told = await get(`/sim/events/${encodeURIComponent(id)}`).catch(() => null);
    if (!waiting.has(id)) continue;
    if (told) say(waiting.get(id), told);
    const isSettled = told?.console && !["waiting", "unknown"].includes(told.console.result);
    if (!told) end(id);
    else if (isSettled) waiting.delete(id);
  }
  timer = waiting.size ? setTimeout(askAll, 1000) : null;
}

function say(one, { reasons, answered, console: story }) {
  const failed = reasons.filter(({ kind }) => kind !== "silent");
  const heard = story && story.result !== "answered" ? story : null;
  const isNewest = ![...waiting.values()].some(({ bubble }) => bubble.number > one.bubble.number);
  const told = !heard && !answered && isNewest ? reasons : failed;
  const texts = [...told.map((reason) => TEXTS[reason.kind]?.(reason)), heard?.words].filter(Boolean);
  const link = story ? make("a", { href: story.url, target: "_blank", rel: "noopener" }, "コンソールで見る") : "";
  const isBad = failed.length || heard?.result === "failed";
  one.strip?.remove();
  one.isQuiet = !failed.length && !heard;
  one.strip = texts.length ? note(isBad ? "bad" : one.isQuiet ? "quiet" : "", texts.join("。"), " ", link) : null;
  if (one.strip) attach(one);
}

function attach({ row, strip }) {
  (row.querySelector(".said") || row).append(strip);
}
