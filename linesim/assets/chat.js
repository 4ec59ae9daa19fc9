// The chat page: keeps the simulator's state, and redraws it at each change from the stream.

import { drawReplies } from "./actions.js";
import { download, get, listen, post } from "./api.js";
import { showMenu } from "./areas.js";
import { render } from "./bubbles.js";
import { forgetClock, setClock } from "./clock.js";
import { writeIn } from "./composer.js";
import { botAvatar, byId, day, make, moveByArrows } from "./dom.js";
import { askForGroup, askForUser, chatsOf, drawList, nameOf } from "./people.js";
import { openPopup, tell, trying } from "./popup.js";
import { chat, here, me, nameById, perform } from "./state.js";
import { follow, forget } from "./strip.js";

let connections = 0; // how often the stream was opened
const unread = new Map();
const drawn = new Map(); // bubble number -> element
const arriving = new Set(); // for each transcript being loaded: the open chat's bubbles since

const list = byId("bubbles");
let newest = null; // of the drawn bubbles
let scrolled = 0; // how far, when it was last heard of
let pinned = true; // the newest bubble is in view, and stays in view while media load and messages arrive

async function refresh() {
  const connection = connections;
  const found = await get("/sim/state");
  // Asked before the stream was opened again: an answer of that time would set the clock back.
  if (connection !== connections) return;
  here.state = found;
  setClock(found.clock);
  draw();
}

// Each chat has an address, and each choice of one is a step in the browser's history.
async function open(id) {
  if (id === here.chosen) return show(id);
  history.pushState({ fromList: !here.chosen }, "", id ? `#${id}` : location.pathname);
  await show(id);
  // Not where it would open a keyboard over the chat.
  if (id && matchMedia("(hover: hover)").matches) byId("text").focus();
}

async function show(id) {
  const left = here.chosen;
  here.chosen = id;
  unread.delete(id);
  const { members = [] } = chat() || {};
  here.speaker = members.find((member) => member === here.speaker) || members[0] || null;
  writeIn(id);
  await redraw();
  if (!id && left) byId("chats").querySelector(`[data-chat="${left}"]`)?.focus();
}

const addressed = () => here.chats.find((each) => each.id === location.hash.slice(1))?.id || null;

window.addEventListener("popstate", () => show(addressed()));

// Bubbles that the stream delivers while the transcript loads are newer than the transcript.
async function redraw() {
  const wanted = here.chosen;
  const newer = [];
  arriving.add(newer);
  const failed = ({ message }) => tell(`トークを読み込めませんでした: ${message}`);
  const bubbles = wanted ? await get(`/sim/chats/${encodeURIComponent(wanted)}`).catch(failed) : null;
  arriving.delete(newer);
  if (wanted !== here.chosen) return;
  drawn.clear();
  newest = null;
  forget();
  list.replaceChildren();
  scrolled = 0;
  bubbles?.forEach((bubble) => put(bubble, true));
  newer.forEach((bubble) => put(bubble));
  draw();
  pinned = true;
}

function put(bubble, isOld = false) {
  const row = render(bubble);
  row.dataset.number = bubble.number;
  follow(bubble, row, isOld);
  const old = drawn.get(bubble.number);
  drawn.set(bubble.number, row);
  if (old) return old.replaceWith(row);
  if (!newest || !list.hasChildNodes() || day(newest.at) !== day(bubble.at)) {
    list.append(make("li", { class: "day" }, make("span", {}, day(bubble.at))));
  }
  newest = bubble;
  list.append(row);
  drawReplies(bubble.speaker === "bot" ? bubble.message.quickReply : null);
}

function draw() {
  here.chats = chatsOf(here.state);
  const current = chat();
  document.body.classList.toggle("talking", Boolean(current));
  document.body.classList.toggle("empty", here.chats.length === 0);
  document.title = current ? `${nameOf(current)} - linesim` : "linesim";
  drawList(unread, open);
  drawFigures();
  drawMenu();
  if (current) drawHead(current);
}

function drawMenu(again) {
  const current = chat();
  showMenu(current?.kind === "user" && !current.blocked ? here.chosen : null, again).catch(() => {});
}

function drawFigures() {
  const { calls = 0, closestStarts: closest = null } = here.state;
  const apart = closest === null ? "" : `・最短間隔 ${(closest * 1000).toFixed(0)} ms`;
  byId("figures").textContent = `API呼び出し ${calls} 回${apart}`;
}

function drawHead(current) {
  const [text, label, act] = barOf(current);
  const onclick = () => perform({ act });
  byId("title").textContent = nameOf(current);
  byId("subtitle").textContent = standing(current);
  byId("bar").hidden = !text;
  byId("composer").hidden = Boolean(text);
  byId("bar").replaceChildren(text || "", act ? make("button", { type: "button", class: "small", onclick }, label) : "");
  drawSpeakers(current);
}

function standing({ kind, friend, blocked, members, present }) {
  if (kind === "user") return blocked ? "ブロック中" : friend ? "友だち" : "友だちではありません";
  const names = members.map(nameById).join("、");
  return present ? names : `${names}（ボットは不在）`;
}

// What stands in the input line's place, if anything: a text, and a button's label and act.
function barOf({ kind, blocked, members, present }) {
  if (kind === "user") return blocked ? ["ボットをブロックしています", "ブロック解除", "follow"] : [];
  const place = kind === "room" ? "トーク" : "グループ";
  if (!present) return [`ボットはこの${place}にいません`, "招待する", "join"];
  return members.length ? [] : ["メンバーがいません"];
}

