// Builds elements. Texts only become text nodes, so messages are never parsed as HTML.

export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") element.className = value;
    else if (name === "style") set(element, value);
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

// Styles, one by one: the page's policy forbids style attributes.
export function set(element, styles) {
  for (const [name, value] of Object.entries(styles)) {
    if (value !== undefined) element.style.setProperty(name, value);
  }
}

// A picture from anywhere; a neutral sign stands in its place if it does not load.
export function picture(src, properties) {
  const words = { class: `${properties.class || ""} missing`, title: `画像を読み込めません: ${src}` };
  const onerror = () => image.replaceWith(make("span", words, icon("photo")));
  const image = make("img", { ...properties, src, onerror });
  return image;
}

// The same for SVG, whose attributes are never properties.
export function shape(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// One of the symbols in index.html: no font has to have it.
export function icon(name) {
  return shape("svg", { class: "icon", viewBox: "0 0 24 24", "aria-hidden": "true" }, shape("use", { href: `#i-${name}` }));
}

// A video behind a button, which loads it unless `preload` says more.
export function film(src, poster, preload = "none") {
  const video = make("video", { src, poster, preload });
  const play = () => {
    button.remove();
    video.controls = true;
    video.play().catch(() => {}); // the player shows it
  };
  const button = make("button", { class: "play", type: "button", ariaLabel: "再生", onclick: play }, icon("play"));
  return make("div", { class: "film" }, video, button);
}

// Arrow keys, Home and End move the focus among an element's buttons.
export function moveByArrows(element) {
  element.addEventListener("keydown", (event) => {
    const buttons = [...element.querySelectorAll("button:not(:disabled)")];
    const here = buttons.indexOf(document.activeElement);
    const [after, before] = [here + 1, here - 1];
    const next = { ArrowDown: after, ArrowRight: after, ArrowUp: before, ArrowLeft: before, Home: 0, End: -1 }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    buttons.at(next % buttons.length)?.focus();
  });
}

export const byId = (id) => document.getElementById(id);

// A circle with the name's first letter, its colour drawn from the id.
export function avatar(id, name) {
  return make("span", { class: "avatar", ariaHidden: "true", style: { "--hue": hueOf(id) } }, [...name][0] || "？");
}

export const hueOf = (id) => [...id].reduce((hue, letter) => (hue * 31 + letter.charCodeAt(0)) % 360, 0);

export const botAvatar = () => make("img", { class: "avatar", src: "/page/icon.svg", alt: "" });

// All times are Japan's, as LINE's own are, whatever the browser's zone is.
export const ZONE = { timeZone: "Asia/Tokyo" };

// Made once: a thousand bubbles have two thousand times.
export const written = (options) => {
  const form = new Intl.DateTimeFormat("ja-JP", { ...ZONE, ...options });
  return (at) => form.format(at);
};

export const clock = written({ hour: "2-digit", minute: "2-digit" });
export const date = written({ month: "numeric", day: "numeric" });
export const day = written({ year: "numeric", month: "long", day: "numeric", weekday: "short" });
