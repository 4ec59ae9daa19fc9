// Creates linedesk's collections, indexes, first rows and views, like `linedesk init`.
// Idempotent: existing collections are not changed.
//
//   mongosh scripts/create_collection.js
//   mongosh --eval 'var DATABASE = "line_bot", CAPPED_MB = 2048' scripts/create_collection.js
//
// Runs in mongosh and in the older mongo shell, hence the plain old JavaScript.
// The contract is linedesk/setup/neighbours.py, linedesk/setup/collections.py and linedesk/setup/views.py; a test compares the results.

var MEGABYTE = 1024 * 1024;
var DAY_SECONDS = 24 * 3600;
var WEEK_SECONDS = 7 * 24 * 3600;
var databaseName = typeof DATABASE === "undefined" ? "line_bot" : DATABASE;
var cappedMegabytes = typeof CAPPED_MB === "undefined" ? 1024 : CAPPED_MB;
var target = db.getSiblingDB(databaseName);

var collections = [
  { name: "recvq", options: { capped: true, size: cappedMegabytes * MEGABYTE } },
  { name: "calls", options: { capped: true, size: 64 * MEGABYTE } },
  { name: "jobs", options: { capped: true, size: 64 * MEGABYTE } },
  { name: "history", options: { capped: true, size: 32 * MEGABYTE } },
  { name: "progress", options: {} },
  { name: "leases", options: {} },
  { name: "conversations", options: {} },
  { name: "batches", options: {} },
  { name: "held", options: {} },
  { name: "schedule", options: {} },
  { name: "deadletters", options: {} },
  { name: "control", options: {} },
  { name: "status", options: {} },
  { name: "audit", options: {} }
];

var indexes = [
  {
    collection: "recvq",
    keys: { eventId: 1 },
    // Partial, not sparse: a document without eventId must not collide with another such.
    options: {
      name: "eventId",
      unique: true,
      partialFilterExpression: { eventId: { $exists: true } }
    }
  },
  {
    collection: "recvq",
    keys: { "event.message.id": 1 },
    options: {
      name: "messageId",
      partialFilterExpression: { "event.message.id": { $exists: true } }
    }
  },
  {
    collection: "conversations",
    keys: { at: 1 },
    options: { name: "outbox", partialFilterExpression: { outbox: { $gt: {} } } }
  },
  {
    // Lists the conversations with answers that wait for a tap.
    collection: "conversations",
    keys: { at: 1 },
    options: { name: "answers", partialFilterExpression: { answers: { $gt: {} } } }
  },
  {
    collection: "conversations",
    keys: { unsentAt: 1 },
    options: { name: "unsentAt", partialFilterExpression: { unsentAt: { $exists: true } } }
  },
  {
    collection: "deadletters",
    keys: { lastAt: 1, cause: 1 },
    options: { name: "lastAt_cause" }
  },
  {
    collection: "deadletters",
    keys: { "document.event.message.id": 1 },
    options: {
      name: "messageId",
      partialFilterExpression: { "document.event.message.id": { $exists: true } }
    }
  },
  {
    collection: "deadletters",
    keys: { replayedAt: 1 },
    options: { name: "replayedAt", expireAfterSeconds: WEEK_SECONDS }
  },
  {
    collection: "deadletters",
    keys: { expiresAt: 1 },
    options: { name: "expiresAt", expireAfterSeconds: 0 }
  },
  { collection: "held", keys: { channel: 1, key: 1, n: 1 }, options: { name: "channel_key_n" } },
  { collection: "schedule", keys: { runAt: 1 }, options: { name: "runAt" } },
  {
    collection: "schedule",
    keys: { endedAt: 1 },
    options: { name: "endedAt", expireAfterSeconds: WEEK_SECONDS }
  },
  { collection: "calls", keys: { "rows.eventId": 1 }, options: { name: "rows_eventId" } },
  {
    // Finds the call of a send that was sent along in it.
    collection: "calls",
    keys: { "rows.also.eventId": 1 },
    options: { name: "rows_also" }
  },
  // The next two: for documents of one row, as releases before wrote them.
  { collection: "calls", keys: { eventId: 1 }, options: { name: "eventId" } },
  {
    collection: "calls",
    keys: { "also.eventId": 1 },
    options: { name: "also", partialFilterExpression: { "also.eventId": { $exists: true } } }
  },
  { collection: "jobs", keys: { "rows.eventId": 1 }, options: { name: "rows_eventId" } },
  { collection: "jobs", keys: { eventId: 1 }, options: { name: "eventId" } },
  { collection: "history", keys: { at: 1 }, options: { name: "at" } },
  { collection: "audit", keys: { at: 1 }, options: { name: "at" } },
  {
    collection: "status",
    keys: { at: 1 },
    options: { name: "at", expireAfterSeconds: DAY_SECONDS }
  },
  {
    collection: "control",
    keys: { doneAt: 1 },
    options: { name: "doneAt", expireAfterSeconds: DAY_SECONDS }
  }
];