// Of the chat's menu: label, icon and act of each.
function actionsOf({ kind, friend, blocked, present, members }) {
  if (kind === "user") {
    if (blocked) return [];
    return [friend ? ["ブロック", "block", { act: "unfollow" }] : ["友だちに追加", "add", { act: "follow" }]];
  }
  if (!present) return [];
  const outside = here.state.users.filter((user) => !members.includes(user.userId));
  return [
    ["ボットを退出", "leave", { act: "leave" }],
    ...members.map((id) => [`${nameById(id)}が退出`, "leave", { act: "memberLeft", user: id }]),
    ...outside.map((user) => [`${user.name}を招待`, "add", { act: "memberJoined", user: user.userId }]),
  ];
}

function drawSpeakers({ kind, members }) {
  byId("speaker-row").hidden = kind === "user";
  if (kind === "user") return;
  if (!members.includes(here.speaker)) here.speaker = members[0] || null;
  // An open list of options would close.
  const options = JSON.stringify([here.speaker, ...members.map((id) => [id, nameById(id)])]);
  if (byId("speaker").dataset.options === options) return;
  byId("speaker").dataset.options = options;
  byId("speaker").replaceChildren(
    ...members.map((id) => make("option", { value: id, selected: id === here.speaker }, nameById(id))),
  );
}

function typing(seconds) {
  list.querySelector(".typing")?.remove();
  const dots = make("p", { class: "text" }, make("i"), make("i"), make("i"));
  const row = make("li", { class: "theirs bot typing" }, botAvatar(), make("div", { class: "line" }, dots));
  list.append(row);
  setTimeout(() => row.remove(), seconds * 1000);
}

// Names, previews and figures: a burst of changes asks for them every 300 ms.
let asked = null;

function refreshSoon() {
  asked ??= setTimeout(() => {
    asked = null;
    refresh().catch(() => {}); // the stream will be lost as well
  }, 300);
}

async function connected() {
  connections += 1;
  forgetClock();
  await refresh();
  drawMenu(true);
  if (!chat()) here.chosen = null;
  const first = matchMedia("(min-width: 760px)").matches ? here.chats[0]?.id : null;
  const wanted = here.chosen || addressed() || first || null;
  if (wanted === here.chosen && wanted) return redraw();
  history.replaceState(history.state, "", wanted ? `#${wanted}` : location.pathname);
  return show(wanted);
}

listen({
  open: () => trying("読み込めませんでした", connected),
  lost: () => tell("シミュレーターとの接続が切れました。つなぎ直しています…"),
  people: ({ loaded }) => (loaded ? location.reload() : refreshSoon()),
  clock: setClock,
  menu: () => drawMenu(true),
  loading: ({ chatId, seconds }) => chatId === here.chosen && typing(seconds),
  bubble: (bubble) => {
    if (bubble.chatId === here.chosen) arrive(bubble);
    else if (bubble.speaker === "bot") unread.set(bubble.chatId, (unread.get(bubble.chatId) || 0) + 1);
    refreshSoon();
  },
});

function arrive(bubble) {
  pinned ||= bubble.userId === me() && !drawn.has(bubble.number);
  if (bubble.speaker === "bot") list.querySelector(".typing")?.remove();
  arriving.forEach((newer) => newer.push(bubble));
  put(bubble);
}

function stayPinned() {
  if (pinned) list.scrollTop = list.scrollHeight;
}

// Only who scrolls up leaves the end: the event also comes when the list shrinks or grows.
list.addEventListener("scroll", () => {
  const { scrollTop, scrollHeight, clientHeight } = list;
  if (scrollHeight - scrollTop - clientHeight < 120) pinned = true;
  else if (scrollTop < scrolled) pinned = false;
  scrolled = scrollTop;
});
for (const kind of ["load", "loadedmetadata"]) list.addEventListener(kind, stayPinned, true);
new ResizeObserver(stayPinned).observe(list);
new MutationObserver(() => requestAnimationFrame(stayPinned)).observe(list, { childList: true, subtree: true });

moveByArrows(byId("chats"));
byId("speaker").addEventListener("change", (event) => {
  here.speaker = event.target.value;
  redraw();
});
byId("back").addEventListener("click", () => {
  if (history.state?.fromList) history.back();
  else open(null);
});
byId("actions").addEventListener("click", ({ currentTarget }) => {
  const path = `/sim/chats/${encodeURIComponent(here.chosen)}/test`;
  openPopup(currentTarget.getBoundingClientRect(), [
    ["テストとして保存", "file", () => trying("テストとして保存できませんでした", () => download(path))],
    ...actionsOf(chat()).map(([label, sign, act]) => [label, sign, () => perform(act)]),
  ]);
});

async function add(ask) {
  let id = null;
  const added = await trying("追加できませんでした", async () => {
    id = await ask();
    if (id) await refresh();
  });
  if (added && id) await open(id);
}

for (const id of ["add-user", "welcome-add"]) byId(id).addEventListener("click", () => add(askForUser));
byId("add-group").addEventListener("click", () => add(askForGroup));

byId("load").addEventListener("click", () => byId("saved").click());
byId("saved").addEventListener("change", async ({ target }) => {
  const [file] = target.files;
  target.value = "";
  if (!file || !confirm("今のユーザーとトークは、ファイルの内容に置き換わります。読み込みますか？")) return;
  await trying("読み込めませんでした", () => post("/sim/saved", file));
});
