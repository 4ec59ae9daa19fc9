// Pictures with areas: imagemaps, and the rich menu of a 1:1 chat.

import { choose, openMenu } from "./actions.js";
import { get } from "./api.js";
import { byId, film, icon, make, picture, set } from "./dom.js";

const WIDTHS = [240, 300, 460, 700, 1040];

export function drawImagemap({ baseUrl, baseSize, altText, actions, video }) {
  const srcset = WIDTHS.map((width) => `${baseUrl}/${width} ${width}w`).join(", ");
  return make(
    "div",
    { class: "imagemap", style: { "aspect-ratio": `${baseSize.width} / ${baseSize.height}` } },
    picture(`${baseUrl}/1040`, { alt: altText, sizes: "min(420px, 100vw - 100px)", srcset }),
    ...actions.map((action) => area({ ...action, uri: action.linkUri }, action.area, baseSize)),
    ...(video ? show(video, baseSize) : []),
  );
}

// A video, and the link that stands in its place after its end.
function show({ originalContentUrl, previewImageUrl, area: bounds, externalLink }, size) {
  const player = put(film(originalContentUrl, previewImageUrl), bounds, size);
  if (!externalLink) return [player];
  const onclick = () => choose({ type: "uri", uri: externalLink.linkUri });
  const link = make("button", { class: "after", type: "button", hidden: true, onclick }, externalLink.label);
  player.firstChild.addEventListener("ended", () => (link.hidden = false));
  return [player, put(link, bounds, size)];
}

function area(action, bounds, size) {
  const title = action.label || action.text || action.uri || action.clipboardText || action.data;
  const onclick = () => choose(action);
  return put(make("button", { class: "area", type: "button", title, ariaLabel: title, onclick }), bounds, size);
}

// Puts an element at its place on a picture that is drawn at any width.
function put(element, { x, y, width, height }, size) {
  const across = (part) => `${(part / size.width) * 100}%`;
  const down = (part) => `${(part / size.height) * 100}%`;
  set(element, { left: across(x), top: down(y), width: across(width), height: down(height) });
  return element;
}

const [bar, board] = [byId("menu-bar"), byId("menu-board")];
let owner = null; // the user whose menu it is
let menu = null;

bar.addEventListener("click", () => openMenu(board.hidden));

// Draws the menu of the user whose 1:1 chat is open, or none for null; `again` after a change.
export async function showMenu(userId, again = false) {
  if (userId === owner && !again) return;
  const before = userId === owner ? menu : null;
  owner = userId;
  const found = userId ? (await get(`/sim/users/${encodeURIComponent(userId)}/menu`)).menu : null;
  if (userId !== owner) return;
  const wasOpen = before !== null && !board.hidden;
  menu = found;
  byId("menu").hidden = !menu;
  if (!menu || before?.richMenuId === menu.richMenuId) return;
  bar.replaceChildren(menu.chatBarText, icon("down"));
  board.replaceChildren(
    picture(`/sim/menus/${encodeURIComponent(menu.richMenuId)}/image`, { alt: menu.chatBarText }),
    ...menu.areas.map(({ bounds, action }) => area(action, bounds, menu.size)),
  );
  set(board, { "--ratio": menu.size.width / menu.size.height });
  openMenu(wasOpen || menu.selected);
}