var leases = [
  { _id: "dispatcher", first: { owner: null, epoch: NumberInt(0), until: null } }
];

// The rows of a document of `jobs` or `calls`, the newest first.
var itself = [{ $unsetField: { field: "_id", input: "$$ROOT" } }];
var inside = { $cond: [{ $isArray: "$rows" }, "$rows", itself] };
var takeApart = [
  { $project: { _id: 0, usual: 1, rows: { $reverseArray: inside } } },
  { $unwind: "$rows" },
  { $replaceRoot: { newRoot: { $mergeObjects: ["$usual", "$rows"] } } }
];

// The views omit users' messages, tokens and retry keys.
var views = [
  {
    name: "v_answers",
    on: "conversations",
    pipeline: [
      // The condition on `at` selects the partial index, since views accept no hint.
      { $match: { at: { $exists: true }, answers: { $gt: {} } } },
      { $project: { channel: 1, key: 1, answer: { $objectToArray: "$answers" } } },
      { $unwind: "$answer" },
      {
        $project: {
          _id: "$answer.k",
          channel: 1,
          key: 1,
          state: "$answer.v.state",
          at: "$answer.v.at",
          by: "$answer.v.by"
        }
      }
    ]
  },
  {
    name: "v_deadletters",
    on: "deadletters",
    pipeline: [
      {
        $project: {
          channel: 1,
          key: 1,
          cause: 1,
          attempts: 1,
          type: { $ifNull: ["$document.event.type", "$effect.type"] },
          way: "$effect.way",
          eventId: { $ifNull: ["$effect.eventId", "$document.eventId"] },
          firstAt: 1,
          lastAt: 1,
          replays: 1,
          replayedAt: 1
        }
      }
    ]
  },
  {
    name: "v_events",
    on: "recvq",
    pipeline: [
      { $match: { heartbeat: { $exists: false } } },
      {
        $project: {
          acceptTime: 1,
          eventId: 1,
          channel: 1,
          key: 1,
          unsent: 1,
          "event.type": 1,
          "event.mode": 1,
          "event.source": 1,
          "event.message.type": 1,
          "event.message.id": 1,
          "event.deliveryContext": 1,
          "event.timer.name": 1
        }
      }
    ]
  },
  {
    name: "v_calls",
    on: "calls",
    pipeline: takeApart.concat([
      {
        $project: {
          at: 1,
          endpoint: 1,
          status: 1,
          ms: 1,
          class: 1,
          waitedMs: 1,
          paid: 1,
          eventId: 1,
          key: 1,
          attempt: 1,
          requestId: 1,
          reason: 1,
          sends: { $add: [1, { $size: { $cond: [{ $isArray: "$also" }, "$also", []] } }] },
          conversations: {
            $size: {
              $setUnion: [
                ["$key"],
                { $map: { input: { $cond: [{ $isArray: "$also" }, "$also", []] }, in: "$$this.key" } }
              ]
            }
          }
        }
      }
    ])
  },
  { name: "v_jobs", on: "jobs", pipeline: takeApart },
  {
    name: "v_held",
    on: "held",
    pipeline: [
      {
        $project: {
          channel: 1,
          key: 1,
          n: 1,
          why: 1,
          since: 1,
          eventId: { $ifNull: ["$document.eventId", "$_id"] },
          type: "$document.event.type",
          acceptTime: "$document.acceptTime"
        }
      }
    ]
  },
  {
    name: "v_outbox",
    on: "conversations",
    pipeline: [
      // The condition on `at` selects the partial index, since views accept no hint.
      { $match: { at: { $exists: true }, outbox: { $gt: {} } } },
      {
        $lookup: {
          from: "batches",
          localField: "call.batch",
          foreignField: "_id",
          pipeline: [{ $match: { state: "ready" } }, { $project: { _id: 1 } }],
          as: "ready"
        }
      },
      {
        $project: {
          channel: 1,
          key: 1,
          "call.at": 1,
          "call.as": 1,
          // A claim counts only while its multicast is ready.
          tried: {
            $cond: [
              {
                $and: [
                  { $isArray: "$call.members" },
                  { $or: [{ $eq: [{ $type: "$call.batch" }, "missing"] }, { $ne: ["$ready", []] }] }
                ]
              },
              "$call.members",
              []
            ]
          },
          effect: {
            $objectToArray: { $cond: [{ $eq: [{ $type: "$outbox" }, "object"] }, "$outbox", {}] }
          }
        }
      },
      { $unwind: "$effect" },
      {
        $project: {
          _id: "$effect.v.id",
          channel: 1,
          key: 1,
          place: "$effect.k",
          type: "$effect.v.type",
          way: "$effect.v.way",
          eventId: "$effect.v.eventId",
          at: "$effect.v.at",
          messages: {
            $cond: [{ $isArray: "$effect.v.messages" }, { $size: "$effect.v.messages" }, "$$REMOVE"]
          },
          triedAt: { $cond: [{ $in: ["$effect.k", "$tried"] }, "$call.at", "$effect.v.triedAt"] },
          as: {
            $cond: [
              { $in: ["$effect.k", "$tried"] },
              { $ifNull: ["$call.as", "multicast"] },
              "$effect.v.as"
            ]
          },
          timer: "$effect.v.timer",
          runAt: "$effect.v.runAt",
          cause: "$effect.v.cause"
        }
      }
    ]
  },
  {
    name: "v_timers",
    on: "schedule",
    pipeline: [
      { $match: { runAt: { $type: "date" } } },
      { $sort: { runAt: 1 } },
      { $project: { channel: 1, key: 1, name: 1, runAt: 1, every: 1, setBy: 1 } }
    ]
  },
  {
    name: "v_waiting",
    on: "held",
    pipeline: [
      { $sort: { channel: 1, key: 1, n: 1 } },
      {
        $group: {
          _id: { channel: "$channel", key: "$key" },
          documents: { $sum: 1 },
          since: { $min: "$since" },
          why: { $first: "$why" },
          eventId: { $first: "$document.eventId" }
        }
      },
      { $sort: { since: 1 } },
      {
        $project: {
          _id: 0,
          channel: "$_id.channel",
          key: "$_id.key",
          documents: 1,
          since: 1,
          why: 1,
          eventId: 1
        }
      }
    ]
  }
];

