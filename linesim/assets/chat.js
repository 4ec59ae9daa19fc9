// The chat page: keeps the simulator's state, and redraws it at each change from the stream.

import { act, get, listen } from "./api.js";
import { render } from "./bubbles.js";
import { forgetClock, setClock, setUpClock } from "./clock.js";
import { closeTrays, setUpComposer } from "./composer.js";
import { botAvatar, byId, day, make } from "./dom.js";
import { setUpKeep } from "./keep.js";
import { ask, askForGroup, askForUser, chatsOf, drawList, nameOf } from "./people.js";

let state = { users: [], groups: [], last: [], bot: { name: "" } };
let chats = [];
let connections = 0; // how often the stream was opened
let chosen = null; // the open chat's id
let speaker = null; // in a group: who speaks
const unread = new Map();
const drawn = new Map(); // bubble number -> element
const arriving = new Set(); // for each transcript being loaded: the open chat's bubbles since

const list = byId("bubbles");
let pinned = true; // the newest bubble is in view, and stays in view while media load and messages arrive
const chat = () => chats.find((each) => each.id === chosen);
const me = () => (chat()?.kind === "user" ? chosen : speaker);
const nameById = (id) => state.users.find((user) => user.userId === id)?.name || "？";

async function refresh() {
  const connection = connections;
  const found = await get("/sim/state");
  // Asked before the stream was opened again: an answer of that time would set the clock back.
  if (connection !== connections) return;
  state = found;
  setClock(state.clock);
  draw();
}

async function open(id) {
  chosen = id;
  unread.delete(id);
  const { members } = chat() || {};
  speaker = members ? members.find((member) => member === speaker) || members[0] || null : null;
  history.replaceState(null, "", id ? `#${id}` : location.pathname);
  closeTrays();
  await redraw();
}

async function transcript(id) {
  return id ? get(`/sim/chats/${encodeURIComponent(id)}`) : [];
}

// Bubbles that the stream delivers while the transcript loads are newer than the transcript.
async function redraw() {
  const wanted = chosen;
  const newer = [];
  arriving.add(newer);
  const bubbles = await transcript(wanted).finally(() => arriving.delete(newer));
  if (wanted !== chosen) return;
  drawn.clear();
  list.replaceChildren();
  [...bubbles, ...newer].forEach(put);
  draw();
  pinned = true;
  stayPinned();
}

function put(bubble) {
  const row = render(bubble, {
    me: me(),
    bot: state.bot.name,
    names: nameById,
    handlers: { unsend, choose },
  });
  const old = drawn.get(bubble.number);
  drawn.set(bubble.number, row);
  if (old) return old.replaceWith(row);
  const previous = [...list.querySelectorAll("li[data-number]")].at(-1);
  if (!previous || day(+previous.dataset.at) !== day(bubble.at)) {
    list.append(make("li", { class: "day" }, make("span", {}, day(bubble.at))));
  }
  list.append(row);
  if (bubble.speaker === "bot") drawReplies(bubble.message.quickReply);
  else drawReplies(null);
}

function draw() {
  chats = chatsOf(state);
  const current = chat();
  document.body.classList.toggle("talking", Boolean(current));
  document.body.classList.toggle("empty", chats.length === 0);
  drawList(chats, { chosen, unread, onchoose: open });
  drawFigures();
  if (current) drawHead(current);
}

function drawFigures() {
  const { calls, closestStarts: closest } = state;
  const apart = closest === null || closest === undefined ? "" : `・最短間隔 ${(closest * 1000).toFixed(0)} ms`;
  byId("figures").textContent = `API呼び出し ${calls ?? 0} 回${apart}`;
}

function drawHead(current) {
  byId("title").textContent = nameOf(current);
  byId("subtitle").textContent = standing(current);
  const { text, action } = barOf(current);
  byId("bar").hidden = !text;
  byId("composer").hidden = Boolean(text);
  byId("bar").replaceChildren(make("span", {}, text || ""), action || "");
  byId("actions").replaceChildren(...actionsOf(current));
  drawSpeakers(current);
}

function standing({ kind, friend, blocked, members, present }) {
  if (kind === "user") return blocked ? "ブロック中" : friend ? "友だち" : "友だちではありません";
  const names = members.map(nameById).join("、");
  return present ? names : `${names}（ボットは不在）`;
}

function barOf({ kind, blocked, members, present }) {
  if (kind === "user") {
    return blocked ? { text: "ボットをブロックしています", action: doing("ブロック解除", { act: "follow" }) } : {};
  }
  if (!present) return { text: "ボットはこのグループにいません", action: doing("招待する", { act: "join" }) };
  return members.length ? {} : { text: "メンバーがいません" };
}

function actionsOf({ kind, friend, blocked, present, members }) {
  if (kind === "user") {
    if (blocked) return [];
    return [friend ? doing("ブロック", { act: "unfollow" }) : doing("友だちに追加", { act: "follow" })];
  }
  if (!present) return [];
  const outside = state.users.filter((user) => !members.includes(user.userId));
  const join = make("select", { ariaLabel: "メンバーを追加", onchange: (event) => perform({ act: "memberJoined", user: event.target.value }) });
  join.append(make("option", { value: "" }, "＋ メンバー"), ...outside.map((user) => make("option", { value: user.userId }, user.name)));
  const leave = speaker ? doing(`${nameById(speaker)}が退出`, { act: "memberLeft", user: speaker }) : null;
  return [outside.length ? join : null, leave, doing("ボットを退出", { act: "leave" })].filter(Boolean);
}

