// Beside a message without an answer: what the simulator, and the console of a linedesk, know of it.

import { get } from "./api.js";
import { icon, make } from "./dom.js";

const FIRST_MS = 4000;
const AGAIN_MS = 4000;
const LAST_MS = 120_000;
const ANSWERED = new Set(["text", "sticker", "image", "video", "audio", "file", "location", "follow", "join", "memberJoined", "postback"]);
const MOST = 10;

const UNREACHED = {
  blocked: "相手がボットをブロックしているため、返信は届きません",
  left: "ボットがこのトークにいないため、返信は届きません",
  "no friend": "友だちではない相手には届きません",
  unknown: "宛先がありません",
};
const TEXTS = {
  webhook: () => null, // its bubble says it
  refused: ({ status, message, details }) =>
    `LINEなら${status}と答えます: ${[message, ...details.map((one) => `${one.property}: ${one.message}`)].join(" / ")}`,
  lapsed: () => "返信トークンの期限が切れていました",
  unreached: ({ reason }) => UNREACHED[reason],
  silent: () => "返信がありません。ボットはまだ何も送っていません",
};

let shown = () => {}; // called after a strip was drawn

export function setUpStrips(after) {
  shown = after;
}

const waiting = new Map(); // event id -> { bubble, since, row, why }

// A bubble of the open chat was drawn. An old one, which a transcript had, is asked for at once.
export function follow(bubble, row, { old = false } = {}) {
  const { eventId, speaker, message, unsent } = bubble;
  if (speaker === "bot") return answered(bubble);
  // After an edit the bubble is that of another event.
  for (const [id, other] of waiting) if (other.bubble.number === bubble.number && (unsent || id !== eventId)) end(id);
  if (!eventId || unsent || !ANSWERED.has(message.type)) return undefined;
  const known = waiting.get(eventId);
  if (!known) silence(bubble);
  const since = known?.since ?? Date.now() - (old ? FIRST_MS : 0);
  waiting.set(eventId, { ...known, bubble, row, since });
  if (known?.why) attach(waiting.get(eventId));
  if (waiting.size > MOST) waiting.delete(waiting.keys().next().value);
  return plan();
}

function attach({ row, why }) {
  (row.querySelector(".said") || row).append(why);
}

// A push has no event, so it answers all before it.
function answered({ eventId }) {
  for (const id of [...waiting.keys()]) if (!eventId || eventId === id) end(id);
}

function end(id) {
  waiting.get(id).why?.remove();
  waiting.delete(id);
}

// Of several messages without an answer the newest says so.
function silence({ userId }) {
  for (const { why } of waiting.values()) if (userId && why?.dataset.silent) why.remove();
}

export function forget() {
  waiting.clear();
}

let timer = null;

function plan() {
  timer ??= setTimeout(() => {
    timer = null;
    askAll().finally(() => waiting.size && plan());
  }, 1000);
}

async function askAll() {
  for (const [id, one] of [...waiting]) {
    const age = Date.now() - one.since;
    if (age < FIRST_MS || Date.now() < (one.next ?? 0)) continue;
    one.next = Date.now() + AGAIN_MS;
    const told = await get(`/sim/events/${encodeURIComponent(id)}`).catch(() => null);
    if (!waiting.has(id)) continue;
    if (told) say(waiting.get(id), told);
    const ended = told?.console && !["waiting", "unknown"].includes(told.console.result);
    if (!told || ended || age > LAST_MS) waiting.delete(id);
  }
}

function say(one, { reasons, answered: sent, console: story }) {
  const failed = reasons.filter(({ kind }) => kind !== "silent");
  const heard = story && story.result !== "answered" ? story : null;
  const isNewest = ![...waiting.values()].some(({ bubble }) => bubble.number > one.bubble.number);
  const told = !heard && !sent && isNewest ? reasons : failed;
  const texts = [...told.map((reason) => TEXTS[reason.kind]?.(reason)), heard?.words].filter(Boolean);
  one.why?.remove();
  if (!texts.length) return;
  const link = story && make("a", { href: story.url, target: "_blank", rel: "noopener" }, "コンソールで見る");
  one.why = make("div", { class: `why${failed.length || heard?.result === "failed" ? " bad" : ""}`, role: "note" }, icon("warn"), make("p", {}, texts.join("。"), link ? " " : null, link));
  if (!failed.length && !heard) one.why.dataset.silent = "true";
  attach(one);
  shown();
}
