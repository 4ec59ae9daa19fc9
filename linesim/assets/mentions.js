// Typing @ in a group offers its members, the bot and All.

import { byId, make } from "./dom.js";

const box = byId("mentions");
let offered = [];
let place = 0;

// The names that fit the letters from the last @ to the caret.
export function offer(text, names) {
  const [, letters] = /@([^\s@]*)$/.exec(text.value.slice(0, text.selectionStart)) || [];
  const fits = (name) => letters !== undefined && name.toLowerCase().startsWith(letters.toLowerCase());
  show(text, names.filter(fits), 0);
}

export function withdraw(text) {
  show(text, [], 0);
}

function show(text, names, chosen) {
  [offered, place] = [names, chosen];
  box.hidden = !names.length;
  box.replaceChildren(
    ...names.map((name, number) =>
      make("li", { id: `mention-${number}`, role: "option", ariaSelected: String(number === place), onpointerdown: (event) => {
        event.preventDefault();
        insert(text, name);
      } }, `@${name}`),
    ),
  );
  if (names.length) text.setAttribute("aria-activedescendant", `mention-${place}`);
  else text.removeAttribute("aria-activedescendant");
  box.children[place]?.scrollIntoView({ block: "nearest" });
}

// Whether the key was for the offered names.
export function takesKey(text, event) {
  const steps = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!offered.length) return false;
  if (steps) show(text, offered, (place + steps + offered.length) % offered.length);
  else if (event.key === "Enter" || event.key === "Tab") insert(text, offered[place]);
  else if (event.key === "Escape") withdraw(text);
  else return false;
  event.preventDefault();
  return true;
}

function insert(text, name) {
  const start = text.value.slice(0, text.selectionStart).lastIndexOf("@");
  text.setRangeText(`@${name} `, start, text.selectionStart, "end");
  text.dispatchEvent(new Event("input"));
  withdraw(text);
}
