"""The terms on the overview: the texts under the pointer, and the list at the end."""

from __future__ import annotations

from linedesk.runtime.language import mark

# The boxes of the picture.
BOXES = {
    "line": mark("LINE sends a webhook for each message of a user."),
    "frontdesk": mark("The front desk checks a webhook, stores its events and answers LINE."),
    "recvq": mark("recvq is the queue in MongoDB: all events in the order of their arrival."),
    "dispatcher": mark(
        "The dispatcher reads recvq and gives each conversation's events to a thread, one at a "
        "time."
    ),
    "threads": mark("Each thread runs the bot's handler for one event."),
    "gate": mark("The gate spaces the calls of LINE so that LINE's rate limits hold."),
    "api": mark("LINE's API takes replies and pushes."),
    "spool": mark("The spool is a file that stores events while MongoDB is down."),
    "timers": mark("The dispatcher puts the event of a timer into recvq when the timer is due."),
    "held": mark("Events that wait long, or are paused, are set aside here in order."),
    "letters": mark("A dead letter is an event or a send that was given up. It can be replayed."),
    "outbox": mark("The outboxes have decided sends that LINE has not taken yet."),
}
WORDS = {
    mark("Unfinished"): mark(
        "Events that are stored and not decided yet: not read, in progress, or held."
    ),
    mark("Answers to send"): mark(
        "Decided sends that LINE has not taken yet. The time below is the wait of the oldest "
        "send's event."
    ),
    mark("Not read yet"): mark("Events in recvq that the dispatcher has not read."),
    mark("Webhook to stored"): mark(
        "From the arrival of a webhook to the moment when its events are stored."
    ),
    mark("Stored to handler"): mark("From the arrival of an event to the start of its handler."),
    mark("Handler"): mark("How long the bot's handler runs."),
    mark("Call of LINE"): mark(
        "The time until LINE answers a call, and whether LINE takes calls at all."
    ),
    mark("Queue retention left"): mark(
        "How long recvq and the oplog keep unfinished events at the present rate. The rate is "
        "that of the last hour, or since the dispatcher took the lead."
    ),
    mark("p50, p90, p99"): mark(
        "50, 90 and 99 percent of the values of the last minute are at most this value."
    ),
    mark("Try"): mark("How often the handler was called for the event, of HANDLER_TRIES."),
    mark("Release"): mark(
        "Gives up the event or send that blocks a conversation. It becomes a dead letter, and the "
        "next events are handled."
    ),
    mark("Pause"): mark("New events are held until you resume."),
    mark("Bot version"): mark(
        "The version of the bot in a worker process. Only workers of one version get jobs: the "
        "version with most threads."
    ),
    mark("Lease"): mark("The dispatcher that holds the lease works; others are on standby."),
}
