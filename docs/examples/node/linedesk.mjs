// The worker contract of linedesk (docs/reference/worker-contract.md) for Node 20 and newer.
// Copy this file beside your bot; bot.mjs shows how to use it.

import { Console } from "node:console";
import { createInterface } from "node:readline";

const CONTRACT = 1;

// Standard output carries decisions only, so console.log writes to standard error, which is logged.
globalThis.console = new Console(process.stderr);

/** Throw it where another try would fail, too: the event becomes a dead letter at once. */
export class LastingError extends Error {
  name = "LastingError";
}

/** One conversation during one call of a handler. It notes what to do; linedesk does it. */
export class Talk {
  #actions = [];
  #began = performance.now();
  #job;
  #state;

  constructor(job, start) {
    this.#job = job;
    this.#state = job.state;
    this.data = structuredClone(job.data); // change it as you like; it is stored with the decision
    this.settings = start.settings;
    this.secrets = start.secrets;
    this.eventId = job.eventId;
    this.key = job.key; // the user, group or room
    this.profile = job.profile;
    this.quota = job.quota;
    this.try = job.try; // 1 for the first
  }

  /** The time by the dispatcher's clock. */
  get now() {
    return new Date(Date.parse(this.#job.now) + performance.now() - this.#began);
  }

  /** Messages are texts or message objects of LINE, five at most in one call. */
  reply(...messages) {
    this.#actions.push({ do: "reply", messages });
  }

  push(...messages) {
    this.#actions.push({ do: "push", messages });
  }

  pushTo(to, ...messages) {
    this.#actions.push({ do: "push", to, messages });
  }

  get state() {
    return this.#state;
  }

  set state(state) {
    this.#state = state;
    this.#actions.push({ do: "state", state });
  }

  /** Enter a state that ends by itself. */
  expect(state, seconds) {
    this.#state = state;
    this.#actions.push({ do: "expect", state, within: seconds, now: this.now.toISOString() });
  }

  after(seconds, name, data = {}) {
    this.#actions.push({ do: "after", seconds, name, data, now: this.now.toISOString() });
  }

  at(time, name, data = {}) {
    this.#actions.push({ do: "at", time: time.toISOString(), name, data });
  }

  cancel(name) {
    this.#actions.push({ do: "cancel", name });
  }

  /** What linedesk is to do. Data that did not change is left out. */
  get decision() {
    const isSame = JSON.stringify(this.data) === JSON.stringify(this.#job.data);
    return { outcome: "decided", actions: this.#actions, ...(isSame ? {} : { data: this.data }) };
  }
}

/** Runs a bot: `rules` are those of the contract, each with its `handler(event, talk)`. */
export async function run({ version, rules, perMember = false }) {
  const handlers = new Map(rules.map((rule) => [rule.name, rule.handler]));
  let start;
  for await (const line of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
    const message = JSON.parse(line);
    if (message.type === "start") {
      start = message;
      const table = rules.map(({ handler, ...rule }) => rule);
      send({ type: "hello", contract: CONTRACT, version, rules: { perMember, rules: table } });
    } else if (message.type === "job") {
      send({ type: "decision", attempt: message.attempt, ...(await decide(message)) });
    }
  }

  async function decide(job) {
    const talk = new Talk(job, start);
    try {
      // A rule with `gather` gets the list of events.
      await handlers.get(job.rule)(job.together ? job.events : job.events[0], talk);
      return talk.decision;
    } catch (error) {
      return failed(error);
    }
  }
}

/** `what` and `place` go to the log, so they must not quote a user; the traceback does not. */
function failed(error) {
  const stack = error instanceof Error ? error.stack : String(error);
  const place = /([^\s()]+:\d+):\d+\)?$/m.exec(stack)?.[1] ?? "-";
  const lasting = error instanceof LastingError;
  const comesAgain = error instanceof TypeError || error instanceof ReferenceError;
  return { outcome: "failed", what: error?.name ?? "Error", place, traceback: stack, lasting, comesAgain };
}

function send(message) {
  process.stdout.write(`${JSON.stringify(message)}\n`);
}
