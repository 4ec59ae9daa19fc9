// Looks into linedesk from the mongo shell. Reads only, never the whole of a collection, and shows
// what people wrote only where { text: true } asks for it.
//
//   mongosh URI --shell scripts/inspect.js        or, in the shell: load("scripts/inspect.js")
//   linedesk.help()
//
// It looks into the database that the shell is in (`use line_bot`). Each answer prints as a page and
// is an object to go on with, such as linedesk.status().figures.dispatcher. The numbers are those
// that the processes write to `status` once a second.

var linedesk = (() => {
  const LIMIT_MS = 2000;
  const FRESH_SECONDS = 10;
  const LATE_SECONDS = 60;
  const STALLED_SECONDS = 600;
  const DAY_SECONDS = 24 * 3600;
  // So many of the newest rows are looked through where no index finds them.
  const NEWEST_ROWS = 5000;
  const MOST = 200;
  // recvq's natural order and the feed's differ by some places.
  const DISORDER = 500;
  const SLOWEST = 10;
  const ROLES = ["frontdesk", "dispatcher", "scheduler"];
  // What several front desks tell of the same thing, each; all else is added up.
  const LARGEST = ["spoolDocuments", "spoolBytes", "spoolOldestSeconds", "spoolMaxBytes", "recvqUnreadShare",
    "recvqClosed"];
  const SMALLEST = ["certificateEndsSeconds"];
  // A scheduler within the dispatcher tells these in that one's row.
  const OF_SCHEDULER = ["rungTimers", "ringLateSeconds", "nextTimerSeconds"];
  const DECIDED = ["recorded", "finished", "applied", "unheard"];
  const SENDS = "/v2/bot/message/";
  const fields = (...names) => Object.fromEntries(names.map((name) => [name, 1]));
  // None of these holds what people wrote.
  const EVENT = fields("acceptTime", "eventId", "channel", "key", "unsent", "event.type", "event.mode",
    "event.deliveryContext", "event.message.type", "event.message.id", "event.timer.name");
  const HELD = fields("channel", "key", "n", "why", "since", "document.eventId");
  const LETTER = fields("channel", "key", "cause", "attempts", "firstAt", "lastAt", "replays", "replayedAt",
    "document.event.type", "document.event.message.type", "effect.type", "effect.way", "effect.eventId");
  const EFFECT = ["id", "type", "way", "eventId", "at", "triedAt", "as", "name", "runAt", "cause"];

  // Not a?.b?.method(): mongosh calls its own forms of JavaScript's methods, without `this` then.

  // --- reading

  const find = (name, filter, wanted = {}) => db.getCollection(name).find(filter, wanted).maxTimeMS(LIMIT_MS);
  const first = (name, filter, wanted) => find(name, filter, wanted).limit(1).toArray()[0];
  const newest = (name, count) => find(name, {}).sort({ $natural: -1 }).limit(count).toArray();
  // Ids that begin so, by the index.
  const beginning = (words) => ({ $gte: words, $lt: words + "\u{10ffff}" });

  const requireLinedesk = () => {
    if (!first("leases", { _id: "dispatcher" }, { _id: 1 })) {
      throw new Error(`no linedesk in the database ${db.getName()}: use line_bot, or what MONGODB_DATABASE says`);
    }
  };

  const recordId = (id) => number(find("recvq", { _id: id }, { _id: 1 }).showRecordId().toArray()[0]?.$recordId);

  const only = (document, wanted) =>
    Object.fromEntries(Object.entries(document).filter(([name]) => wanted(name)));

  // MongoDB's 64 bits as a number, too; undefined for all that is none.
  const number = (value) => (typeof value?.toNumber === "function" ? value.toNumber() : value);
  const isGroup = (value) => typeof value === "object" && value !== null && typeof value.toNumber !== "function";
  const sum = (values) => values.reduce((all, one) => all + one, 0);
  const total = (value) => (isGroup(value) ? sum(Object.values(value).map(total)) : number(value));
  const secondsSince = (date) => (date instanceof Date ? Math.max(0, (new Date() - date) / 1000) : Infinity);

  // --- words, and tables whose columns stand below each other whatever the script

  const WIDE = new RegExp(
    "[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60" +
      "\uffe0-\uffe6\u{1f300}-\u{1faff}\u{20000}-\u{3fffd}]", "u");
  const NARROW = /[\p{Mn}\p{Me}\p{Cf}]/u;
  // What would move the cursor, or turn the direction of the line.
  const UNSEEN = /[\p{Cc}\u200e\u200f\u2028-\u202e\u2066-\u2069]/gu;

  const columns = (letter) => (NARROW.test(letter) ? 0 : WIDE.test(letter) ? 2 : 1);
  const width = (text) => sum([...text].map(columns));
  const pad = (text, wanted) => text + " ".repeat(Math.max(0, wanted - width(text)));

  const cut = (text, most) => {
    let shown = "";
    for (const letter of width(text) > most ? text : "") {
      if (width(shown + letter) >= most) return `${shown}…`;
      shown += letter;
    }
    return text;
  };

  const cell = (value) => {
    if (value === undefined || value === null || value === "") return "-";
    return value instanceof Date ? moment(value) : String(value).replace(UNSEEN, "?");
  };

  const table = (names, rows) => {
    const cells = [names, ...rows.map((row) => row.map((value) => cut(cell(value), 110)))];
    const widths = names.map((_, column) => Math.max(...cells.map((row) => width(row[column]))));
    return cells.map((row) => row.map((text, column) => pad(text, widths[column])).join("  ").trimEnd());
  };

  const titled = (title, names, rows) =>
    rows.length ? ["", ...(title ? [title] : []), ...table(names, rows).map((line) => `  ${line}`)] : [];

  const labelled = (pairs) => pairs.map(([label, text]) => `${pad(label, 14)}${cell(text)}`);

  const two = (value) => String(value).padStart(2, "0");

  const moment = (date) => {
    const day = [date.getFullYear(), two(date.getMonth() + 1), two(date.getDate())].join("-");
    return `${day} ${[date.getHours(), date.getMinutes(), date.getSeconds()].map(two).join(":")}`;
  };

  const clock = (date) =>
    date instanceof Date ? `${moment(date).slice(11)}.${String(date.getMilliseconds()).padStart(3, "0")}` : "-";

  const zone = () => {
    const minutes = -new Date().getTimezoneOffset();
    return `${minutes < 0 ? "-" : "+"}${two(Math.floor(Math.abs(minutes) / 60))}${two(Math.abs(minutes) % 60)}`;
  };

  const forLong = (seconds) => {
    const parts = [];
    let left = Math.floor(seconds);
    for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]]) {
      if (left >= size) parts.push(`${Math.floor(left / size)} ${unit}`);
      else if (parts.length) break;
      left %= size;
      if (parts.length === 2) break;
    }
    return parts.join(" ") || "0 s";
  };

  const brief = (seconds) => {
    if (!Number.isFinite(seconds)) return "-";
    if (seconds === 0) return "0 s";
    if (seconds < 1) return `${(seconds * 1000).toFixed(seconds < 0.01 ? 1 : 0)} ms`;
    return seconds < 10 ? `${seconds.toFixed(1)} s` : forLong(seconds);
  };

  const oldest = (documents, seconds) =>
    documents ? `${count(documents)}, the oldest for ${brief(seconds)}` : documents === 0 ? "none" : "-";
  const ms = (value) => brief(number(value) / 1000);
  const ago = (date) => (date instanceof Date ? `${brief(secondsSince(date))} ago` : "-");
  const count = (value) => (value === undefined ? "-" : Math.round(number(value)).toLocaleString("en"));
  const often = (value) => (value === undefined ? "-" : `${total(value).toFixed(1)}/s`);
  const percent = (value) => (value === undefined ? "-" : `${(number(value) * 100).toFixed(1)}%`);
  const times = (value, word) => (value === 1 ? `one ${word}` : `${value} ${word}s`);
  const whose = (row) => (row?.key ? `${row.channel}/${row.key}` : "-");
  const kind = (event) => [event?.type, event?.message?.type, event?.timer?.name].filter(Boolean).join(" ");

  // An object that the shell prints as a page.
  const answer = (told, lines) => {
    const asText = () => lines.join("\n");
    for (const name of ["toString", Symbol.for("nodejs.util.inspect.custom")]) {
      Object.defineProperty(told, name, { enumerable: false, value: asText });
    }
    return told;
  };

  // --- the rows of `status`

  const isFresh = (row) => secondsSince(row.at) <= FRESH_SECONDS && row.state !== "ended";

  const together = (documents, combine) => {
    const told = {};
    for (const name of new Set(documents.flatMap((one) => Object.keys(one)))) {
      const values = documents.filter((one) => name in one).map((one) => one[name]);
      told[name] = values.every(isGroup) ? together(values, combine) : combine(name, values.map(number));
    }
    return told;
  };

  const added = (name, values) => {
    if (LARGEST.includes(name)) return Math.max(...values);
    return SMALLEST.includes(name) ? Math.min(...values) : sum(values);
  };

  // Of latencies the worst, since nothing more can be known of several.
  const worst = (name, values) => (name === "count" ? added(name, values) : Math.max(...values));

  const tell = (rows) => ({
    figures: together(rows.map((row) => row.figures || {}), added),
    perSecond: together(rows.map((row) => row.perSecond || {}), added),
    lately: together(rows.map((row) => row.lately || {}), worst),
  });

  // Of two dispatchers that say that they lead the one of the later reign.
  const leading = (rows) =>
    rows
      .filter((row) => row.role === "dispatcher" && row.figures?.leading === 1)
      .sort((one, other) => (other.epoch || 0) - (one.epoch || 0))[0];

  // Without those that have ended, and those that a later start on the same host has replaced.
  // SCHEDULER, as the newest row of a dispatcher tells; undefined with an older version.
  const schedulerSetting = (rows) =>
    rows.filter((row) => row.role === "dispatcher" && row.scheduler).sort((one, other) => other.at - one.at)[0]?.scheduler;
  const thatCount = (rows) => {
    const asked = (row) => row.role !== "scheduler" || schedulerSetting(rows) !== "dispatcher";
    const replaced = (row) =>
      rows.some((one) => isFresh(one) && one.role === row.role && one.host === row.host && one.startedAt >= row.at);
    return rows
      .filter((row) => isFresh(row) || (row.state !== "ended" && !replaced(row) && asked(row)))
      .sort((one, other) => ROLES.indexOf(one.role) - ROLES.indexOf(other.role) || one.pid - other.pid);
  };

  // A row that was typed in and is not whole is obeyed by nobody.
  const isOrder = ({ _id, channel, key }) =>
    channel !== undefined && key !== undefined && _id === ["pause", channel, key].filter(Boolean).join("/");

  const look = () => {
    const rows = find("status", {}).limit(MOST).toArray();
    const fresh = rows.filter(isFresh);
    const leader = leading(fresh);
    const within = ({ figures = {}, perSecond = {}, lately = {} } = {}) => {
      const part = (document) => only(document, (name) => OF_SCHEDULER.includes(name));
      return { figures: part(figures), perSecond: part(perSecond), lately: part(lately) };
    };
    const lately = { lastAt: { $gte: new Date(new Date() - DAY_SECONDS * 1000) }, replayedAt: null };
    return {
      rows,
      leader,
      frontdesk: tell(fresh.filter((row) => row.role === "frontdesk")),
      dispatcher: tell(leader ? [leader] : []),
      scheduler: tell([fresh.find((row) => row.role === "scheduler") || within(leader)]),
      pauses: find("control", { act: "pause" }).limit(MOST).toArray().filter(isOrder),
      letters: find("deadletters", lately, { _id: 1 }).limit(MOST).toArray().length,
    };
  };

  // --- status

  const ordered = (row) => `since ${cell(row.at)} by ${row.by || "somebody"}${row.why ? `: ${row.why}` : ""}`;

  // The gravest of what `linedesk status` names; that one says what to do, too.
  const judge = ({ rows, leader, frontdesk, dispatcher, pauses, letters }) => {
    const found = [];
    const wrong = (about, saw) => found.push({ about, saw });
    const desk = frontdesk.figures;
    const runs = dispatcher.figures;
    for (const role of schedulerSetting(rows) === "process" ? ROLES : ROLES.slice(0, 2)) {
      const own = rows.filter((row) => row.role === role);
      if (!own.some(isFresh)) wrong(role, "none runs");
      else if (role === "dispatcher" && !leader) wrong(role, "none holds the lease");
    }
    for (const row of thatCount(rows).filter((one) => !isFresh(one))) {
      wrong(row.role, `process ${row.pid} on ${row.host} is silent for ${brief(secondsSince(row.at))}`);
    }
    if (desk.recvqClosed) wrong("recvq", "closed: full of unread documents, or not as it must be");
    if (desk.spoolDocuments) wrong("spool", `${count(desk.spoolDocuments)} events wait in it`);
    if (runs.lagSeconds > 10) {
      wrong("lag", `${count(runs.lagDocuments)} not read, the oldest for ${brief(runs.lagSeconds)}`);
    }
    // What is paused waits in held, and all else goes on.
    const late = pauses.length ? runs.behindSeconds : runs.oldestUnfinishedSeconds;
    if (late > LATE_SECONDS) wrong("queue", `the oldest event waits for ${forLong(late)}`);
    if (runs.tokenRefused) wrong("LINE", "it refuses the channel access token");
    else if (total(runs.breakerOpen || {})) wrong("LINE", "it fails, so no calls but probes");
    for (const row of pauses) wrong("paused", `${row.key ? whose(row) : row.channel || "everything"} ${ordered(row)}`);
    for (const row of leader?.waiting || []) {
      if (row.why !== "paused" && secondsSince(row.since) > STALLED_SECONDS) {
        wrong("waiting", `${whose(row)} for ${brief(secondsSince(row.since))}: ${row.why}`);
      }
    }
    if (letters) wrong("dead letters", `${letters < MOST ? letters : `${MOST} or more`} within a day`);
    return found;
  };

  const overview = ({ frontdesk, dispatcher, scheduler }) => {
    const { figures: runs, perSecond } = dispatcher;
    const gates = Object.keys(runs.gateUse || {}).sort().map((host) =>
      `${host} ${percent(runs.gateUse[host])} in use, ${count(runs.gateWaiting?.[host])} wait` +
      `${runs.breakerOpen?.[host] ? ", breaker open" : ""}`);
    return labelled([
      ["events", `accepted ${often(frontdesk.perSecond.acceptedEvents)}, read ${often(perSecond.readDocuments)}, ` +
        `decided ${often(perSecond.decidedEvents)}, calls ${often(perSecond.calls)}, ` +
        `rings ${often(scheduler.perSecond.rungTimers)}`],
      ["queue", `unfinished ${oldest(runs.queueDocuments, runs.oldestUnfinishedSeconds)}: ` +
        `${count(runs.lagDocuments)} not read, ${count(runs.inHandDocuments)} in hand, ` +
        `${count(runs.heldDocuments)} held of ${count(runs.heldKeys)} conversations`],
      ["threads", `${count(runs.busyThreads)} of ${count(runs.threads)} busy`],
      ["outboxes", `${count(runs.outboxEffects)} effects to be carried out`],
      ["gate", gates.join("; ")],
      ["quota", `${count(runs.quotaUsedMessages)} messages used, ` +
        (runs.quotaMessages === undefined ? "no limit known" : `of ${count(runs.quotaMessages)}`)],
      ["spool", frontdesk.figures.spoolDocuments ? `${count(frontdesk.figures.spoolDocuments)} events` : "empty"],
      ["dead letters", count(runs.deadLettersKept)],
    ]);
  };

  const latencies = ({ frontdesk, dispatcher, scheduler }) => {
    const rows = [];
    const enter = (name, one = {}) => {
      if (one.count) rows.push([name, count(one.count), brief(one.p50), brief(one.p90), brief(one.p99)]);
      else if (!("count" in one)) for (const label of Object.keys(one).sort()) enter(`${name} ${label}`, one[label]);
    };
    enter("stored after", frontdesk.lately.storeSeconds);
    enter("handler begins after", dispatcher.lately.waitSeconds);
    enter("handler", dispatcher.lately.handlerSeconds);
    enter("wait for the gate", dispatcher.lately.gateWaitSeconds);
    enter("call", dispatcher.lately.callSeconds);
    enter("progress saved in", dispatcher.lately.saveSeconds);
    enter("rung late by", scheduler.lately.ringLateSeconds);
    return rows;
  };

  const status = () => {
    requireLinedesk();
    const seen = look();
    const wrong = judge(seen);
    const { threads = [], waiting = [], paused = [] } = seen.leader || {};
    const each = (name) => Object.fromEntries(ROLES.map((role) => [role, seen[role][name]]));
    const told = {
      at: new Date(), wrong, processes: thatCount(seen.rows), figures: each("figures"), perSecond: each("perSecond"),
      lately: each("lately"), threads, waiting, paused, pauses: seen.pauses,
    };
    const well = wrong.length ? `${wrong.length} to look at` : "all is well";
    return answer(told, [
      `linedesk in ${db.getName()}, ${moment(told.at)} ${zone()}: ${well}`,
      ...wrong.map(({ about, saw }) => `  ${pad(about, 14)}${cell(saw)}`),
      ...titled("processes", ["role", "host", "pid", "state", "heard of", "says"],
        told.processes.map((row) => [row.role, row.host, row.pid, row.state, ago(row.at), row.words])),
      "",
      ...overview(seen),
      ...titled("the last minute", ["", "count", "p50", "p90", "p99"], latencies(seen)),
      ...titled("busy threads", ["thread", "doing", "for", "conversation", "event"],
        threads.map((row) => [row.name, row.doing, brief(secondsSince(row.since)), whose(row), row.eventId])),
      ...titled("waiting", ["conversation", "documents", "held", "for", "why", "first event"],
        waiting.map((row) => [whose(row), row.documents, row.held, brief(secondsSince(row.since)), row.why, row.eventId])),
    ]);
  };

  // --- lag

  // A change stream's token begins with its time, as hexadecimal seconds behind a type byte.
  const timeOf = (token) => {
    if (typeof token?._data === "string") return new Date(parseInt(token._data.slice(2, 10), 16) * 1000);
    const seconds = typeof token?.getHighBits === "function" ? token.getHighBits() >>> 0 : token?.t;
    return seconds === undefined ? undefined : new Date(seconds * 1000);
  };

  const oplogEnd = (direction) => {
    const oplog = db.getSiblingDB("local").getCollection("oplog.rs");
    const found = oplog.find({}, { wall: 1 }).sort({ $natural: direction }).maxTimeMS(LIMIT_MS);
    return found.limit(1).toArray()[0]?.wall;
  };

  const lag = () => {
    requireLinedesk();
    const { dispatcher, leader } = look();
    const { queueDocuments, oldestUnfinishedSeconds, lagDocuments, lagSeconds, recvqLeftSeconds, oplogLeftSeconds,
      recvqUnreadShare } = dispatcher.figures;
    const saved = fields("after", "token", "feed", "at", "finished");
    const progress = first("progress", { _id: "dispatcher" }, saved) || {};
    const beyond = (progress.finished || []).filter((id) => id !== null).length;
    const ends = (direction) => find("recvq", {}, { acceptTime: 1 }).sort({ $natural: direction }).limit(1);
    const [end] = ends(-1).showRecordId().toArray();
    const [start] = ends(1).toArray();
    const after = progress.after && first("recvq", { _id: progress.after }, { acceptTime: 1 });
    const between = end && after && number(end.$recordId) - recordId(after._id);
    const told = {
      at: new Date(), queueDocuments, oldestUnfinishedSeconds, lagDocuments, lagSeconds, recvqUnreadShare,
      recvqLeftSeconds, oplogLeftSeconds,
      recvq: { newestAt: end?.acceptTime, oldestAt: start?.acceptTime },
      oplog: { newestAt: oplogEnd(-1), oldestAt: oplogEnd(1) },
      progress: { feed: progress.feed, savedAt: progress.at, after: progress.after, afterAt: after?.acceptTime,
        stands: timeOf(progress.token), behindDocuments: between, finishedBeyond: beyond },
    };
    const left = (seconds) => {
      if (seconds === undefined) return "overtakes progress: when is not known";
      const long = seconds >= 30 * DAY_SECONDS ? "30 d or more" : forLong(number(seconds));
      return `overtakes progress in ${long} at the present rate`;
    };
    const where = after ? `stored ${cell(after.acceptTime)}` : "which recvq has no longer";
    const stands = progress.after === undefined ? "nothing is finished yet" : `after ${progress.after}, ${where}`;
    const near = between === undefined ? "-" :
      `${count(between)} documents before recvq's newest, heartbeats among them; ${beyond} of them are finished`;
    const silent = leader ? "" : ": no dispatcher tells, so only what is saved";
    return answer(told, [
      `lag in ${db.getName()}, ${moment(told.at)} ${zone()}${silent}`,
      "",
      ...labelled([
        ["not read", oldest(lagDocuments, lagSeconds)],
        ["unfinished", oldest(queueDocuments, oldestUnfinishedSeconds)],
        ["progress", `${stands}, saved ${ago(progress.at)}`],
        ["", near],
        ["recvq", `from ${cell(start?.acceptTime)} to ${cell(end?.acceptTime)}, ${percent(recvqUnreadShare)} unread`],
        ["", left(recvqLeftSeconds)],
        ["oplog", `from ${cell(told.oplog.oldestAt)} to ${cell(told.oplog.newestAt)}`],
        ["", `progress stands at ${cell(told.progress.stands)}; ${left(oplogLeftSeconds)}`],
      ]),
    ]);
  };

  // --- story

  const stored = (id, text) => {
    const wanted = text ? { "event.replyToken": 0 } : EVENT;
    let found = first("recvq", { eventId: id }, wanted);
    if (!found && /^[0-9a-f]{24}$/i.test(id)) found = first("recvq", { _id: ObjectId(id) }, wanted);
    if (!found && /^[0-9]+$/.test(id)) found = first("recvq", { "event.message.id": id }, wanted);
    return found;
  };

  const isFinished = (document) => {
    const own = { _id: "dispatcher" };
    const named = { ...own, $or: [{ finished: document._id }, { ring: document._id }, { after: document._id }] };
    if (first("progress", named, { _id: 1 })) return true;
    const after = first("progress", own, { after: 1 })?.after;
    return after !== undefined && recordId(document._id) < recordId(after) - DISORDER;
  };

  // The rows that know of an event, each found by an index.
  const known = (id, text) => {
    const document = stored(id, text);
    const name = String(document?.eventId || document?._id || id);
    const runs = find("jobs", { eventId: name }).sort({ at: 1 }).limit(MOST).toArray();
    const calls = find("calls", { eventId: name }).sort({ at: 1 }).limit(MOST).toArray();
    const letter = first("deadletters", { _id: name }, LETTER);
    const row = [document, letter, ...runs, ...calls].find((one) => one?.key && one?.channel);
    const conversation = row && first("conversations", { _id: whose(row) }, { applied: 1, unsent: 1, pending: 1 });
    const replays = [`replay:${name}:`, `replay:${name}/`].map((one) => ({ eventId: beginning(one) }));
    const own = row && { _id: beginning(`${whose(row)}/`) };
    return {
      name, document, runs, calls, letter, row,
      applied: (conversation?.applied || []).includes(name),
      finished: Boolean(document && isFinished(document)),
      pending: (conversation?.pending || []).filter((one) => one.eventId === name || one.id === name),
      held: document ? first("held", { _id: document._id }, HELD)
        : row && first("held", { channel: row.channel, key: row.key, "document.eventId": name }, HELD),
      letters: find("deadletters", { _id: beginning(`${name}/`) }, LETTER).limit(MOST).toArray(),
      replays: find("recvq", { $or: replays }, EVENT).limit(MOST).toArray(),
      timers: row ? find("schedule", { ...own, setBy: name }, { data: 0, source: 0 }).limit(MOST).toArray() : [],
      pause: row && find("control", { act: "pause" }).limit(MOST).toArray().find((one) =>
        isOrder(one) && [null, row.channel].includes(one.channel) && [null, row.key].includes(one.key)),
    };
  };

  const what = ({ effect, document }) =>
    effect ? `${effect.type} ${effect.way || ""}`.trim() : kind(document?.event);

  const steps = ({ document, runs, calls, letter, letters, replays, pending, held, timers }) => {
    const found = [];
    const step = (at, words, more) => found.push({ at, words, more: more.filter(Boolean).join(", ") });
    if (document) {
      const again = document.event?.deliveryContext?.isRedelivery && "a redelivery";
      const unsent = document.unsent && "taken back since";
      step(document.acceptTime, "stored", [kind(document.event), again, unsent, document._id]);
    }
    for (const run of runs) {
      const effects = run.effects && times(run.effects, "effect");
      step(run.at, "handler", [run.outcome, run.error, effects, `try ${run.attempt}`, `waited ${ms(run.waitedMs)}`,
        `took ${ms(run.ms)}`, run.thread]);
    }
    for (const call of calls) {
      const again = call.attempt > 1 && `try ${call.attempt}`;
      step(call.at, "call", [`${call.method} ${call.endpoint}`, `LINE: ${call.status || "no answer"}`,
        `took ${ms(call.ms)}`, again, call.requestId]);
    }
    for (const one of pending) {
      const tried = one.triedAt && `tried as ${one.as} ${clock(one.triedAt)}, outcome unknown`;
      step(one.at, "in the outbox", [one.type, one.way, tried, one.cause]);
    }
    for (const one of [letter, ...letters].filter(Boolean)) {
      const again = one.replayedAt && `replayed ${moment(one.replayedAt)}`;
      step(one.lastAt, "dead letter", [one._id, what(one), one.cause, `${one.attempts} tries`, again]);
    }
    for (const one of replays) step(one.acceptTime, "replayed", [one.eventId]);
    for (const one of timers) {
      const rings = one.runAt ? `rings ${moment(one.runAt)}` : "rang or was cancelled";
      step(undefined, "timer", [one.name, rings, one.setAside]);
    }
    if (held) step(held.since, "held", [held.why]);
    return found.sort((one, other) => (one.at || Infinity) - (other.at || Infinity));
  };

  const verdict = (all, leader) => {
    const { name, document, runs, calls, letter, letters, pending, held, applied, finished, pause } = all;
    const thread = (leader?.threads || []).find((one) => one.eventId === name);
    const waits = (leader?.waiting || []).find((one) => one.eventId === name);
    const sent = calls.filter((row) => String(row.endpoint).startsWith(SENDS) && [200, 409].includes(row.status));
    const left = letters.filter((one) => !one.replayedAt).length;
    if (letter) return `given up: ${letter.cause}${letter.replayedAt ? "; replayed since" : ""}`;
    if (DECIDED.includes(runs[runs.length - 1]?.outcome) || applied || (finished && !held)) {
      if (left) return `decided, but ${left === 1 ? "one of its effects was" : `${left} of its effects were`} given up`;
      if (pending.length) return `decided; ${pending.length} of its effects wait in the outbox`;
      if (!sent.length) return "decided; no message was sent";
      const took = (sent[0].at - document?.acceptTime + (sent[0].ms || 0)) / 1000;
      return `answered${document ? ` ${brief(took)} after it came` : ""}: LINE took ${times(sent.length, "send")}`;
    }
    if (pause) return `waits: paused ${ordered(pause)}`;
    if (thread) return `in hand for ${brief(secondsSince(thread.since))}: ${thread.doing} on ${thread.name}`;
    if (!leader && (held || document)) return "waits: no dispatcher runs that holds the lease";
    if (waits || held) return `waits: ${(waits || held).why}`;
    return document ? "stored, and not decided: about to be read, or in hand" : "nothing tells what became of it";
  };

  // By the event's id, that of our document, or that of a message.
  const story = (id, { text = false } = {}) => {
    requireLinedesk();
    const all = known(String(id), text);
    const stands = verdict(all, look().leader);
    const told = { eventId: all.name, conversation: whose(all.row), stands, steps: steps(all) };
    if (text) told.event = all.document?.event;
    const began = told.steps[0]?.at;
    const looks = [["recvq", all.document], ["jobs", all.runs.length], ["calls", all.calls.length]];
    const missing = looks.filter(([, there]) => !there).map(([name]) => name);
    const since = (at) => (at && began ? brief((at - began) / 1000) : "");
    return answer(told, [
      `${all.name} of ${told.conversation}`,
      stands,
      ...titled(began ? `${moment(began).slice(0, 10)} ${zone()}` : "", ["at", "after", "", ""],
        told.steps.map((one) => [clock(one.at), since(one.at), one.words, one.more])),
      ...(text && told.event ? ["", JSON.stringify(told.event, null, 2)] : []),
      ...(missing.length ? ["", `nothing of it in ${missing.join(", ")}: not written yet, or overwritten since`] : []),
    ]);
  };

  // --- user

  const mine = (name, row, most) => {
    const rows = newest(name, NEWEST_ROWS);
    // A row of calls names no channel.
    const own = rows.filter((one) => one.key === row.key && [undefined, row.channel].includes(one.channel));
    return { own: own.slice(0, most), looked: looked(name, rows) };
  };

  const looked = (name, rows) => {
    if (!rows.length) return `no rows in ${name}`;
    return `the newest ${count(rows.length)} rows of ${name}, back to ${cell(rows[rows.length - 1].at)}`;
  };

  // By a user, group or room id, or by `channel/id`.
  const user = (id, { text = false, most = 10 } = {}) => {
    requireLinedesk();
    const [, channel = "main", key] = /^(?:(.*?)\/)?(.*)$/.exec(id);
    const row = { channel, key };
    const conversation = first("conversations", { _id: whose(row) }) || {};
    const waiting = { _id: beginning(`${whose(row)}/`), runAt: { $type: "date" } };
    const timers = find("schedule", waiting, text ? {} : { data: 0 }).limit(MOST).toArray();
    const held = find("held", row, HELD).sort({ n: 1 }).limit(MOST).toArray();
    const runs = mine("jobs", row, most);
    const calls = mine("calls", row, most);
    const ids = (conversation.applied || []).slice(-most).reverse();
    const events = [];
    for (const name of ids) events.push(stored(name, text) || { eventId: name });
    const shown = (name) => (text ? !["token", "retryKey"].includes(name) : EFFECT.includes(name));
    const outbox = (conversation.pending || []).map((one) => only(one, shown));
    const { profile, state, until, n, at, friend, data } = conversation;
    const told = { conversation: whose(row), kind: conversation.kind, name: profile?.displayName, friend, state, until,
      n, at, outbox, timers, held, events, runs: runs.own, calls: calls.own };
    if (text) told.data = data;
    const said = (event) => (event?.message?.text !== undefined ? event.message.text : event?.postback?.data);
    return answer(told, [
      `${told.conversation}${conversation._id ? "" : ": no conversation is kept"}`,
      "",
      ...labelled([
        ["who", [told.name, told.kind].filter(Boolean).join(", ")],
        ["state", state ? `${state}${until ? `, until ${moment(until)}` : ""}` : "none"],
        ["records", n === undefined ? "none" : `${n}, the last one ${ago(at)}`],
        ["data", text ? JSON.stringify(data) : data && Object.keys(data).join(", ")],
      ]),
      ...titled("outbox", ["effect", "", "decided", "tried as", "tried"],
        outbox.map((one) => [one.id, one.way || one.type, ago(one.at), one.as, ago(one.triedAt)])),
      ...titled("timers", ["name", "rings", "every", "set by"],
        timers.map((one) => [one.name, one.runAt, one.every?.at, one.setBy])),
      ...titled("held", ["event", "since", "why"],
        held.map((one) => [one.document?.eventId || one._id, one.since, one.why])),
      ...titled("its last decided events", ["stored", "event", "type", ...(text ? ["text"] : [])],
        events.map((one) => [one.acceptTime, one.eventId, kind(one.event), ...(text ? [said(one.event)] : [])])),
      ...titled("runs", ["at", "type", "outcome", "took", "waited", "event"],
        runs.own.map((one) => [one.at, one.type, one.error || one.outcome, ms(one.ms), ms(one.waitedMs), one.eventId])),
      ...titled("calls", ["at", "endpoint", "status", "took", "LINE's request id"],
        calls.own.map((one) => [one.at, one.endpoint, one.status, ms(one.ms), one.requestId])),
      "",
      `looked through ${runs.looked}; ${calls.looked}`,
    ]);
  };

  // --- slow, dead, help

  const spread = (rows) => {
    const sorted = rows.map((row) => number(row.ms)).filter(Number.isFinite).sort((one, other) => one - other);
    const part = (share) => brief(sorted[Math.ceil(share * sorted.length) - 1] / 1000);
    return sorted.length ? `p50 ${part(0.5)}, p90 ${part(0.9)}, p99 ${part(0.99)}` : "-";
  };

  const slow = (most = SLOWEST) => {
    requireLinedesk();
    const slowest = (rows) => [...rows].sort((one, other) => number(other.ms) - number(one.ms)).slice(0, most);
    const jobs = newest("jobs", NEWEST_ROWS);
    const calls = newest("calls", NEWEST_ROWS);
    const told = { jobs: slowest(jobs), calls: slowest(calls) };
    return answer(told, [
      `runs           ${spread(jobs)} of ${looked("jobs", jobs)}`,
      `calls          ${spread(calls)} of ${looked("calls", calls)}`,
      ...titled("slowest runs", ["at", "took", "waited", "type", "outcome", "conversation", "event"],
        told.jobs.map((row) =>
          [row.at, ms(row.ms), ms(row.waitedMs), row.type, row.error || row.outcome, whose(row), row.eventId])),
      ...titled("slowest calls", ["at", "took", "status", "endpoint", "key", "event"],
        told.calls.map((row) => [row.at, ms(row.ms), row.status, row.endpoint, row.key, row.eventId])),
    ]);
  };

  const dead = (most = SLOWEST) => {
    requireLinedesk();
    const letters = find("deadletters", { replayedAt: null }, LETTER).sort({ lastAt: -1 }).limit(most).toArray();
    const kept = look().dispatcher.figures.deadLettersKept;
    const among = kept ? `, of ${count(kept)} that are kept with the replayed ones` : "";
    return answer(letters, [
      `${letters.length ? times(letters.length, "dead letter") : "no dead letter"}${among}`,
      ...titled("", ["id", "last", "what", "conversation", "cause", "tries"],
        letters.map((row) => [row._id, row.lastAt, what(row), whose(row), row.cause, row.attempts])),
      "",
      "linedesk dead show ID tells all of one; linedesk dead replay ID has it handled again",
    ]);
  };

  const help = () =>
    answer({}, [
      "linedesk.status()               processes, rates, depth, latencies, what waits, what is paused, what is wrong",
      "linedesk.lag()                  progress beside recvq and the oplog, in documents, seconds, and time left",
      "linedesk.story(id)              what became of one event; by its id, our document's, or a message's",
      "linedesk.user(id)               a conversation: state, outbox, timers, held, its last events, runs and calls",
      "linedesk.slow(10)               the slowest of the newest runs of handlers, and calls",
      "linedesk.dead(10)               the newest dead letters",
      "story and user show what people wrote with { text: true } as a second argument.",
      "",
      "views for find(): v_deadletters, v_events, v_held, v_outbox, v_timers, v_waiting",
      "  db.v_events.find().sort({ $natural: -1 }).limit(20)",
    ]);

  return { status, lag, story, user, slow, dead, help };
})();
