// Calls each method of the SDK's clients; the arguments come by standard input, by the method's name in small letters.
import { readFileSync } from "node:fs";
import { channelAccessToken, HTTPFetchError, messagingApi } from "@line/bot-sdk";

const { url, token, steps } = JSON.parse(readFileSync(0));
const config = { baseURL: url, apiBaseURL: url, channelAccessToken: token };
const clients = [
  new messagingApi.MessagingApiClient(config),
  new messagingApi.MessagingApiBlobClient(config),
  new channelAccessToken.ChannelAccessTokenClient(config),
];
const methods = clients.flatMap((client) =>
  Object.getOwnPropertyNames(Object.getPrototypeOf(client))
    .filter((name) => name !== "constructor" && !name.endsWith("WithHttpInfo"))
    .map((name) => [client, name]),
);
const given = (value) =>
  value?.png
    ? new Blob([Buffer.from(value.png, "base64")], { type: "image/png" })
    : (value ?? undefined);
// What takes the default menu away comes last.
const late = ([, name]) => name.startsWith("cancel");
for (const [client, name] of methods.sort((one, other) => late(one) - late(other))) {
  const values = steps[name.toLowerCase()];
  if (!values) throw new Error(`no arguments for ${name}`);
  try {
    await client[name](...values.map(given));
  } catch (error) {
    if (!(error instanceof HTTPFetchError)) throw error;
  }
}
