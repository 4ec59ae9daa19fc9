// What lies over the page: errors, notices, menus and dialogs.

import { byId, icon, make, moveByArrows } from "./dom.js";

// An error, in the open chat; an empty text clears it.
export function tell(text) {
  byId("banner").textContent = text;
  byId("banner").hidden = !text;
}

// Tells if a job failed; resolves to whether it was done.
export async function trying(failure, job) {
  try {
    await job();
    tell("");
    return true;
  } catch (error) {
    tell(`${failure}: ${error.message}`);
    return false;
  }
}

let hiding;

export function announce(what, value) {
  byId("toast").replaceChildren(what, make("strong", {}, value));
  byId("toast").hidden = false;
  clearTimeout(hiding);
  hiding = setTimeout(() => (byId("toast").hidden = true), 6000);
}

const menu = make("div", { class: "popup", role: "menu", popover: "auto" });
document.body.append(menu);
moveByArrows(menu);

// A menu beside a button or the pointer: arrow keys choose, Esc closes, the focus returns.
// `items`: each a label, the name of an icon, and what it does.
export function openPopup({ left, right, top, bottom }, items) {
  menu.replaceChildren(
    ...items.map(([label, sign, act]) => {
      const onclick = () => {
        menu.hidePopover();
        act();
      };
      return make("button", { type: "button", role: "menuitem", onclick }, icon(sign), make("span", {}, label));
    }),
  );
  menu.showPopover();
  const { offsetWidth: width, offsetHeight: height } = menu;
  const beside = left + width > innerWidth - 8 ? right - width : left;
  const isBelow = bottom + height + 8 < innerHeight;
  menu.style.left = `${Math.max(8, Math.min(beside, innerWidth - width - 8))}px`;
  menu.style.top = `${isBelow ? bottom + 4 : Math.max(8, top - height - 4)}px`;
  menu.firstChild?.focus();
}

// A dialog; resolves to the value of the button that ended it: "ok" of `submit`, or "".
export function ask(title, contents, submit) {
  const cancel = make("button", { type: "button", onclick: () => dialog.close("") }, "やめる");
  const buttons = make("menu", {}, cancel, submit ? make("button", { class: "primary", value: "ok" }, submit) : null);
  const form = make("form", { method: "dialog", autocomplete: "off" }, make("h2", {}, title), ...contents, buttons);
  const dialog = make("dialog", {}, form);
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue);
    });
  });
}

export const hint = (text) => make("p", { class: "hint" }, text);
