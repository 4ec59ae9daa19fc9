"""What the words on the overview mean: the texts that a pointer shows, and the list at its end."""

from __future__ import annotations

# The boxes of the picture.
BOXES = {
    "line": "LINE sends a webhook for each message of a user.",
    "frontdesk": "The front desk checks a webhook, stores its events and answers LINE.",
    "recvq": "recvq is the queue in MongoDB: all events in the order of their arrival.",
    "dispatcher": "The dispatcher reads recvq and gives each conversation's events to a thread, "
    "one at a time.",
    "threads": "Each thread runs the bot's handler for one event.",
    "gate": "The gate spaces the calls of LINE so that LINE's rate limits hold.",
    "api": "LINE's API takes replies and pushes.",
    "spool": "The spool is a file that stores events while MongoDB does not.",
    "scheduler": "The scheduler puts the event of a timer into recvq when the timer is due.",
    "held": "Events that wait long, or are paused, are set aside here in order; nothing is lost.",
    "letters": "A dead letter is an event or a send that was given up. It can be replayed.",
    "outbox": "The outboxes have decided sends that LINE has not taken yet.",
}
# What waits for a turn at the gate, by its class.
CLASS_WORDS = {
    "live": "with a free reply",
    "chat": "push to its own chat",
    "other": "late or to another chat",
    "idle": "reading only",
}
WORDS = {
    "Unfinished": "Events that are stored and not decided yet: not read, in progress, or held.",
    "Answers to send": "Decided sends that LINE has not taken yet; below since when the event "
    "of the oldest one waits.",
    "Not read yet": "Events in recvq that the dispatcher has not read.",
    "Webhook to stored": "From the arrival of a webhook to the moment when its events are stored.",
    "Stored to handler": "From the arrival of an event to the start of its handler.",
    "Handler": "How long the bot's handler runs.",
    "Call of LINE": "How long LINE takes to answer a call, and whether it takes calls at all.",
    "Queue retention left": "How long recvq and the oplog keep unfinished events at the present "
    "rate. The rate is that of the last hour, or since the dispatcher took the lead.",
    "p50, p90, p99": "50, 90 and 99 % of the values of the last minute are not larger.",
    "Try": "How often the handler was called for the event, of HANDLER_TRIES.",
    "Release": "Gives up what a conversation is stuck on: it becomes a dead letter, and the events "
    "behind it are handled.",
    "Pause": "New events are held until you resume.",
    "Bot version": "The version of the bot in a worker process. Only workers of one version get "
    "jobs: the version with most threads.",
    "Lease": "The dispatcher that holds the lease works; others are on standby.",
}
