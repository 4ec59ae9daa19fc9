// Stickers and places to choose from. Stickers are drawn as faces: nothing is loaded from elsewhere.

import { make } from "./dom.js";
import { drawing } from "./icons.js";

const HEAD = "M12 21.5a9 9 0 1 0 0-18 9 9 0 0 0 0 18z";
const EYES = "M8.5 10.2v.4M15.5 10.2v.4";
const GLAD = "M7 11q1.5-2.5 3 0M14 11q1.5-2.5 3 0";
const SHUT = "M7 10.5q1.5 1.5 3 0M14 10.5q1.5 1.5 3 0";
const SMILE = "M8.5 14.5q3.5 3.5 7 0";
const LAUGH = "M8 13.5h8q-.5 5-4 5t-4-5z";

// Colour, what is behind the head, and the face.
export const STICKERS = [
  ["1988", ["hello"], 48, "", `${EYES}${SMILE}M20 3q2 1 2.5 3M19.5 5.5q1 .5 1.5 1.5`],
  ["1989", ["ok"], 150, "", `${GLAD}${SMILE}M17.5 19.5l2 2 3.5-4.5`],
  ["1990", ["laugh"], 40, "", `${GLAD}${LAUGH}`],
  ["1991", ["cry"], 205, "", `${SHUT}M9 17q3-3 6 0M8 12.5v4M16 12.5v4`],
  ["1992", ["angry"], 8, "", "M7 8.5l3 1.5M17 8.5l-3 1.5M8.5 11.5v.01M15.5 11.5v.01M9 17q3-3 6 0"],
  ["1993", ["love"], 340, "", `M8.5 12l-2-2q0-1.5 1-1.5t1 1q0-1 1-1t1 1.5zM15.5 12l-2-2q0-1.5 1-1.5t1 1q0-1 1-1t1 1.5z${SMILE}`],
  ["1994", ["please"], 265, "", `${SHUT}M10.5 15h3M12 17.5v5M10 22.5l2-5 2 5`],
  ["1995", ["congratulations"], 60, "M8 6l4-6 4 6z", `${GLAD}${LAUGH}M2 5l1.5 1M22 5l-1.5 1M1.5 11h1.5M22.5 11h-1.5`],
  ["1996", ["good night"], 230, "", `${SHUT}M10.5 15.5h3M18 2h3.5l-3.5 4h3.5`],
  ["1997", ["bear"], 25, "M5.5 8a3 3 0 1 1 3-4.5M18.5 8a3 3 0 1 0-3-4.5", `${EYES}M10.8 13h2.4l-1.2 1.5zM12 14.5v1M10 16q2 1.5 4 0`],
  ["1998", ["rabbit"], 320, "M7.5 6Q5 1 7 .5t3 4.5M16.5 6Q19 1 17 .5T14 5", `${EYES}M11 13.5h2l-1 1zM12 14.5v1M10.5 16.5h3`],
  ["1999", ["parrot"], 110, "M10 5q0-4 3-4.5-1 2 1 4", `${EYES}M9.5 13h5q0 3-2.5 5-2.5-2-2.5-5z`],
].map(([stickerId, keywords, hue, back, face]) => ({ packageId: "446", stickerId, keywords, hue, back, face }));

export const PLACES = [
  { title: "東京タワー", address: "東京都港区芝公園4丁目2-8", latitude: 35.6586, longitude: 139.7454 },
  { title: "大阪城", address: "大阪府大阪市中央区大阪城1-1", latitude: 34.6873, longitude: 135.5262 },
  { title: "さっぽろ時計台", address: "北海道札幌市中央区北1条西2丁目", latitude: 43.0625, longitude: 141.3536 },
];

export const NAMES = ["太郎", "花子", "さくら", "健太", "美咲", "大輔", "陽子", "翔"];

export function drawSticker({ packageId, stickerId }) {
  const known = STICKERS.find((each) => each.packageId === packageId && each.stickerId === stickerId);
  const { hue, back, face } = known || { hue: (stickerId * 47) % 360 || 0, back: "", face: EYES + SMILE };
  const sticker = drawing("-1 -1 26 26", [["head", back], ["head", HEAD], ["face", face]]);
  sticker.style.setProperty("--hue", hue);
  return make("span", { class: "sticker", role: "img", title: `${packageId} / ${stickerId}`, ariaLabel: "スタンプ" }, sticker);
}
