// Draws a Flex Message as LINE's own simulator does. A value is set only if it has a form that LINE
// documents.

import { choose } from "./actions.js";
import { make, set } from "./dom.js";

const BUBBLES = ["nano", "micro", "deca", "hecto", "kilo", "mega", "giga"];
const BLOCKS = ["header", "hero", "body", "footer"];
const STEPS = { none: "0px", xs: "2px", sm: "4px", md: "8px", lg: "12px", xl: "16px", xxl: "20px" };
const FONTS = {
  xxs: "11px", xs: "13px", sm: "14px", md: "16px", lg: "19px",
  xl: "22px", xxl: "29px", "3xl": "35px", "4xl": "48px", "5xl": "74px",
};
const IMAGES = {
  xxs: "40px", xs: "60px", sm: "80px", md: "100px", lg: "120px", xl: "140px",
  xxl: "160px", "3xl": "180px", "4xl": "200px", "5xl": "220px", full: "100%",
};
const BORDERS = { none: "0px", light: "0.5px", normal: "1px", medium: "2px", "semi-bold": "3px", bold: "4px" };

// Readers: each gives the CSS value of one of LINE's values, or undefined.
const reader = (pattern, words = {}) => (value) =>
  Object.hasOwn(words, value) ? words[value] : pattern.test(value) ? `${value}` : undefined;
const word = (words) => reader(/(?!)/, words);

