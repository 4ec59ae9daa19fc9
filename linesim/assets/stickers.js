// Stickers and places to choose from. Stickers are drawn here: nothing is loaded from elsewhere.

import { hueOf, shape } from "./dom.js";

const KEYWORDS = [
  ...["hello", "ok", "laugh", "cry", "angry", "love"],
  ...["please", "congratulations", "good night", "surprised", "thinking", "wink"],
];

export const STICKERS = KEYWORDS.map((keyword, number) => ({
  packageId: "446",
  stickerId: String(1988 + number),
  keywords: [keyword],
}));

export const PLACES = [
  { title: "東京タワー", address: "東京都港区芝公園4丁目2-8", latitude: 35.6586, longitude: 139.7454 },
  { title: "大阪城", address: "大阪府大阪市中央区大阪城1-1", latitude: 34.6873, longitude: 135.5262 },
  { title: "さっぽろ時計台", address: "北海道札幌市中央区北1条西2丁目", latitude: 43.0625, longitude: 141.3536 },
];

export const NAMES = ["太郎", "花子", "さくら", "健太", "美咲", "大輔", "陽子", "翔"];

// Ears, eyes, mouth and more of a face, as lines on a square of 100.
const EARS = [
  "M27 31 22 10 44 22M73 31 78 10 56 22",
  "M22 34a12 12 0 1 1 20-14M78 34a12 12 0 1 0-20-14",
  "M36 24C28 2 44 0 46 21M64 24C72 2 56 0 54 21",
  "M20 40C6 44 8 68 20 64M80 40C94 44 92 68 80 64",
];
const EYES = { dot: "M37 47v4M63 47v4", shut: "M32 50q5-7 10 0M58 50q5-7 10 0", asleep: "M32 48q5 6 10 0M58 48q5 6 10 0" };
const FACES = [
  [EYES.dot, "M40 64q10 9 20 0", "M84 30q8-6 5-14M90 36q9-3 10-12"],
  [EYES.dot, "M40 64q10 9 20 0", "M76 82l6 7 13-15"],
  [EYES.shut, "M36 60h28q-2 17-14 17T36 60z", ""],
  [EYES.asleep, "M41 69q9-7 18 0", "M34 58q-5 9 0 11 5-2 0-11M66 58q-5 9 0 11 5-2 0-11"],
  [EYES.dot, "M41 68q9-6 18 0", "M30 38l13 5M70 38l-13 5M86 14v9M82 18h9"],
  [EYES.shut, "M40 64q10 9 20 0", "M86 26c-11-8-9-15-4-15q4 0 4 5 0-5 4-5c5 0 7 7-4 15z"],
  [EYES.asleep, "M45 66h10", "M44 92l6-14 6 14M24 60h8M68 60h8"],
  [EYES.shut, "M38 62h24q-2 13-12 13T38 62z", "M10 16l6 6M14 84l6-6M88 12l-6 7M90 82l-7-5M8 50h5"],
  [EYES.asleep, "M46 67q4 3 8 0", "M78 12h9l-9 11h9M90 27h6l-6 7h6"],
  [EYES.dot, "M50 62a5 6 0 1 0 .1 0z", "M32 38q5-5 9-2M68 38q-5-5-9-2"],
  [EYES.dot, "M44 68l12-3", "M80 14q3-7 9-4t-1 10q-3 2-3 5M85 31v1"],
  ["M37 47v4M58 50q5-7 10 0", "M40 64q10 9 20 0", ""],
];

// A neutral picture in place of LINE's own, another one for each id.
export function stickerPicture({ packageId, stickerId }) {
  const hash = hueOf(`${packageId}/${stickerId}`);
  const hue = (hash * 47) % 360;
  const face = FACES[(Number(stickerId) + 4) % FACES.length] || FACES[0];
  const [fill, around] = [`hsl(${hue} 62% 76%)`, `hsl(${hue} 58% 55%)`];
  const lines = { fill: "none", stroke: "#3a3230", "stroke-width": 3.5, "stroke-linecap": "round", "stroke-linejoin": "round" };
  return shape(
    "svg",
    { class: "sticker", viewBox: "-2 -2 104 104", role: "img", "aria-label": "スタンプ" },
    shape("path", { ...lines, fill, d: EARS[hash % EARS.length] }),
    shape("circle", { ...lines, fill, cx: 50, cy: 54, r: 34 }),
    ...face.map((d, part) => shape("path", { ...lines, d, ...(part === 2 && { stroke: around }) })),
  );
}
