// Imagemap messages, and areas on a picture.

import { film, make, picture } from "./dom.js";

const WIDTHS = [240, 300, 460, 700, 1040];

export function drawImagemap({ baseUrl, baseSize, altText, actions, video }, { handlers: { choose } }) {
  const map = make(
    "div",
    { class: "imagemap" },
    picture(`${baseUrl}/1040`, {
      alt: altText,
      sizes: "min(420px, 100vw - 100px)",
      srcset: WIDTHS.map((width) => `${baseUrl}/${width} ${width}w`).join(", "),
    }),
    ...actions.map((action) => area({ ...action, uri: action.linkUri }, action.area, baseSize, choose)),
    ...(video ? show(video, baseSize, choose) : []),
  );
  map.style.aspectRatio = `${baseSize.width} / ${baseSize.height}`;
  return map;
}

// A video, and the link that stands in its place after its end.
function show({ originalContentUrl, previewImageUrl, area: bounds, externalLink }, size, choose) {
  const player = put(film(originalContentUrl, previewImageUrl), bounds, size);
  if (!externalLink) return [player];
  const visit = () => choose({ type: "uri", uri: externalLink.linkUri });
  const link = put(make("button", { class: "after", type: "button", hidden: true, onclick: visit }, externalLink.label), bounds, size);
  player.firstChild.addEventListener("ended", () => (link.hidden = false));
  return [player, link];
}

export function area(action, bounds, size, choose) {
  const title = action.label || action.text || action.uri || action.clipboardText || action.data;
  return put(make("button", { class: "area", type: "button", title, ariaLabel: title, onclick: () => choose(action) }), bounds, size);
}

// Puts an element at its place on a picture that is drawn at any width.
function put(element, { x, y, width, height }, size) {
  const share = { left: x / size.width, top: y / size.height, width: width / size.width, height: height / size.height };
  for (const [name, part] of Object.entries(share)) element.style.setProperty(name, `${part * 100}%`);
  return element;
}