const px = /^\d+(\.\d+)?px$/;
const pxOrPercent = /^\d+(\.\d+)?(px|%)$/;
const colour = reader(/^#[\da-f]{6}([\da-f]{2})?$/i);
const space = reader(px, STEPS);
const padding = reader(pxOrPercent, STEPS);
const offset = reader(/^-?\d+(\.\d+)?(px|%)$/, STEPS);
const extent = reader(pxOrPercent);
const border = reader(px, BORDERS);
const font = reader(px, FONTS);
const imageSize = reader(pxOrPercent, IMAGES);
const angle = reader(/^\d+(\.\d+)?deg$/);
const percent = reader(/^\d+(\.\d+)?%$/);
const source = reader(/^https:\/\//i);
const arrangement = reader(/^(flex-start|center|flex-end|space-(between|around|evenly))$/);
const upright = word({ top: "flex-start", center: "center", bottom: "flex-end" });
const sideways = word({ start: "flex-start", center: "center", end: "flex-end" });
const weight = word({ regular: "400", bold: "700" });
const slant = reader(/^(normal|italic)$/);
const decoration = reader(/^(none|underline|line-through)$/);
const direction = reader(/^(start|center|end)$/);
const ratio = (value) => (/^\d+(\.\d+)?:\d+(\.\d+)?$/.test(value) ? value.replace(":", " / ") : "1 / 1");

// The element of a bubble or carousel.
export function drawFlex({ type, contents, ...bubble }) {
  if (type !== "carousel") return drawBubble(bubble);
  return make("div", { class: "fx-carousel" }, ...contents.map(drawBubble));
}

function drawBubble(bubble) {
  const size = BUBBLES.includes(bubble.size) ? bubble.size : "mega";
  const blocks = BLOCKS.filter((name) => bubble[name]);
  const element = make(
    "div",
    { class: `fx-bubble fx-${size}`, dir: bubble.direction === "rtl" ? "rtl" : "ltr" },
    ...blocks.map((name, place) => drawBlock(name, bubble, place === 0)),
  );
  return tappable(element, bubble.action);
}

function drawBlock(name, { [name]: component, styles }, isFirst) {
  const { backgroundColor, separator, separatorColor } = styles?.[name] || {};
  const line = separator && !isFirst ? " fx-lined" : "";
  const style = { "background-color": colour(backgroundColor), "border-top-color": colour(separatorColor) };
  return make("div", { class: `fx-block fx-${name}${line}`, style }, drawComponent(component));
}

function drawComponent(component) {
  const element = Object.hasOwn(DRAWN, component.type) ? DRAWN[component.type](component) : make("div");
  set(element, {
    position: component.position === "absolute" ? "absolute" : undefined,
    top: offset(component.offsetTop),
    bottom: offset(component.offsetBottom),
    "inset-inline-start": offset(component.offsetStart),
    "inset-inline-end": offset(component.offsetEnd),
  });
  const isOwn = ["button", "video"].includes(component.type); // a part of it is tapped
  return isOwn ? element : tappable(element, component.action);
}

const DRAWN = {
  box(box) {
    const layout = ["horizontal", "baseline"].includes(box.layout) ? box.layout : "vertical";
    const children = box.contents.map((component, place) => {
      const element = drawComponent(component);
      arrange(element, component, { ...box, layout }, place === 0);
      return element;
    });
    const style = {
      width: extent(box.width),
      height: extent(box.height),
      "max-width": extent(box.maxWidth),
      "max-height": extent(box.maxHeight),
      padding: padding(box.paddingAll),
      "padding-top": padding(box.paddingTop),
      "padding-bottom": padding(box.paddingBottom),
      "padding-inline-start": padding(box.paddingStart),
      "padding-inline-end": padding(box.paddingEnd),
      "background-color": colour(box.backgroundColor),
      "background-image": gradient(box.background),
      "border-color": colour(box.borderColor),
      "border-width": border(box.borderWidth),
      "border-radius": space(box.cornerRadius),
      "justify-content": arrangement(box.justifyContent),
      "align-items": layout === "baseline" ? undefined : arrangement(box.alignItems),
    };
    return make("div", { class: `fx-box fx-${layout}`, style }, ...children);
  },

  button({ action, style, color, height, gravity, adjustMode, scaling }) {
    const kind = ["primary", "secondary"].includes(style) ? style : "link";
    const label = drawLine([action.label || ""], adjustMode, { "--fx-font": scaled(FONTS.md, scaling) });
    const small = height === "sm" ? " fx-small" : "";
    const paint = { [kind === "link" ? "color" : "background-color"]: colour(color) };
    const button = make("button", { type: "button", class: `fx-${kind}${small}`, style: paint }, label);
    return make("div", { class: "fx-button", style: { "justify-content": upright(gravity) } }, tappable(button, action));
  },

  image({ url, size, align, gravity, aspectRatio, aspectMode, backgroundColor, animated }) {
    const width = imageSize(size) || IMAGES.md;
    const area = frame(url, { cover: aspectMode === "cover", animated });
    set(area, { width, "aspect-ratio": ratio(aspectRatio), "background-color": colour(backgroundColor) });
    const style = { "align-items": sideways(align), "justify-content": upright(gravity) };
    return make("div", { class: `fx-image${width.endsWith("%") ? " fx-wide" : ""}`, style }, area);
  },

  icon({ url, size, aspectRatio, scaling }) {
    const element = frame(url);
    element.classList.add("fx-icon");
    set(element, { height: scaled(font(size) || FONTS.md, scaling), "aspect-ratio": ratio(aspectRatio) });
    return element;
  },

  text({ text, contents, wrap, maxLines, lineSpacing, align, gravity, adjustMode, ...look }) {
    const parts = contents?.length ? contents.map((span) => drawSpan(span, look.scaling)) : [text];
    const style = { ...lettering(look, look.scaling), "text-align": direction(align), "--fx-spacing": reader(px)(lineSpacing) };
    const line = drawLine(parts, wrap ? "" : adjustMode, style);
    line.classList.toggle("fx-wrap", wrap === true);
    if (wrap && maxLines > 0) {
      line.classList.add("fx-clamp");
      set(line, { "-webkit-line-clamp": Number(maxLines) });
    }
    return make("div", { class: "fx-text", style: { "justify-content": upright(gravity) } }, line);
  },

  separator: ({ color }) => make("div", { class: "fx-separator", style: { color: colour(color) } }),

  filler: () => make("div"),

  video({ url, previewUrl, aspectRatio, altContent, action }) {
    const element = make("div", { class: "fx-video", style: { "aspect-ratio": ratio(aspectRatio) } });
    const link = () => tappable(make("button", { type: "button", class: "fx-more" }, action.label || ""), action);
    const offer = (hasEnded) =>
      element.replaceChildren(
        frame(previewUrl, { cover: true }),
        make("button", { type: "button", class: "play fx-play", ariaLabel: "再生", onclick: play }),
        hasEnded && action ? link() : "",
      );
    const play = () =>
      element.replaceChildren(
        make("video", {
          src: source(url),
          controls: true,
          autoplay: true,
          onended: () => offer(true), // LINE offers the action then
          onerror: () => element.replaceWith(drawComponent(altContent)),
        }),
      );
    offer(false);
    return element;
  },
};

// The size and the place of a component in its box.
function arrange(element, component, box, isFirst) {
  const across = box.layout !== "vertical";
  const share = shareOf(component, across);
  const spacing = isFirst || component.type === "filler" ? undefined : space(box.spacing);
  set(element, {
    flex: share ? `${share} 0 ${across ? "0px" : "auto"}` : "none",
    [across ? "margin-inline-start" : "margin-top"]:
      component.position === "absolute" ? undefined : space(component.margin) || spacing,
  });
}

function shareOf({ type, flex, width, height }, across) {
  if (type === "separator" || type === "icon") return 0;
  if (type === "box" && across && (width || height)) return 0;
  return Number.isInteger(flex) && flex >= 0 ? flex : across || type === "filler" ? 1 : 0;
}

const gradient = (given) =>
  given?.type === "linearGradient"
    ? `linear-gradient(${[angle(given.angle), colour(given.startColor), centre(given), colour(given.endColor)].filter(Boolean)})`
    : undefined;

const centre = ({ centerColor, centerPosition }) =>
  centerColor && `${colour(centerColor)} ${percent(centerPosition) || "50%"}`;

// The browser's font size stands for that of the LINE app, where 16 px is normal.
const scaled = (size, scaling) => (scaling && size ? `${parseFloat(size) / 16}rem` : size);

const lettering = (look, scaling) => ({
  color: colour(look.color),
  "--fx-font": scaled(font(look.size), scaling),
  "font-weight": weight(look.weight),
  "font-style": slant(look.style),
  "text-decoration": decoration(look.decoration),
});

function drawSpan(span, scaling) {
  return make("span", { class: font(span.size) ? "fx-sized" : "", style: lettering(span, scaling) }, span.text || "");
}

function drawLine(parts, adjustMode, style) {
  const line = make("p", { class: "fx-line", style }, ...parts);
  if (adjustMode === "shrink-to-fit") fitting.observe(line);
  return line;
}

// In the next frame: a size that changes while sizes are being reported is an error of the page.
const fitting = new ResizeObserver((entries) =>
  requestAnimationFrame(() => entries.forEach(({ target }) => shrink(target))),
);

function shrink(line) {
  set(line, { "--fx-shrink": 1 });
  if (line.scrollWidth > line.clientWidth) set(line, { "--fx-shrink": (line.clientWidth - 1) / line.scrollWidth });
}

// A frame with an image of the bot's; until it has loaded, or if it does not, with a drawn one.
function frame(url, { cover = false, animated = false } = {}) {
  const element = make("div", { class: `fx-picture${cover ? " fx-cover" : ""}` });
  const image = make("img", {
    alt: "",
    src: source(url),
    onload: () => animated || image.replaceWith(still(image)),
    onerror: () => element.classList.add("fx-missing"),
  });
  element.append(image);
  element.classList.toggle("fx-missing", !source(url));
  return element;
}

// The first frame only: LINE plays an image only if it is said to be animated.
function still(image) {
  const canvas = make("canvas", { width: image.naturalWidth, height: image.naturalHeight });
  canvas.getContext("2d").drawImage(image, 0, 0);
  return canvas;
}

function tappable(element, action) {
  if (!action) return element;
  element.addEventListener("click", (event) => {
    event.stopPropagation(); // the action of the innermost part counts
    choose(action);
  });
  if (element.tagName === "BUTTON") return element;
  element.classList.add("fx-tappable");
  element.tabIndex = 0;
  element.role = "button";
  if (action.label) element.ariaLabel = action.label;
  element.addEventListener("keydown", (event) => event.key === "Enter" && event.target === element && element.click());
  return element;
}
