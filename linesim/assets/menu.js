// The rich menu of a 1:1 chat: the bar with its text, and the picture with its areas.

import { get } from "./api.js";
import { byId, icon, make, picture } from "./dom.js";
import { area } from "./imagemap.js";

const bar = make("button", { type: "button", class: "menu-bar", onclick: () => openMenu(board.hidden) });
const board = make("div", { class: "menu-board" });
const box = make("section", { class: "menu", id: "menu", ariaLabel: "リッチメニュー", hidden: true }, bar, board);
let owner = null; // the user whose menu it is
let menu = null;
let choose;

export function setUpMenu(chosen) {
  choose = chosen;
  byId("composer").after(box);
}

// Draws the menu of the user whose 1:1 chat is open, or none for null; `again` after a change.
export async function showMenu(userId, again = false) {
  if (userId === owner && !again) return;
  const before = userId === owner ? menu : null;
  owner = userId;
  const found = userId ? (await get(`/sim/users/${encodeURIComponent(userId)}/menu`)).menu : null;
  if (userId !== owner) return;
  const wasOpen = before !== null && !board.hidden;
  menu = found;
  box.hidden = !menu;
  if (!menu || before?.richMenuId === menu.richMenuId) return;
  bar.replaceChildren(menu.chatBarText, icon("down"));
  board.replaceChildren(
    picture(`/sim/menus/${encodeURIComponent(menu.richMenuId)}/image`, { alt: menu.chatBarText }),
    ...menu.areas.map(({ bounds, action }) => area(action, bounds, menu.size, choose)),
  );
  board.style.setProperty("--ratio", menu.size.width / menu.size.height);
  openMenu(wasOpen || menu.selected);
}

export function openMenu(open) {
  board.hidden = !open;
  bar.ariaExpanded = String(open);
}
