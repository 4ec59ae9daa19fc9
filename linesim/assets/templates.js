// Template messages: buttons, confirm, carousel and image carousel.

import { choose } from "./actions.js";
import { make, picture } from "./dom.js";

export function drawTemplate({ template, altText }) {
  const confirm = (one) => panel(one, one, "template confirm");
  const draw = { buttons: panel, confirm, carousel, image_carousel: album }[template.type];
  return draw ? draw(template) : make("p", { class: "text" }, altText);
}

const chooser = (action, properties, ...children) =>
  make("button", { type: "button", title: action.label, onclick: () => choose(action), ...properties }, ...children);

// `look`: the shape of the image, which a carousel gives for all of its columns.
function panel(column, look = column, kind = "template") {
  const { thumbnailImageUrl: url, title, text, defaultAction } = column;
  const { imageAspectRatio = "rectangle", imageSize = "cover" } = look;
  const style = { "background-color": column.imageBackgroundColor || "#FFFFFF" };
  const image = url ? picture(url, { class: `thumbnail ${imageAspectRatio} ${imageSize}`, style }) : null;
  const face = [image, title ? make("strong", {}, title) : null, make("span", {}, text)];
  return make(
    "div",
    { class: kind },
    defaultAction ? chooser(defaultAction, { class: "face" }, ...face) : make("div", { class: "face" }, ...face),
    choices(column.actions),
  );
}

function choices(actions) {
  return make("div", { class: "choices" }, ...actions.map((action) => chooser(action, {}, action.label)));
}

function carousel(template) {
  return make("div", { class: "strip" }, ...template.columns.map((column) => panel(column, template)));
}

function album({ columns }) {
  const shots = columns.map(({ imageUrl, action }) =>
    chooser(
      action,
      { class: "shot" },
      picture(imageUrl, { class: "thumbnail square cover", alt: "" }),
      action.label ? make("span", {}, action.label) : null,
    ),
  );
  return make("div", { class: "strip" }, ...shots);
}
