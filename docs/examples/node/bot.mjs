// A bot in Node: linedesk worker --command "node bot.mjs"

import { LastingError, run } from "./linedesk.mjs";

function text(event, talk) {
  const words = event.message.text.normalize("NFKC").trim();
  if (/^\d{1,6}$/.test(words)) {
    const seconds = Number(words);
    talk.after(seconds, `ring:${talk.eventId}`, { seconds });
    talk.reply(`${seconds}秒後にお知らせします`);
  } else if (words === "名前") {
    talk.expect("name", 600);
    talk.reply("お名前は？");
  } else if (words === "混雑") {
    // linedesk calls the handler again, with a pause; nothing of a failed try is done.
    if (talk.try < 3) throw new Error("the shop's server is busy");
    talk.reply("お待たせしました");
  } else if (words === "故障") {
    throw new LastingError("no further try would help");
  } else {
    talk.data.count = (talk.data.count ?? 0) + 1;
    talk.reply(`${talk.data.name ?? "お客"}さん、${talk.data.count}回目の「${words}」ですね。`);
  }
}

function name(event, talk) {
  talk.data.name = event.message.text;
  talk.state = null;
  talk.reply(`${talk.data.name}さん、はじめまして。`);
}

function tooLate(event, talk) {
  talk.push("お名前はまた今度。");
}

function ring(event, talk) {
  talk.push(`${event.timer.data.seconds}秒経ちました`);
}

function photos(events, talk) {
  talk.reply(`写真${events.length}枚ですね。`);
}

function anythingElse() {}

await run({
  version: "1.0",
  rules: [
    { name: "text", event: "message", message: "text", handler: text },
    { name: "name", event: "message", message: "text", state: "name", handler: name },
    { name: "photos", event: "message", message: "image", gather: 1, handler: photos },
    { name: "ring", timer: "ring", handler: ring },
    { name: "tooLate", timeout: "name", handler: tooLate },
    { name: "anythingElse", handler: anythingElse },
  ],
});
