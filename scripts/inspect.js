// Shows linedesk's data in the mongo shell. It only reads, never a whole collection, and shows
// users' messages only with { text: true }.
//
//   mongosh URI --shell scripts/inspect.js        or, in the shell: load("scripts/inspect.js")
//   linedesk.help()
//
// It reads the shell's current database (`use line_bot`) and returns its rows without any judgement.
// `linedesk status` reports problems and their remedy. Each result is an object, which the shell
// prints; a part of it is linedesk.status().dispatcher.figures.

var linedesk = (() => {
  const LIMIT_MS = 2000;
  const SILENT_SECONDS = 3;
  const FRESH_SECONDS = 10;
  // The number of newest rows that are searched without an index.
  const NEWEST_ROWS = 5000;
  const MOST = 200;
  // As many dead letters as linedesk status and the page count.
  const MOST_COUNTED = 10000;
  const fields = (...names) => Object.fromEntries(names.map((name) => [name, 1]));
  // None of these fields has users' messages.
  const EVENT = fields("acceptTime", "eventId", "channel", "key", "unsent", "event.type", "event.mode",
    "event.deliveryContext", "event.message.type", "event.message.id", "event.timer.name");
  const HELD = fields("channel", "key", "n", "why", "since", "document.eventId");
  const LETTER = fields("channel", "key", "cause", "about", "attempts", "firstAt", "lastAt", "replays", "replayedAt",
    "document.event.type", "document.event.message.type", "effect.type", "effect.way", "effect.eventId");
  const EFFECT = ["id", "type", "way", "eventId", "at", "triedAt", "as", "name", "runAt", "cause", "about"];
  const TIMER = { data: 0, source: 0 };

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
  const secondsSince = (date) => (date instanceof Date ? Math.max(0, (new Date() - date) / 1000) : Infinity);

  const whose = (row) => (row?.key ? `${row.channel}/${row.key}` : null);

  // --- status, lag: the reports of the processes

  const isFresh = (row) => secondsSince(row.at) <= FRESH_SECONDS;
  const processes = () => find("status", { state: { $ne: "ended" } }).sort({ role: 1, host: 1, pid: 1 }).limit(MOST).toArray();
  // Of two that report to lead, the one with the later lease.
  const leading = (all) =>
    all.filter((row) => isFresh(row) && row.figures?.leading === 1).sort((one, other) => number(other.epoch || 0) - number(one.epoch || 0))[0];

  const status = () => {
    requireLinedesk();
    const all = processes();
    // A process that was killed still says `working` in its row.
    const silent = all.filter((row) => secondsSince(row.at) > SILENT_SECONDS).map((row) => row._id);
    return { at: new Date(), processes: all, silent, dispatcher: leading(all), pauses: rows("control", { act: "pause" }) };
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
    return {
      at: new Date(), ...only(figures, (name) => said.includes(name)),
      progress: { feed: progress.feed, savedAt: progress.at, after: progress.after, afterAt: after?.acceptTime,
        finishedBeyond: (progress.finished || []).filter((id) => id !== null).length },
      recvq: { oldestAt: oldest?.acceptTime, newestAt: newest?.acceptTime },
      oplog: { oldestAt: begins?.wall, newestAt: ending?.wall },
    };
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
    // Not written yet, or overwritten since.
    const missing = ["recvq", "jobs", "calls"].filter((from) => !steps.some((one) => one.from === from));
    const answer = { eventId: name, conversation, steps, missing };
    if (text && document) answer.event = first("recvq", { _id: document._id }, { "event.replyToken": 0 }).event;
    return answer;
  };

  // --- user, dead, help

  const newest = (name, { channel, key }, most) => {
    const looked = { $limit: NEWEST_ROWS };
    const all = apart(name, [looked, ...APART, looked], { hint: { $natural: -1 } });
    // A row of calls has no channel.
    const named = (one) => [one, ...(Array.isArray(one.also) ? one.also : [])].some((its) => its?.key === key);
    const own = all.filter((one) => named(one) && [undefined, channel].includes(one.channel));
    return { own: own.slice(0, most), looked: { rows: all.length, backTo: all[all.length - 1]?.at } };
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
    return {
      conversation: whose(row), isKept: Boolean(conversation._id), name: profile?.displayName, kind, friend, state, until, n, at,
      outbox: effects(conversation),
      timers: rows("schedule", timers, text ? { source: 0 } : TIMER),
      held: find("held", row, HELD).sort({ n: 1 }).limit(MOST).toArray(),
      events: applied.slice(-most).reverse().map((name) => stored(name, wanted) || { eventId: name }),
      runs: runs.own, calls: calls.own, looked: { jobs: runs.looked, calls: calls.looked },
      data: text ? data : Object.keys(data || {}),
    };
  };

  const dead = (most = 10) => {
    requireLinedesk();
    const open = { replayedAt: null };
    const letters = find("deadletters", open, LETTER).sort({ lastAt: -1 }).limit(most).toArray();
    const count = find("deadletters", open, { _id: 1 }).limit(MOST_COUNTED).toArray().length;
    return { open: count, letters };
  };

  const help = () =>
    [
      "linedesk.status()               the processes with their reports, and the pauses",
      "linedesk.lag()                  the dispatcher's lag, its progress, and the span of recvq and the oplog",
      "linedesk.story(id)              the rows of one event in order; by its id, our document's, or a message's",
      "linedesk.user(id)               a conversation: state, outbox, timers, held, its last events, runs and calls",
      "linedesk.dead(10)               the newest dead letters",
      "story and user show the users' messages with { text: true } as a second argument.",
      "`linedesk status` reports problems and what to do.",
      "A change of a conversation by hand increments its n in the same update: $inc: { n: 1 }",
    ].join("\n");

  return { status, lag, story, user, dead, help };
})();