function refuse(reason) {
  print("refused: " + reason);
  quit(1);
}

// mongosh throws what the older shell returns as {ok: 0}.
function demand(answer) {
  if (answer && answer.ok === 0) {
    throw new Error(answer.errmsg);
  }
}

function find(name) {
  return target.getCollectionInfos({ name: name })[0];
}

function checkServer() {
  var server = db.adminCommand({ isMaster: 1 });
  if (!server.ismaster) {
    refuse("this server is not the primary; if its replica set is new, run `linedesk init` or rs.initiate() first");
  }
  if (!server.setName) {
    print("note: this server is standalone; linedesk needs a replica set (see deploy/mongod.conf)");
  }
}

function checkRecvq() {
  var recvq = find("recvq");
  if (recvq && !recvq.options.capped) {
    refuse(
      databaseName + ".recvq exists but is not capped: if linedesk stored its documents, run `linedesk init`, " +
        "which keeps them; otherwise rename it (db.recvq.renameCollection('recvq_old')), " +
        "then run this script again"
    );
  }
}

function makeCollection(wanted) {
  var found = find(wanted.name);
  if (found && wanted.options.capped && !found.options.capped) {
    // An insert after a drop created it. Its indexes are made after this.
    demand(target.runCommand({ convertToCapped: wanted.name, size: wanted.options.size }));
    print("capped again  " + wanted.name);
  } else if (found) {
    print("was there  " + wanted.name);
  } else {
    demand(target.createCollection(wanted.name, wanted.options));
    print("made       " + wanted.name);
  }
}

function hasIndex(wanted) {
  return target.getCollection(wanted.collection).getIndexes().some(function (found) {
    return found.name === wanted.options.name;
  });
}

// An existing index may have its own age: `linedesk init` sets that of `audit`.
function makeIndex(wanted) {
  if (hasIndex(wanted)) {
    return;
  }
  demand(target.getCollection(wanted.collection).createIndex(wanted.keys, wanted.options));
}

// A view of another version gets this definition.
function makeView(wanted) {
  var found = find(wanted.name);
  if (!found) {
    demand(target.createView(wanted.name, wanted.on, wanted.pipeline));
    print("made       " + wanted.name);
  } else if (found.type === "view") {
    demand(target.runCommand({ collMod: wanted.name, viewOn: wanted.on, pipeline: wanted.pipeline }));
    print("was there  " + wanted.name);
  }
}

// Progress that outlived its leases must not have an epoch above all new ones.
function seedEpochs() {
  var progress = target.progress.findOne({ _id: "dispatcher" }) || { epoch: NumberInt(0) };
  target.leases.updateOne({ _id: "epochs" }, { $max: { epoch: progress.epoch } }, { upsert: true });
}

function seedLease(wanted) {
  target.leases.updateOne({ _id: wanted._id }, { $setOnInsert: wanted.first }, { upsert: true });
}

checkServer();
checkRecvq();
collections.forEach(makeCollection);
indexes.forEach(makeIndex);
views.forEach(makeView);
seedEpochs();
leases.forEach(seedLease);
print("database " + databaseName + " is ready");
