// The list of chats, and the dialogs that add to it.

import { act, post } from "./api.js";
import { time } from "./clock.js";
import { avatar, byId, clock, date, day, make } from "./dom.js";
import { summary } from "./messages.js";
import { ask, hint } from "./popup.js";
import { here } from "./state.js";
import { NAMES } from "./stickers.js";

// All chats of a state as the simulator gives it, those spoken in last on top.
export function chatsOf(state) {
  const last = new Map(state.last.map((bubble) => [bubble.chatId, bubble]));
  const users = state.users.map((user) => ({ ...user, id: user.userId, kind: "user" }));
  const groups = state.groups.map((group) => ({ ...group, id: group.chatId }));
  return [...users, ...groups]
    .map((chat, place) => ({ ...chat, place, last: last.get(chat.id) }))
    .sort((a, b) => (b.last?.number ?? 0) - (a.last?.number ?? 0) || a.place - b.place);
}

export function drawList(unread, open) {
  const list = byId("chats");
  const focused = list.contains(document.activeElement) && document.activeElement.dataset.chat;
  list.replaceChildren(
    ...here.chats.map((chat) => {
      const isChosen = chat.id === here.chosen;
      const properties = { class: isChosen ? "chosen" : "", ariaCurrent: isChosen ? "true" : null, "data-chat": chat.id };
      const words = chat.last ? summary(chat.last) : "まだ何も話していません";
      const count = unread.get(chat.id);
      const button = make(
        "button",
        { type: "button", ...properties, onclick: () => open(chat.id) },
        avatar(chat.id, chat.name),
        make("span", { class: "preview" }, make("strong", {}, nameOf(chat)), make("small", {}, words)),
        make(
          "span",
          { class: "when" },
          make("time", {}, chat.last ? shortly(chat.last.at) : ""),
          count ? make("b", { ariaLabel: `未読 ${count}` }, String(count)) : null,
        ),
      );
      return make("li", {}, button);
    }),
  );
  if (focused) list.querySelector(`[data-chat="${focused}"]`)?.focus();
}

const shortly = (at) => (day(at) === day(time()) ? clock : date)(at);

export function nameOf(chat) {
  // Between marks, lest a name from right to left turns the number as well.
  return chat.members ? `\u2068${chat.name}\u2069 (${chat.members.length})` : chat.name;
}

const input = (properties) => make("input", { maxLength: 20, required: true, pattern: ".*\\S.*", ...properties });

// Resolves to the new chat's id, or to null.
export async function askForUser() {
  const taken = new Set(here.state.users.map((user) => user.name));
  const name = input({ value: NAMES.find((each) => !taken.has(each)) || "" });
  const words = hint("新しいユーザーがボットを友だちに追加します。");
  if ((await ask("友だちを追加", [make("label", {}, "名前 ", name), words], "追加")) !== "ok") return null;
  const user = await post("/sim/users", { name: name.value.trim(), friend: false });
  await act({ act: "follow", user: user.userId });
  return user.userId;
}

export async function askForGroup() {
  const { users } = here.state;
  const name = input({});
  const called = make("label", {}, "名前 ", name);
  // A room has no name of its own: LINE shows its members.
  const onchange = ({ target }) => (name.disabled = called.hidden = target === room);
  const group = make("input", { type: "radio", name: "kind", checked: true, onchange });
  const room = make("input", { type: "radio", name: "kind", onchange });
  const boxes = users.map(() => make("input", { type: "checkbox", checked: true }));
  const labels = users.map((user, place) => make("label", {}, boxes[place], user.name));
  const contents = [
    choices("種類", make("label", {}, group, "グループ"), make("label", {}, room, "複数人トーク（ルーム）")),
    called,
    choices("メンバー", make("div", { class: "members" }, ...labels)),
    hint("ボットも招待されます。"),
  ];
  if ((await ask("グループを作る", contents, "作る")) !== "ok") return null;
  const chosen = users.filter((_, place) => boxes[place].checked);
  const names = chosen.map((user) => user.name).join("、").slice(0, 100) || "メンバーなし";
  const { chatId } = await post("/sim/groups", {
    name: room.checked ? names : name.value.trim(),
    members: chosen.map((user) => user.userId),
    kind: room.checked ? "room" : "group",
    present: false,
  });
  await act({ act: "join", chat: chatId });
  return chatId;
}

const choices = (legend, ...fields) => make("fieldset", {}, make("legend", {}, legend), ...fields);
