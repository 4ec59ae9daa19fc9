// Creates linedesk's collections, indexes and first rows, like `linedesk init`.
// Idempotent: existing collections are not changed.
//
//   mongosh scripts/create_collection.js
//   mongosh --eval 'var DATABASE = "line_bot", CAPPED_MB = 2048' scripts/create_collection.js
//
// Runs in mongosh and in the older mongo shell, hence the plain old JavaScript.

var databaseName = typeof DATABASE === "undefined" ? "line_bot" : DATABASE;
var cappedMegabytes = typeof CAPPED_MB === "undefined" ? 1024 : CAPPED_MB;
var target = db.getSiblingDB(databaseName);

// Written by scripts/create_collection.py from here:
var collections = {
  "recvq": {"capped": true},
  "calls": {"capped": true, "size": 67108864},
  "jobs": {"capped": true, "size": 67108864},
  "history": {"capped": true, "size": 33554432},
  "progress": {},
  "leases": {},
  "conversations": {},
  "batches": {},
  "held": {},
  "schedule": {},
  "deadletters": {},
  "control": {},
  "status": {},
  "audit": {}
};
var indexes = [
  {
    "collection": "recvq",
    "keys": {"eventId": 1},
    "options": {"name": "eventId", "unique": true, "partialFilterExpression": {"eventId": {"$exists": true}}}
  },
  {
    "collection": "recvq",
    "keys": {"event.message.id": 1},
    "options": {"name": "messageId", "partialFilterExpression": {"event.message.id": {"$exists": true}}}
  },
  {
    "collection": "conversations",
    "keys": {"at": 1},
    "options": {"name": "outbox", "partialFilterExpression": {"outbox": {"$gt": {}}}}
  },
  {
    "collection": "conversations",
    "keys": {"at": 1},
    "options": {"name": "answers", "partialFilterExpression": {"answers": {"$gt": {}}}}
  },
  {
    "collection": "conversations",
    "keys": {"unsentAt": 1},
    "options": {"name": "unsentAt", "partialFilterExpression": {"unsentAt": {"$exists": true}}}
  },
  {"collection": "deadletters", "keys": {"lastAt": 1, "cause": 1}, "options": {"name": "lastAt_cause"}},
  {
    "collection": "deadletters",
    "keys": {"document.event.message.id": 1},
    "options": {"name": "messageId", "partialFilterExpression": {"document.event.message.id": {"$exists": true}}}
  },
  {
    "collection": "deadletters",
    "keys": {"replayedAt": 1},
    "options": {"name": "replayedAt", "expireAfterSeconds": 604800}
  },
  {
    "collection": "deadletters",
    "keys": {"expiresAt": 1},
    "options": {"name": "expiresAt", "expireAfterSeconds": 0}
  },
  {"collection": "held", "keys": {"channel": 1, "key": 1, "n": 1}, "options": {"name": "channel_key_n"}},
  {"collection": "schedule", "keys": {"runAt": 1}, "options": {"name": "runAt"}},
  {
    "collection": "schedule",
    "keys": {"endedAt": 1},
    "options": {"name": "endedAt", "expireAfterSeconds": 604800}
  },
  {"collection": "calls", "keys": {"rows.eventId": 1}, "options": {"name": "rows_eventId"}},
  {"collection": "calls", "keys": {"rows.also.eventId": 1}, "options": {"name": "rows_also"}},
  {"collection": "calls", "keys": {"eventId": 1}, "options": {"name": "eventId"}},
  {
    "collection": "calls",
    "keys": {"also.eventId": 1},
    "options": {"name": "also", "partialFilterExpression": {"also.eventId": {"$exists": true}}}
  },
  {"collection": "jobs", "keys": {"rows.eventId": 1}, "options": {"name": "rows_eventId"}},
  {"collection": "jobs", "keys": {"eventId": 1}, "options": {"name": "eventId"}},
  {"collection": "history", "keys": {"at": 1}, "options": {"name": "at"}},
  {"collection": "audit", "keys": {"at": 1}, "options": {"name": "at"}},
  {"collection": "status", "keys": {"at": 1}, "options": {"name": "at", "expireAfterSeconds": 86400}},
  {"collection": "control", "keys": {"doneAt": 1}, "options": {"name": "doneAt", "expireAfterSeconds": 86400}}
];
// To here.

collections.recvq.size = cappedMegabytes * 1024 * 1024;
var neverHeld = { owner: null, epoch: NumberInt(0), until: null };

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

function makeCollection(name) {
  var options = collections[name];
  var found = find(name);
  if (found && options.capped && !found.options.capped) {
    // An insert after a drop created it. Its indexes are made after this.
    demand(target.runCommand({ convertToCapped: name, size: options.size }));
    print("capped again  " + name);
  } else if (found) {
    print("was there  " + name);
  } else {
    demand(target.createCollection(name, options));
    print("made       " + name);
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

function seed() {
  // Progress that outlived its leases must not have an epoch above all new ones.
  var progress = target.progress.findOne({ _id: "dispatcher" }) || { epoch: NumberInt(0) };
  target.leases.updateOne({ _id: "epochs" }, { $max: { epoch: progress.epoch } }, { upsert: true });
  target.leases.updateOne({ _id: "dispatcher" }, { $setOnInsert: neverHeld }, { upsert: true });
}

checkServer();
checkRecvq();
Object.keys(collections).forEach(makeCollection);
indexes.forEach(makeIndex);
seed();
print("database " + databaseName + " is ready");
