// Stickers and places to choose from. Stickers are drawn as emoji: nothing is loaded from elsewhere.

export const STICKERS = [
  ["446", "1988", "👋", ["hello"]],
  ["446", "1989", "👍", ["ok"]],
  ["446", "1990", "😆", ["laugh"]],
  ["446", "1991", "😭", ["cry"]],
  ["446", "1992", "😡", ["angry"]],
  ["446", "1993", "😍", ["love"]],
  ["446", "1994", "🙏", ["please"]],
  ["446", "1995", "🎉", ["congratulations"]],
  ["446", "1996", "😴", ["good night"]],
  ["446", "1997", "🐻", ["bear"]],
  ["446", "1998", "🐰", ["rabbit"]],
  ["446", "1999", "🦜", ["parrot"]],
].map(([packageId, stickerId, emoji, keywords]) => ({ packageId, stickerId, emoji, keywords }));

export const PLACES = [
  { title: "東京タワー", address: "東京都港区芝公園4丁目2-8", latitude: 35.6586, longitude: 139.7454 },
  { title: "大阪城", address: "大阪府大阪市中央区大阪城1-1", latitude: 34.6873, longitude: 135.5262 },
  { title: "さっぽろ時計台", address: "北海道札幌市中央区北1条西2丁目", latitude: 43.0625, longitude: 141.3536 },
];

export const NAMES = ["太郎", "花子", "さくら", "健太", "美咲", "大輔", "陽子", "翔"];

export function emojiOf(message) {
  const known = STICKERS.find(
    (each) => each.packageId === message.packageId && each.stickerId === message.stickerId,
  );
  return known ? known.emoji : null;
}
