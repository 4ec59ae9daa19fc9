// An echo bot with @line/bot-sdk. Without LINE_API_BASE it calls LINE itself.

import { createServer } from "node:http";
import { LineBotClient, validateSignature } from "@line/bot-sdk";

const env = process.env;
const client = LineBotClient.fromChannelAccessToken({
  channelAccessToken: env.LINE_CHANNEL_ACCESS_TOKEN,
  apiBaseURL: env.LINE_API_BASE,
  dataApiBaseURL: env.LINE_API_DATA_BASE,
});

async function answer(event) {
  if (event.type !== "message") return;
  const { id, type, text } = event.message;
  if (type === "text") await reply(event, text);
  if (type === "image") await reply(event, `${await sizeOf(id)} bytes`);
}

async function sizeOf(messageId) {
  let size = 0;
  for await (const piece of await client.getMessageContent(messageId)) size += piece.length;
  return size;
}

function reply({ replyToken }, text) {
  return client.replyMessage({ replyToken, messages: [{ type: "text", text }] });
}

createServer(async (request, response) => {
  const pieces = [];
  for await (const piece of request) pieces.push(piece);
  const body = Buffer.concat(pieces);
  const signature = request.headers["x-line-signature"] ?? "";
  if (!validateSignature(body, env.LINE_CHANNEL_SECRET, signature)) {
    response.writeHead(400).end();
    return;
  }
  response.end();
  await Promise.all(JSON.parse(body).events.map((event) => answer(event).catch(console.error)));
}).listen(env.PORT ?? 3000, "127.0.0.1");
