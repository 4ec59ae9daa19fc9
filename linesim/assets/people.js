// The list of chats, and the dialogs that add to it.

import { post } from "./api.js";
import { time } from "./clock.js";
import { avatar, byId, clock, date, day, make } from "./dom.js";
import { summary } from "./messages.js";
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

export function drawList(chats, { chosen, unread, onchoose }) {
  const names = (id) => chats.find((chat) => chat.id === id)?.name;
  const today = day(time());
  const focused = byId("chats").contains(document.activeElement) && document.activeElement.dataset.chat;
  byId("chats").replaceChildren(
    ...chats.map((chat) => {
      const count = unread.get(chat.id);
      return make(
        "li",
        {},
        make(
          "button",
          { type: "button", class: chat.id === chosen ? "chosen" : "", ariaCurrent: chat.id === chosen ? "true" : null, "data-chat": chat.id, onclick: () => onchoose(chat.id) },
          avatar(chat.id, chat.name),
          make(
            "span",
            { class: "preview" },
            make("strong", {}, nameOf(chat)),
            make("small", {}, chat.last ? preview(chat.last, names) : "まだ何も話していません"),
          ),
          make(
            "span",
            { class: "when" },
            make("time", {}, chat.last ? (day(chat.last.at) === today ? clock : date)(chat.last.at) : ""),
            count ? make("b", { ariaLabel: `未読 ${count}` }, String(count)) : null,
          ),
        ),
      );
    }),
  );
  if (focused) byId("chats").querySelector(`[data-chat="${focused}"]`)?.focus();
}

export function nameOf(chat) {
  return chat.members ? `${chat.name} (${chat.members.length})` : chat.name;
}

const PREVIEWS = {
  follow: "友だちに追加しました",
  unfollow: "ブロックしました",
  postback: "選択しました",
};

function preview({ message, unsent }, names) {
  if (unsent) return "送信を取り消しました";
  return PREVIEWS[message.type] || summary(message, names);
}

// Resolves to the new chat's id, or to null.
export async function askForUser(users) {
  const taken = new Set(users.map((user) => user.name));
  byId("user-name").value = NAMES.find((name) => !taken.has(name)) || "";
  if ((await ask(byId("user-dialog"))) !== "ok") return null;
  const user = await post("/sim/users", { name: byId("user-name").value.trim(), friend: false });
  await post("/sim/deliveries", { acts: [{ act: "follow", user: user.userId }] });
  return user.userId;
}

export async function askForGroup(users) {
  byId("group-name").value = "";
  // A room has no name of its own: LINE shows its members.
  const kind = () => byId("group-form").elements.kind.value;
  const choose = () => {
    byId("group-name").disabled = byId("group-name").parentElement.hidden = kind() === "room";
  };
  byId("group-form").onchange = choose;
  choose();
  byId("group-members").replaceChildren(
    ...users.map((user) =>
      make("label", {}, make("input", { type: "checkbox", value: user.userId, checked: true }), user.name),
    ),
  );
  if ((await ask(byId("group-dialog"))) !== "ok") return null;
  const members = [...byId("group-members").querySelectorAll(":checked")].map((box) => box.value);
  const others = users.filter((user) => members.includes(user.userId)).map((user) => user.name);
  const name = kind() === "room" ? others.join("、").slice(0, 100) || "メンバーなし" : byId("group-name").value.trim();
  const group = await post("/sim/groups", { name, members, kind: kind(), present: false });
  await post("/sim/deliveries", { acts: [{ act: "join", chat: group.chatId }] });
  return group.chatId;
}

export function ask(dialog) {
  dialog.returnValue = "";
  dialog.querySelector("[data-close]").onclick = () => dialog.close("");
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue), { once: true });
  });
}