function doing(label, details) {
  return make("button", { type: "button", class: "small", onclick: () => perform(details) }, label);
}

function drawSpeakers({ kind, members }) {
  byId("speaker-row").hidden = kind === "user";
  if (kind === "user") return;
  if (!members.includes(speaker)) speaker = members[0] || null;
  byId("speaker").replaceChildren(
    ...members.map((id) => make("option", { value: id, selected: id === speaker }, nameById(id))),
  );
}

function drawReplies(quickReply) {
  const items = quickReply?.items || [];
  byId("replies").hidden = !items.length;
  byId("replies").replaceChildren(
    ...items.map(({ action }) => make("button", { type: "button", onclick: () => choose(action) }, action.label || action.text || "")),
  );
}

// The effect of a tap on a bot's button.
function choose(action) {
  drawReplies(null);
  if (action.type === "message") return perform({ act: "text", text: action.text });
  if (action.type === "postback") return perform({ act: "postback", data: action.data });
  if (action.type === "datetimepicker") return pickMoment(action);
  return tell(`この動作は試せません: ${action.type}`);
}

async function pickMoment({ data, mode, initial = "", min = "", max = "" }) {
  const input = byId("moment");
  input.type = mode === "datetime" ? "datetime-local" : mode;
  // LINE takes a small t as well.
  [input.value, input.min, input.max] = [initial || min, min, max].map((moment) => moment.replace("t", "T"));
  if ((await ask(byId("moment-dialog"))) !== "ok") return;
  await perform({ act: "postback", data, params: { [mode]: input.value } });
}

function unsend(bubble) {
  return perform({ act: "unsend", message: bubble.messageId });
}

const OF_GROUP = new Set(["join", "leave"]);

// An act of the open chat, or the promise of one. The stream shows its result.
async function perform(promised) {
  const user = me();
  const where = chat().kind === "user" ? {} : { chat: chosen };
  try {
    const details = await promised;
    const who = OF_GROUP.has(details.act) ? {} : { user };
    await act({ ...who, ...where, ...details });
    tell("");
  } catch (error) {
    tell(`送信できませんでした: ${error.message}`);
  }
}

function tell(text) {
  byId("banner").textContent = text;
  byId("banner").hidden = !text;
}

function typing(seconds) {
  list.querySelector(".typing")?.remove();
  const dots = make("p", { class: "text" }, make("i"), make("i"), make("i"));
  const row = make("li", { class: "theirs bot typing" }, botAvatar(), make("div", { class: "said" }, make("div", { class: "line" }, dots)));
  list.append(row);
  stayPinned();
  setTimeout(() => row.remove(), seconds * 1000);
}

// A burst of messages is drawn once a frame, and the figures are requested at most every 300 ms.
let frame = null;
let asked = null;

function drawSoon() {
  frame ??= requestAnimationFrame(() => {
    frame = null;
    draw();
  });
}

function refreshSoon() {
  asked ??= setTimeout(() => {
    asked = null;
    refresh().catch(() => {});
  }, 300);
}

listen({
  open: async () => {
    tell("");
    connections += 1;
    forgetClock();
    await refresh();
    if (!chat()) chosen = null;
    const wanted = chosen || location.hash.slice(1);
    if (chats.some((each) => each.id === wanted)) await open(wanted);
    else if (chats.length && matchMedia("(min-width: 760px)").matches) await open(chats[0].id);
  },
  lost: () => tell("シミュレーターとの接続が切れました。つなぎ直しています…"),
  people: ({ loaded }) => (loaded ? location.reload() : refreshSoon()),
  clock: setClock,
  loading: ({ chatId, seconds }) => chatId === chosen && typing(seconds),
  bubble: (bubble) => {
    const others = state.last.filter((each) => each.chatId !== bubble.chatId);
    const newest = state.last.find((each) => each.chatId === bubble.chatId);
    state.last = [...others, newest && newest.number > bubble.number ? newest : bubble];
    if (bubble.chatId === chosen) show(bubble);
    else if (bubble.speaker === "bot") unread.set(bubble.chatId, (unread.get(bubble.chatId) || 0) + 1);
    drawSoon();
    refreshSoon();
  },
});

function show(bubble) {
  pinned ||= bubble.userId === me() && !drawn.has(bubble.number);
  if (bubble.speaker === "bot") list.querySelector(".typing")?.remove();
  arriving.forEach((newer) => newer.push(bubble));
  put(bubble);
  stayPinned();
}

function stayPinned() {
  if (pinned) list.scrollTop = list.scrollHeight;
}

list.addEventListener("scroll", () => {
  pinned = list.scrollHeight - list.scrollTop - list.clientHeight < 120;
});
for (const kind of ["load", "loadedmetadata"]) list.addEventListener(kind, stayPinned, true);
new ResizeObserver(stayPinned).observe(list);

setUpComposer(perform);
setUpClock(tell);
setUpKeep(() => chosen, tell);
byId("speaker").addEventListener("change", (event) => {
  speaker = event.target.value;
  redraw();
});
byId("back").addEventListener("click", () => open(null));
for (const id of ["add-user", "welcome-add"]) {
  byId(id).addEventListener("click", () => add(askForUser));
}
byId("add-group").addEventListener("click", () => add(askForGroup));

async function add(ask) {
  try {
    const id = await ask(state.users);
    if (!id) return;
    await refresh();
    await open(id);
  } catch (error) {
    tell(`追加できませんでした: ${error.message}`);
  }
}
