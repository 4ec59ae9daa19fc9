// The chat page: keeps the simulator's state, and redraws it at each change from the stream.

import { choose, copy, drawReplies, setUpActions } from "./actions.js";
import { act, get, listen } from "./api.js";
import { render } from "./bubbles.js";
import { forgetClock, setClock, setUpClock } from "./clock.js";
import { edit, quote, setUpComposer, writeIn } from "./composer.js";
import { botAvatar, byId, day, make, moveByArrows } from "./dom.js";
import { setUpKeep } from "./keep.js";
import { showMenu } from "./menu.js";
import { summary } from "./messages.js";
import { askForGroup, askForUser, chatsOf, drawList, nameOf } from "./people.js";
import { openPopup } from "./popup.js";
import { follow, forget, setUpStrips } from "./strip.js";

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

// Each chat has an address, and each choice of one is a step in the browser's history.
async function open(id) {
  if (id === chosen) return show(id);
  history.pushState({ fromList: !chosen }, "", id ? `#${id}` : location.pathname);
  await show(id);
  // Not where it would open a keyboard over the chat.
  if (id && matchMedia("(hover: hover)").matches) byId("text").focus();
}

async function show(id) {
  const left = chosen;
  chosen = id;
  unread.delete(id);
  const { members } = chat() || {};
  speaker = members ? members.find((member) => member === speaker) || members[0] || null : null;
  writeIn(id);
  await redraw();
  if (!id && left) byId("chats").querySelector(`[data-chat="${left}"]`)?.focus();
}

const addressed = () => chats.find((each) => each.id === location.hash.slice(1))?.id || null;

window.addEventListener("popstate", () => show(addressed()));

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
  forget();
  list.replaceChildren();
  bubbles.forEach((bubble) => put(bubble, { old: true }));
  newer.forEach((bubble) => put(bubble));
  draw();
  pinned = true;
  stayPinned();
}

function put(bubble, how) {
  const row = render(bubble, {
    me: me(),
    bot: state.bot.name,
    names: nameById,
    handlers: { menu: messageMenu, choose },
  });
  follow(bubble, row, how);
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
  document.title = current ? `${nameOf(current)} - linesim` : "linesim";
  drawList(chats, { chosen, unread, onchoose: open });
  drawFigures();
  drawMenu();
  if (current) drawHead(current);
}

function drawMenu(again) {
  const current = chat();
  showMenu(current?.kind === "user" && !current.blocked ? chosen : null, again).catch(() => {});
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
  byId("actions").hidden = !actionsOf(current).length;
  drawSpeakers(current);
}

function standing({ kind, friend, blocked, members, present }) {
  if (kind === "user") return blocked ? "ブロック中" : friend ? "友だち" : "友だちではありません";
  const names = members.map(nameById).join("、");
  return present ? names : `${names}（ボットは不在）`;
}

const place = (kind) => (kind === "room" ? "トーク" : "グループ");

function barOf({ kind, blocked, members, present }) {
  if (kind === "user") {
    return blocked ? { text: "ボットをブロックしています", action: doing("ブロック解除", { act: "follow" }) } : {};
  }
  if (!present) return { text: `ボットはこの${place(kind)}にいません`, action: doing("招待する", { act: "join" }) };
  return members.length ? {} : { text: "メンバーがいません" };
}

// Of the chat's menu: label, icon and act of each.
function actionsOf({ kind, friend, blocked, present, members }) {
  if (kind === "user") {
    if (blocked) return [];
    return [friend ? ["ブロック", "block", { act: "unfollow" }] : ["友だちに追加", "add", { act: "follow" }]];
  }
  if (!present) return [];
  const outside = state.users.filter((user) => !members.includes(user.userId));
  return [
    ["ボットを退出", "leave", { act: "leave" }],
    ...members.map((id) => [`${nameById(id)}が退出`, "leave", { act: "memberLeft", user: id }]),
    ...outside.map((user) => [`${user.name}を招待`, "add", { act: "memberJoined", user: user.userId }]),
  ];
}

const UNQUOTABLE = new Set(["audio", "file", "location", "imagemap"]);

