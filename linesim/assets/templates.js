// Template messages: buttons, confirm, carousel and image carousel.

import { make, picture } from "./dom.js";

export function drawTemplate({ template, altText }, { handlers: { choose } }) {
  const draw = { buttons: panel, confirm, carousel, image_carousel: album }[template.type];
  return draw ? draw(template, choose) : make("p", { class: "text" }, altText);
}

// `look`: the shape of the image, which a carousel gives for all of its columns.
function panel(column, choose, look = column) {
  const { thumbnailImageUrl: url, title, text, defaultAction } = column;
  const { imageAspectRatio = "rectangle", imageSize = "cover" } = look;
  const image = url ? picture(url, { class: `thumbnail ${imageAspectRatio} ${imageSize}` }) : null;
  image?.style.setProperty("background-color", column.imageBackgroundColor || "#FFFFFF");
  const face = [image, title ? make("strong", {}, title) : null, make("span", {}, text)];
  return make(
    "div",
    { class: "template" },
    defaultAction
      ? make("button", { class: "face", type: "button", title: defaultAction.label, onclick: () => choose(defaultAction) }, ...face)
      : make("div", { class: "face" }, ...face),
    choices(column.actions, choose),
  );
}

function confirm({ text, actions }, choose) {
  return make("div", { class: "template confirm" }, make("div", { class: "face" }, make("span", {}, text)), choices(actions, choose));
}

function choices(actions, choose) {
  const buttons = actions.map((action) => make("button", { type: "button", onclick: () => choose(action) }, action.label));
  return make("div", { class: "choices" }, ...buttons);
}

function carousel(template, choose) {
  return make("div", { class: "strip" }, ...template.columns.map((column) => panel(column, choose, template)));
}

function album({ columns }, choose) {
  const shots = columns.map(({ imageUrl, action }) =>
    make(
      "button",
      { class: "shot", type: "button", title: action.label, onclick: () => choose(action) },
      picture(imageUrl, { class: "thumbnail square cover", alt: "" }),
      action.label ? make("span", {}, action.label) : null,
    ),
  );
  return make("div", { class: "strip" }, ...shots);
}
