// Builds elements. Texts only become text nodes, so messages are never parsed as HTML.

import { icon } from "./icons.js";

export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") element.className = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

// A picture from anywhere; a neutral sign stands in its place if it does not load.
export function picture(src, properties) {
  const missing = () => make("span", { class: `${properties.class || ""} missing`, title: `画像を読み込めません: ${src}` }, icon("cameraRoll"));
  const image = make("img", { ...properties, src, onerror: () => image.replaceWith(missing()) });
  return image;
}

export const byId = (id) => document.getElementById(id);

// A circle with the name's first letter, its colour drawn from the id.
export function avatar(id, name) {
  const element = make("span", { class: "avatar", ariaHidden: "true" }, [...name][0] || "？");
  let hue = 0;
  for (const letter of id) hue = (hue * 31 + letter.charCodeAt(0)) % 360;
  element.style.setProperty("--hue", hue);
  return element;
}

export function botAvatar() {
  return make("img", { class: "avatar", src: "/page/icon.svg", alt: "" });
}

export const clock = (at) =>
  new Date(at).toLocaleTimeString("ja-JP", { hour: "2-digit", minute: "2-digit" });

export const day = (at) =>
  new Date(at).toLocaleDateString("ja-JP", { year: "numeric", month: "long", day: "numeric", weekday: "short" });