function messageMenu(bubble, at) {
  const { message, speaker: by, userId, messageId } = bubble;
  const isMine = userId !== null && userId === me();
  const name = by === "bot" ? state.bot.name : nameById(userId);
  const reply = () => quote(bubble, name, summary(message, nameById));
  openPopup(at, [
    ...(byId("composer").hidden || UNQUOTABLE.has(message.type) ? [] : [["リプライ", "reply", reply]]),
    ...(message.text ? [["コピー", "copy", () => copy({ clipboardText: message.text })]] : []),
    ...(isMine && message.type === "text" && chat().kind === "group" ? [["編集", "edit", () => edit(bubble)]] : []),
    ...(isMine ? [["送信取消", "undo", () => perform({ act: "unsend", message: messageId })]] : []),
  ]);
}

function doing(label, details) {
  return make("button", { type: "button", class: "small", onclick: () => perform(details) }, label);
}

function drawSpeakers({ kind, members }) {
  byId("speaker-row").hidden = kind === "user";
  if (kind === "user") return;
  if (!members.includes(speaker)) speaker = members[0] || null;
  // An open list of options would close.
  const options = JSON.stringify([speaker, ...members.map((id) => [id, nameById(id)])]);
  if (byId("speaker").dataset.options === options) return;
  byId("speaker").dataset.options = options;
  byId("speaker").replaceChildren(
    ...members.map((id) => make("option", { value: id, selected: id === speaker }, nameById(id))),
  );
}

const OF_GROUP = new Set(["join", "leave"]);

// An act of the open chat, or the promise of one; resolves to whether it was done. The stream shows
// its result.
async function perform(promised) {
  const user = me();
  const where = chat().kind === "user" ? {} : { chat: chosen };
  try {
    const details = await promised;
    const who = OF_GROUP.has(details.act) ? {} : { user };
    await act({ ...who, ...where, ...details });
    tell("");
    return true;
  } catch (error) {
    tell(`送信できませんでした: ${error.message}`);
    return false;
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
    drawMenu(true);
    if (!chat()) chosen = null;
    const first = matchMedia("(min-width: 760px)").matches ? chats[0]?.id : null;
    const wanted = chosen || addressed() || first || null;
    if (wanted === chosen && chosen) return redraw();
    history.replaceState(history.state, "", wanted ? `#${wanted}` : location.pathname);
    await show(wanted);
  },
  lost: () => tell("シミュレーターとの接続が切れました。つなぎ直しています…"),
  people: ({ loaded }) => (loaded ? location.reload() : refreshSoon()),
  clock: setClock,
  menu: () => drawMenu(true),
  loading: ({ chatId, seconds }) => chatId === chosen && typing(seconds),
  bubble: (bubble) => {
    const others = state.last.filter((each) => each.chatId !== bubble.chatId);
    const newest = state.last.find((each) => each.chatId === bubble.chatId);
    state.last = [...others, newest && newest.number > bubble.number ? newest : bubble];
    if (bubble.chatId === chosen) arrive(bubble);
    else if (bubble.speaker === "bot") unread.set(bubble.chatId, (unread.get(bubble.chatId) || 0) + 1);
    drawSoon();
    refreshSoon();
  },
});

function arrive(bubble) {
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

setUpActions(perform, tell);
// Whom @ can mention in the open chat.
function mentioned() {
  const { kind, members } = chat() || {};
  if (!members || kind === "user") return [];
  return [...members.filter((id) => id !== speaker).map(nameById), state.bot.name, "All"];
}

setUpComposer(perform, mentioned);
moveByArrows(byId("chats"));
setUpClock(tell);
setUpStrips(stayPinned);
setUpKeep(() => chosen, tell);
byId("speaker").addEventListener("change", (event) => {
  speaker = event.target.value;
  redraw();
});
byId("back").addEventListener("click", () => {
  if (history.state?.fromList) history.back();
  else open(null);
});
byId("actions").addEventListener("click", ({ currentTarget }) => {
  const items = actionsOf(chat()).map(([label, sign, act]) => [label, sign, () => perform(act)]);
  openPopup(currentTarget.getBoundingClientRect(), items);
});
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
