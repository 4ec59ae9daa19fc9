// Creates linedesk's collections, indexes, first rows and views, like `linedesk init`.
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
var views = {
  "v_answers": {
    "viewOn": "conversations",
    "pipeline": [
      {"$match": {"at": {"$exists": true}, "answers": {"$gt": {}}}},
      {"$project": {"channel": 1, "key": 1, "answer": {"$objectToArray": "$answers"}}},
      {"$unwind": "$answer"},
      {
        "$project": {
          "_id": "$answer.k",
          "channel": 1,
          "key": 1,
          "state": "$answer.v.state",
          "at": "$answer.v.at",
          "by": "$answer.v.by"
        }
      }
    ]
  },
  "v_deadletters": {
    "viewOn": "deadletters",
    "pipeline": [
      {
        "$project": {
          "channel": 1,
          "key": 1,
          "cause": 1,
          "about": 1,
          "attempts": 1,
          "type": {"$ifNull": ["$document.event.type", "$effect.type"]},
          "way": "$effect.way",
          "eventId": {"$ifNull": ["$effect.eventId", "$document.eventId"]},
          "firstAt": 1,
          "lastAt": 1,
          "replays": 1,
          "replayedAt": 1
        }
      }
    ]
  },
  "v_events": {
    "viewOn": "recvq",
    "pipeline": [
      {"$match": {"heartbeat": {"$exists": false}}},
      {
        "$project": {
          "acceptTime": 1,
          "eventId": 1,
          "channel": 1,
          "key": 1,
          "unsent": 1,
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
  "v_calls": {
    "viewOn": "calls",
    "pipeline": [
      {
        "$project": {
          "_id": 0,
          "usual": 1,
          "rows": {
            "$reverseArray": {
              "$cond": [{"$isArray": "$rows"}, "$rows", [{"$unsetField": {"field": "_id", "input": "$$ROOT"}}]]
            }
          }
        }
      },
      {"$unwind": "$rows"},
      {"$replaceRoot": {"newRoot": {"$mergeObjects": ["$usual", "$rows"]}}},
      {
        "$project": {
          "at": 1,
          "endpoint": 1,
          "status": 1,
          "ms": 1,
          "class": 1,
          "waitedMs": 1,
          "paid": 1,
          "eventId": 1,
          "key": 1,
          "attempt": 1,
          "requestId": 1,
          "reason": 1,
          "sends": {"$add": [1, {"$size": {"$cond": [{"$isArray": "$also"}, "$also", []]}}]},
          "conversations": {
            "$size": {
              "$setUnion": [
                ["$key"],
                {"$map": {"input": {"$cond": [{"$isArray": "$also"}, "$also", []]}, "in": "$$this.key"}}
              ]
            }
          }
        }
      }
    ]
  },
  "v_jobs": {
    "viewOn": "jobs",
    "pipeline": [
      {
        "$project": {
          "_id": 0,
          "usual": 1,
          "rows": {
            "$reverseArray": {
              "$cond": [{"$isArray": "$rows"}, "$rows", [{"$unsetField": {"field": "_id", "input": "$$ROOT"}}]]
            }
          }
        }
      },
      {"$unwind": "$rows"},
      {"$replaceRoot": {"newRoot": {"$mergeObjects": ["$usual", "$rows"]}}}
    ]
  },
  "v_held": {
    "viewOn": "held",
    "pipeline": [
      {
        "$project": {
          "channel": 1,
          "key": 1,
          "n": 1,
          "why": 1,
          "since": 1,
          "eventId": {"$ifNull": ["$document.eventId", "$_id"]},
          "type": "$document.event.type",
          "acceptTime": "$document.acceptTime"
        }
      }
    ]
  },
  "v_outbox": {
    "viewOn": "conversations",
    "pipeline": [
      {"$match": {"at": {"$exists": true}, "outbox": {"$gt": {}}}},
      {
        "$lookup": {
          "from": "batches",
          "localField": "call.batch",
          "foreignField": "_id",
          "pipeline": [{"$match": {"state": "ready"}}, {"$project": {"_id": 1}}],
          "as": "ready"
        }
      },
      {
        "$project": {
          "channel": 1,
          "key": 1,
          "call.at": 1,
          "call.as": 1,
          "tried": {
            "$cond": [
              {
                "$and": [
                  {"$isArray": "$call.members"},
                  {"$or": [{"$eq": [{"$type": "$call.batch"}, "missing"]}, {"$ne": ["$ready", []]}]}
                ]
              },
              "$call.members",
              []
            ]
          },
          "effect": {"$objectToArray": {"$cond": [{"$eq": [{"$type": "$outbox"}, "object"]}, "$outbox", {}]}}
        }
      },
      {"$unwind": "$effect"},
      {
        "$project": {
          "_id": "$effect.v.id",
          "channel": 1,
          "key": 1,
          "place": "$effect.k",
          "type": "$effect.v.type",
          "way": "$effect.v.way",
          "eventId": "$effect.v.eventId",
          "at": "$effect.v.at",
          "messages": {"$cond": [{"$isArray": "$effect.v.messages"}, {"$size": "$effect.v.messages"}, "$$REMOVE"]},
          "triedAt": {"$cond": [{"$in": ["$effect.k", "$tried"]}, "$call.at", "$effect.v.triedAt"]},
          "as": {
            "$cond": [{"$in": ["$effect.k", "$tried"]}, {"$ifNull": ["$call.as", "multicast"]}, "$effect.v.as"]
          },
          "timer": "$effect.v.timer",
          "runAt": "$effect.v.runAt",
          "cause": "$effect.v.cause",
          "about": "$effect.v.about"
        }
      }
    ]
  },
  "v_timers": {
    "viewOn": "schedule",
    "pipeline": [
      {"$match": {"runAt": {"$type": "date"}}},
      {"$sort": {"runAt": 1}},
      {"$project": {"channel": 1, "key": 1, "name": 1, "runAt": 1, "every": 1, "setBy": 1}}
    ]
  },
  "v_waiting": {
    "viewOn": "held",
    "pipeline": [
      {"$sort": {"channel": 1, "key": 1, "n": 1}},
      {
        "$group": {
          "_id": {"channel": "$channel", "key": "$key"},
          "documents": {"$sum": 1},
          "since": {"$min": "$since"},
          "why": {"$first": "$why"},
          "eventId": {"$first": "$document.eventId"}
        }
      },
      {"$sort": {"since": 1}},
      {
        "$project": {
          "_id": 0,
          "channel": "$_id.channel",
          "key": "$_id.key",
          "documents": 1,
          "since": 1,
          "why": 1,
          "eventId": 1
        }
      }
    ]
  }
};
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

// A view of another version gets this definition.
function makeView(name) {
  var found = find(name);
  var view = views[name];
  if (!found) {
    demand(target.createView(name, view.viewOn, view.pipeline));
    print("made       " + name);
  } else if (found.type === "view") {
    demand(target.runCommand({ collMod: name, viewOn: view.viewOn, pipeline: view.pipeline }));
    print("was there  " + name);
  }
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
Object.keys(views).forEach(makeView);
seed();
print("database " + databaseName + " is ready");
