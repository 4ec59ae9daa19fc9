// Shows linedesk's data in the mongo shell. It only reads, never a whole collection, and shows
// users' messages only with { text: true }.
//
//   mongosh URI --shell scripts/inspect.js        or, in the shell: load("scripts/inspect.js")
//   linedesk.help()
//
// It reads the shell's current database (`use line_bot`) and prints its rows without any judgement.
// `linedesk status` reports problems and their remedy. Each result prints as a page and is an
// object, such as linedesk.status().dispatcher.figures.

var linedesk = (() => {
  const LIMIT_MS = 2000;
  const FRESH_SECONDS = 10;
  // The number of newest rows that are searched without an index.
  const NEWEST_ROWS = 5000;
  const MOST = 200;
  // As many dead letters as linedesk status and the page count.
  const MOST_COUNTED = 10000;
  const CELL_COLUMNS = 150;
  const fields = (...names) => Object.fromEntries(names.map((name) => [name, 1]));
  // None of these fields has users' messages.
  const EVENT = fields("acceptTime", "eventId", "channel", "key", "unsent", "event.type", "event.mode",
    "event.deliveryContext", "event.message.type", "event.message.id", "event.timer.name");
  const HELD = fields("channel", "key", "n", "why", "since", "document.eventId");
  const LETTER = fields("channel", "key", "cause", "attempts", "firstAt", "lastAt", "replays", "replayedAt",
    "document.event.type", "document.event.message.type", "effect.type", "effect.way", "effect.eventId");
  const EFFECT = ["id", "type", "way", "eventId", "at", "triedAt", "as", "name", "runAt", "cause"];
  const TIMER = { data: 0, source: 0 };
  // These have their own columns.
  const TITLED = ["at", "acceptTime", "lastAt", "since", "eventId", "channel", "key"];

  // Not a?.b?.method(): mongosh replaces JavaScript's methods and would call them without `this`.

  // --- reading

  const find = (name, filter, wanted = {}) => db.getCollection(name).find(filter, wanted).maxTimeMS(LIMIT_MS);
  const rows = (name, filter, wanted) => find(name, filter, wanted).limit(MOST).toArray();
  const first = (name, filter, wanted) => find(name, filter, wanted).limit(1).toArray()[0];
  // The rows of a document of jobs or calls, the newest first; one row in documents of earlier releases.
  const itself = [{ $unsetField: { field: "_id", input: "$$ROOT" } }];
  const inside = { $cond: [{ $isArray: "$rows" }, "$rows", itself] };
  const APART = [
    { $project: { _id: 0, usual: 1, rows: { $reverseArray: inside } } },
    { $unwind: "$rows" },
    { $replaceRoot: { newRoot: { $mergeObjects: ["$usual", "$rows"] } } },
  ];
  const apart = (name, stages, more = {}) =>
    db.getCollection(name).aggregate(stages, { maxTimeMS: LIMIT_MS, ...more }).toArray();
  // Those that match one of the filters, each found by an index.
  const matching = (name, ...wanted) => {
    const inRows = wanted.map((one) => ({ rows: { $elemMatch: one } }));
    return apart(name, [{ $match: { $or: [...wanted, ...inRows] } }, ...APART, { $match: { $or: wanted } },
      { $sort: { at: 1, attempt: 1 } }, { $limit: MOST }]);
  };
  // Ids with this prefix, by the index.
  const beginning = (words) => ({ $gte: words, $lt: words + "\u{10ffff}" });

  const requireLinedesk = () => {
    if (!first("leases", { _id: "dispatcher" }, { _id: 1 })) {
      throw new Error(`no linedesk in the database ${db.getName()}: use line_bot, or what MONGODB_DATABASE says`);
    }
  };

  const only = (document, wanted) =>
    Object.fromEntries(Object.entries(document).filter(([name]) => wanted(name)));

  // Converts MongoDB's 64-bit integers to numbers.
  const number = (value) => (typeof value?.toNumber === "function" ? value.toNumber() : value);
  const isGroup = (value) =>
    typeof value === "object" && value !== null && !Array.isArray(value) && !(value instanceof Date) &&
    value._bsontype === undefined;
  // A code with its values; a sentence in rows of earlier releases.
  const reason = (why) =>
    isGroup(why)
      ? Object.entries(why).map(([name, value]) =>
          name === "code" ? value : `${name}=${value instanceof Date ? value.toISOString() : value}`).join(" ")
      : why;
  const secondsSince = (date) => (date instanceof Date ? Math.max(0, (new Date() - date) / 1000) : Infinity);

  // --- texts, and tables whose columns align in every script

  const WIDE = new RegExp(
    "[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60" +
      "\uffe0-\uffe6\u{1f300}-\u{1faff}\u{20000}-\u{3fffd}]", "u");
  const NARROW = /[\p{Mn}\p{Me}\p{Cf}]/u;
  // Characters that would move the cursor, or change the direction of the line.
  const UNSEEN = /[\p{Cc}\u200e\u200f\u2028-\u202e\u2066-\u2069]/gu;

  const columns = (letter) => (NARROW.test(letter) ? 0 : WIDE.test(letter) ? 2 : 1);
  const width = (text) => [...text].reduce((all, letter) => all + columns(letter), 0);
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
    if (value instanceof Date) return moment(value);
    const plain = number(value);
    return typeof plain === "number" ? figure(plain) : String(plain).replace(UNSEEN, "?");
  };

  const figure = (value) => (Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(4))));

  const table = (names, rows) => {
    const cells = [names, ...rows.map((row) => row.map((value) => cut(cell(value), CELL_COLUMNS)))];
    const widths = names.map((_, column) => Math.max(...cells.map((row) => width(row[column]))));
    return cells.map((row) => row.map((text, column) => pad(text, widths[column])).join("  ").trimEnd());
  };

  const titled = (title, names, rows) =>
    rows.length ? ["", ...(title ? [title] : []), ...table(names, rows).map((line) => `  ${line}`)] : [];

  const labelled = (pairs) => pairs.map(([label, value]) => `${pad(label, 16)}${cell(value)}`);

  const two = (value) => String(value).padStart(2, "0");

  const moment = (date) => {
    const day = [date.getFullYear(), two(date.getMonth() + 1), two(date.getDate())].join("-");
    return `${day} ${[date.getHours(), date.getMinutes(), date.getSeconds()].map(two).join(":")}`;
  };

  const zone = () => {
    const minutes = -new Date().getTimezoneOffset();
    return `${minutes < 0 ? "-" : "+"}${two(Math.floor(Math.abs(minutes) / 60))}${two(Math.abs(minutes) % 60)}`;
  };

  const seconds = (value) => (Number.isFinite(value) ? `${value.toFixed(value < 10 ? 3 : 0)} s` : "-");
  const ago = (date) => (date instanceof Date ? `${seconds(secondsSince(date))} ago` : "-");
  const whose = (row) => (row?.key ? `${row.channel}/${row.key}` : "-");
  const heading = (name) => `${name} in ${db.getName()}, ${moment(new Date())} ${zone()}`;

  // [["gateUse.api", 0.2], …]: the values of a document and of those within it.
  const flat = (document, within = "") =>
    Object.entries(document || {}).flatMap(([name, value]) =>
      isGroup(value) ? flat(value, `${within}${name}.`) : [[within + name, value]]);

  const told = (row) =>
    flat(only(row, (name) => !TITLED.includes(name)))
      .filter(([, value]) => value !== null && value !== undefined)
      .map(([name, value]) => `${name}=${Array.isArray(value) ? `(${value.length})` : cell(value)}`)
      .join(" ");

  // An object that the shell prints as a page.
  const answer = (object, lines) => {
    const asText = () => lines.join("\n");
    for (const name of ["toString", Symbol.for("nodejs.util.inspect.custom")]) {
      Object.defineProperty(object, name, { enumerable: false, value: asText });
    }
    return object;
  };

  // --- status, lag: the reports of the processes

  // The word follows the age of the row: a process that was killed works no more.
  const said = (row) => (secondsSince(row.at) > 3 ? ["silent", ago(row.at), "-"] : [row.state, ago(row.at), row.words]);
  const isFresh = (row) => secondsSince(row.at) <= FRESH_SECONDS;
  const processes = () => find("status", { state: { $ne: "ended" } }).sort({ role: 1, host: 1, pid: 1 }).limit(MOST).toArray();
  // Of two that report to lead, the one with the later lease.
  const leading = (all) =>
    all.filter((row) => isFresh(row) && row.figures?.leading === 1).sort((one, other) => number(other.epoch || 0) - number(one.epoch || 0))[0];

  const ofProcess = ({ role, host, pid, figures, perSecond, lately, threads = [], waiting = [] }) => {
    const rates = Object.fromEntries(flat(perSecond));
    const latencies = flat(lately).filter(([name]) => name.endsWith(".count")).map(([name]) => name.slice(0, -6));
    const found = Object.fromEntries(flat(lately));
    return [
      ...titled(`${role} ${host}/${pid}`, ["figure", "", "per second"],
        flat(figures).map(([name, value]) => [name, value, rates[name]])),
      ...titled("the last minute, in seconds", ["", "count", "p50", "p90", "p99", "max"],
        latencies.map((name) => [name, ...["count", "p50", "p90", "p99", "max"].map((part) => found[`${name}.${part}`])])),
      ...titled("busy threads", ["thread", "doing", "for", "conversation", "event"],
        threads.map((row) => [row.name, row.doing, seconds(secondsSince(row.since)), whose(row), row.eventId])),
      ...titled("waiting", ["conversation", "documents", "held", "for", "try", "why", "first event"],
        waiting.map((row) => [whose(row), row.documents, row.held, seconds(secondsSince(row.since)), row.try, reason(row.why), row.eventId])),
    ];
  };

  const status = () => {
    requireLinedesk();
    const all = processes();
    const pauses = rows("control", { act: "pause" });
    return answer({ at: new Date(), processes: all, dispatcher: leading(all), pauses }, [
      heading("linedesk"),
      ...titled("processes", ["role", "host", "pid", "state", "heard of", "says"],
        all.map((row) => [row.role, row.host, row.pid, ...said(row)])),
      ...titled("pauses", ["id", "since", "by", "why"], pauses.map((row) => [row._id, row.at, row.by, row.why])),
      ...all.filter(isFresh).flatMap(ofProcess),
    ]);
  };

  const ends = (collection, wanted) =>
    [1, -1].map((way) =>
      collection.find({}, wanted).sort({ $natural: way }).limit(1).maxTimeMS(LIMIT_MS).toArray()[0]);

  const lag = () => {
    requireLinedesk();
    const figures = leading(processes())?.figures || {};
    const progress = first("progress", { _id: "dispatcher" }, fields("after", "feed", "at", "finished")) || {};
    const after = progress.after && first("recvq", { _id: progress.after }, { acceptTime: 1 });
    const [oldest, newest] = ends(db.getCollection("recvq"), { acceptTime: 1 });
    const [begins, ending] = ends(db.getSiblingDB("local").getCollection("oplog.rs"), { wall: 1 });
    const said = ["lagDocuments", "lagSeconds", "queueDocuments", "oldestUnfinishedSeconds", "recvqUnreadShare",
      "recvqLeftSeconds", "oplogLeftSeconds"];
    const object = {
      at: new Date(), ...only(figures, (name) => said.includes(name)),
      progress: { feed: progress.feed, savedAt: progress.at, after: progress.after, afterAt: after?.acceptTime,
        finishedBeyond: (progress.finished || []).filter((id) => id !== null).length },
      recvq: { oldestAt: oldest?.acceptTime, newestAt: newest?.acceptTime },
      oplog: { oldestAt: begins?.wall, newestAt: ending?.wall },
    };
    return answer(object, [
      heading("lag"),
      ...titled("the dispatcher's figures", ["figure", ""], said.map((name) => [name, figures[name]])),
      ...titled("what is stored", ["row", ""], ["progress", "recvq", "oplog"].flatMap((name) =>
        flat(object[name]).map(([part, value]) => [`${name} ${part}`, value]))),
    ]);
  };

  // --- story

  const stored = (id, wanted) => {
    let found = first("recvq", { eventId: id }, wanted);
    if (!found && /^[0-9a-f]{24}$/i.test(id)) found = first("recvq", { _id: ObjectId(id) }, wanted);
    if (!found && /^[0-9]+$/.test(id)) found = first("recvq", { "event.message.id": id }, wanted);
    return found;
  };

  // The fields of a conversation that its effects need.
  const OUTBOX = fields("outbox", "call");
  const placed = ({ outbox = {} }) => Object.entries(outbox).sort(([one], [other]) => (one < other ? -1 : 1));

  // A claim counts only while its multicast is ready.
  const counts = ({ batch }) => batch === undefined || first("batches", { _id: batch, state: "ready" }, { _id: 1 });

  const effects = (conversation) => {
    const { call } = conversation || {};
    const tried = call && counts(call) ? call.members || [] : [];
    return placed(conversation || {}).map(([place, effect]) => {
      const its = tried.includes(place) ? { triedAt: call.at, as: call.as || "multicast" } : {};
      return only({ ...effect, ...its }, (name) => EFFECT.includes(name));
    });
  };

  // The rows that name an event, each found by an index: [collection, rows, the field that dates them].
  const naming = (name, document) => {
    const runs = matching("jobs", { eventId: name });
    // A send may have been sent in the call of another event.
    const calls = matching("calls", { eventId: name }, { "also.eventId": name });
    const letters = [name, beginning(`${name}/`)].flatMap((id) => rows("deadletters", { _id: id }, LETTER));
    const replays = { $or: [`replay:${name}:`, `replay:${name}/`].map((one) => ({ eventId: beginning(one) })) };
    const own = [document, ...letters, ...runs, ...calls].find((one) => one?.key && one?.channel);
    const conversation = own && first("conversations", { _id: whose(own) }, { applied: 1, ...OUTBOX });
    const held = document ? { _id: document._id } : own && { channel: own.channel, key: own.key, "document.eventId": name };
    const timers = own && { _id: beginning(`${whose(own)}/`), setBy: name };
    const leader = leading(processes()) || {};
    const isOf = (row) => row.eventId === name;
    const covers = (row) => [null, own?.channel].includes(row.channel) && [null, own?.key].includes(row.key);
    const found = [
      ["recvq", [document].filter(Boolean), "acceptTime"],
      ["jobs", runs, "at"],
      ["calls", calls, "at"],
      ["deadletters", letters, "lastAt"],
      ["recvq", rows("recvq", replays, EVENT), "acceptTime"],
      ["conversations", (conversation?.applied || []).includes(name) ? [{ applied: true }] : [], "at"],
      ["conversations", effects(conversation).filter((one) => isOf(one) || one.id === name), "at"],
      ["held", held ? rows("held", held, HELD) : [], "since"],
      ["schedule", timers ? rows("schedule", timers, TIMER) : [], "at"],
      ["control", own ? rows("control", { act: "pause" }).filter(covers) : [], "at"],
      ["status", [...(leader.threads || []), ...(leader.waiting || [])].filter(isOf), "since"],
    ];
    return { conversation: whose(own), found };
  };

  // By the event's id, that of our document, or that of a message.
  const story = (id, { text = false } = {}) => {
    requireLinedesk();
    const document = stored(String(id), EVENT);
    const name = String(document?.eventId || document?._id || id);
    const { conversation, found } = naming(name, document);
    const steps = found
      .flatMap(([from, some, dated]) => some.map((row) => ({ at: row[dated], from, row })))
      .sort((one, other) => (one.at || Infinity) - (other.at || Infinity));
    const object = { eventId: name, conversation, steps };
    if (text && document) object.event = first("recvq", { _id: document._id }, { "event.replyToken": 0 }).event;
    const began = steps[0]?.at;
    const missing = ["recvq", "jobs", "calls"].filter((from) => !steps.some((one) => one.from === from));
    return answer(object, [
      `${name} of ${conversation}`,
      ...titled("", ["at", "after", "in", "row"], steps.map(({ at, from, row }) =>
        [at, at && seconds((at - began) / 1000), from, told(row)])),
      ...(object.event ? ["", JSON.stringify(object.event, null, 2)] : []),
      ...(missing.length ? ["", `no row in ${missing.join(", ")}: not written yet, or overwritten since`] : []),
    ]);
  };

  // --- user, dead, help

  const newest = (name, { channel, key }, most) => {
    const looked = { $limit: NEWEST_ROWS };
    const all = apart(name, [looked, ...APART, looked], { hint: { $natural: -1 } });
    const back = all.length ? `, back to ${cell(all[all.length - 1].at)}` : "";
    // A row of calls has no channel.
    const named = (one) => [one, ...(Array.isArray(one.also) ? one.also : [])].some((its) => its?.key === key);
    const own = all.filter((one) => named(one) && [undefined, channel].includes(one.channel));
    return { own: own.slice(0, most), looked: `the newest ${all.length} rows of ${name}${back}` };
  };

  // By a user, group or room id, or by `channel/id`.
  const user = (id, { text = false, most = 10 } = {}) => {
    requireLinedesk();
    const [, channel = "main", key] = /^(?:(.*?)\/)?(.*)$/.exec(id);
    const row = { channel, key };
    const conversation = first("conversations", { _id: whose(row) }) || {};
    const runs = newest("jobs", row, most);
    const calls = newest("calls", row, most);
    const wanted = text ? { "event.replyToken": 0 } : EVENT;
    const timers = { _id: beginning(`${whose(row)}/`), runAt: { $type: "date" } };
    const { kind, profile, friend, state, until, n, at, data, applied = [] } = conversation;
    const object = {
      conversation: whose(row), name: profile?.displayName, kind, friend, state, until, n, at,
      outbox: effects(conversation),
      timers: rows("schedule", timers, text ? { source: 0 } : TIMER),
      held: find("held", row, HELD).sort({ n: 1 }).limit(MOST).toArray(),
      events: applied.slice(-most).reverse().map((name) => stored(name, wanted) || { eventId: name }),
      runs: runs.own, calls: calls.own,
    };
    if (text) object.data = data;
    const listed = (name, dated) =>
      titled(name, [dated, "event", "row"], object[name].map((one) =>
        [one[dated], one.eventId, told(one)]));
    return answer(object, [
      `${whose(row)}${conversation._id ? "" : ": no conversation is kept"}`,
      "",
      ...labelled(["name", "kind", "friend", "state", "until", "n", "at"].map((name) => [name, object[name]])),
      ...labelled([["data", text ? JSON.stringify(data) : Object.keys(data || {}).join(", ")]]),
      ...listed("outbox", "at"),
      ...titled("timers", ["name", "runAt", "every", "setBy"],
        object.timers.map((one) => [one.name, one.runAt, one.every?.at, one.setBy])),
      ...listed("held", "since"),
      ...listed("events", "acceptTime"),
      ...listed("runs", "at"),
      ...listed("calls", "at"),
      "",
      `looked through ${runs.looked}; ${calls.looked}`,
    ]);
  };

  const dead = (most = 10) => {
    requireLinedesk();
    const open = { replayedAt: null };
    const letters = find("deadletters", open, LETTER).sort({ lastAt: -1 }).limit(most).toArray();
    const count = find("deadletters", open, { _id: 1 }).limit(MOST_COUNTED).toArray().length;
    return answer(letters, [
      `dead letters that were not replayed${letters.length < count ? `, the newest ${letters.length} of all` : ""}: ${count}`,
      ...titled("", ["last", "conversation", "row"],
        letters.map((row) => [row.lastAt, whose(row), told(row)])),
      "",
      "linedesk dead show ID shows one in full; linedesk dead replay ID handles it again",
    ]);
  };

  const help = () =>
    answer({}, [
      "linedesk.status()               the processes with their reports, and the pauses",
      "linedesk.lag()                  the dispatcher's lag, its progress, and the span of recvq and the oplog",
      "linedesk.story(id)              the rows of one event in order; by its id, our document's, or a message's",
      "linedesk.user(id)               a conversation: state, outbox, timers, held, its last events, runs and calls",
      "linedesk.dead(10)               the newest dead letters",
      "story and user show the users' messages with { text: true } as a second argument.",
      "`linedesk status` reports problems and what to do.",
      "A change of a conversation by hand increments its n in the same update: $inc: { n: 1 }",
      "",
      "views for find(): v_answers, v_calls, v_deadletters, v_events, v_held, v_jobs, v_outbox, v_timers,",
      "  v_waiting",
      "  db.v_events.find().sort({ $natural: -1 }).limit(20)",
    ]);

  return { status, lag, story, user, dead, help };
})();
