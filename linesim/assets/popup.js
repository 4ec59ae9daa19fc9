// A menu of actions beside a button or the pointer: arrow keys choose, Esc closes, the focus returns.

import { icon, make, moveByArrows } from "./dom.js";

const box = make("div", { class: "popup", role: "menu", popover: "auto" });
document.body.append(box);
moveByArrows(box);

// `items`: each a label, the name of an icon, and what it does.
export function openPopup({ left, right, top, bottom }, items) {
  box.replaceChildren(
    ...items.map(([label, sign, act]) => {
      const chosen = () => {
        box.hidePopover();
        act();
      };
      return make("button", { type: "button", role: "menuitem", onclick: chosen }, icon(sign), make("span", {}, label));
    }),
  );
  box.showPopover();
  const { offsetWidth: width, offsetHeight: height } = box;
  const below = bottom + height + 8 < innerHeight;
  box.style.left = `${Math.max(8, Math.min(left + width > innerWidth - 8 ? right - width : left, innerWidth - width - 8))}px`;
  box.style.top = `${below ? bottom + 4 : Math.max(8, top - height - 4)}px`;
  box.firstChild.focus();
}
