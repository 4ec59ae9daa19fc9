"""The checker against one that compares every pair, on small random histories."""

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from linesim.judge.checker import judge
from linesim.model.calls import Call
from linesim.model.deliveries import Delivery

CHATS = ("U1", "U2")

# Seeded rather than drawn one by one: thousands of histories in the time of a hundred.
chances = st.randoms(use_true_random=True)


def moment(chance):
    """Few moments, so that many coincide."""
    return float(chance.randint(0, 12))


def deliveries(chance):
    """POSTs of up to five events, some of them several times, in order of their starts."""
    events = [
        {
            "webhookEventId": f"e{number}",
            "source": {"type": "user", "userId": chance.choice(CHATS)},
            "message": {"type": "text", "text": f"t{number}"},
        }
        for number in range(chance.randint(1, 5))
    ]
    made = []
    starts = sorted(moment(chance) for _ in range(chance.randint(0, 9)))
    for number, started in enumerate(starts, start=1):
        event = chance.choice(events)
        made.append(
            Delivery(
                number=number,
                at=started,
                started=started,
                event_ids=(event["webhookEventId"],),
                events=(event,),
                answered=started + chance.randint(0, 3),
                status=chance.choice([200, 200, 503]),
            )
        )
    return made


def calls(chance):
    """Sends of one or two texts, taken or not, in order of their starts."""
    starts = sorted(moment(chance) for _ in range(chance.randint(0, 12)))
    return [call(chance, number, started) for number, started in enumerate(starts, start=1)]


def call(chance, number, started):
    chat, took = chance.choice(CHATS), moment(chance)
    endpoint = chance.choice(["reply", "reply", "push", "push", "profile"])
    texts = [f"t{chance.randint(0, 4)}" for _ in range(chance.randint(1, 2))]
    body = {"messages": [{"type": "text", "text": text} for text in texts]}
    body |= {"replyToken": chance.choice("abc")} if endpoint == "reply" else {"to": chat}
    accepted = chance.random() < 0.7
    return Call(
        number=number,
        started=started,
        at=started,
        endpoint=endpoint,
        method="POST",
        path="",
        request_id="",
        retry_key=chance.choice([None, "k1", "k2"]) if endpoint == "push" else None,
        body=body,
        status=chance.choice([200, 200, 500, None]),
        fault=chance.choice([None, None, "status", "close", "late"]),
        accepted=accepted,
        accepted_at=started + chance.random() * took if accepted else None,
        finished=started + took,
        hung_up=chance.choice([None, None, None, started + took / 2]),
        connection=chance.randint(1, 2),
        chat_id=chat,
    )


class Naive:
    """Every question asked of every pair."""

    def __init__(self, posts, made):
        self.posts, self.made = posts, made
        self.ids = list(dict.fromkeys(id_ for post in posts for id_ in post.event_ids))

    def of(self, id_):
        return [post for post in self.posts if id_ in post.event_ids]

    def event(self, id_):
        return self.of(id_)[0].events[0]

    def taken(self, id_):
        return min((post.answered for post in self.of(id_) if post.status == 200), default=None)

    def said(self, id_):
        event = self.event(id_)
        chat, text = event["source"]["userId"], event["message"]["text"]
        found = [
            call
            for call in self.made
            for message in call.body["messages"]
            if call.accepted and call.endpoint != "profile" and call.chat_id == chat
            if message["text"] == text
        ]
        return sorted(found, key=lambda call: (call.accepted_at, call.number))

    def excused(self, id_):
        said = self.said(id_)
        if [call.endpoint for call in said] != ["reply", "push"]:
            return False
        reply, push = said
        return push.started > min(post.started for post in self.of(id_)) + 3 and (
            not self.told(reply)
            or any(
                used is reply and call.started < push.started and not self.heard(used, call)
                for used, call in self.repeats()
            )
        )

    def disordered(self, id_):
        mine = self.said(id_)
        for other in self.ids:
            same = self.event(other)["source"] == self.event(id_)["source"]
            theirs, taken = self.said(other), self.taken(other)
            if same and mine and theirs and taken is not None:
                before = taken < min(post.started for post in self.of(id_))
                if before and mine[0].accepted_at < theirs[0].accepted_at:
                    return True
        return False

    def told(self, call):
        return call.status == 200 and call.fault != "status" and call.hung_up is None

    def heard(self, first, later):
        same = first.connection == later.connection
        return self.told(first) and first.finished <= later.started and same

    def repeats(self):
        found = []
        for token in "abc":
            replies = [call for call in self.made if call.body.get("replyToken") == token]
            for used in [call for call in replies if call.accepted][:1]:
                found += [
                    (used, call)
                    for call in replies
                    if call is not used and call.started > used.accepted_at
                ]
        return found

    def overlapped(self):
        return {
            later.number
            for first, later in combinations(self.made, 2)
            if first.status is not None and first.hung_up is None
            if first.finished - first.started < 10 and later.started < first.finished
        }


@settings(max_examples=600, deadline=None)
@given(chances)
def test_the_checker_finds_what_looking_at_every_pair_finds(chance):
    posts, made = deliveries(chance), calls(chance)
    naive, report = Naive(posts, made), judge(posts, made, token_seconds=3)
    doubled = {id_ for id_ in naive.ids if len(naive.said(id_)) > 1}
    excused = {id_ for id_ in doubled if naive.excused(id_)}
    assert report.events_sent == len(naive.ids)
    assert report.accepted == sum(naive.taken(id_) is not None for id_ in naive.ids)
    assert {each.event_id for each in report.excepted} == excused
    assert {each.event_id for each in report.answered_twice} == doubled - excused
    assert {each.event_id for each in report.unanswered} == {
        id_ for id_ in naive.ids if naive.taken(id_) is not None and not naive.said(id_)
    }
    once = {id_ for id_ in naive.ids if len(naive.said(id_)) == 1}
    assert report.answered_once + report.answered_unaccepted == len(once)
    assert report.answered_once == sum(naive.taken(id_) is not None for id_ in once)
    assert {each.later for each in report.order_violations} == {
        id_ for id_ in naive.ids if naive.disordered(id_)
    }
    assert {each.second for each in report.overlapping} == naive.overlapped()
    assert report.used_tokens == len(naive.repeats())
    assert len(report.used_tokens_again) == sum(naive.heard(*pair) for pair in naive.repeats())


@settings(max_examples=300, deadline=None)
@given(chances)
def test_chats_never_reached_are_found_by_following_each_message(chance):
    made = calls(chance)
    for each in made:
        if chance.random() < 0.4:
            each.unreached = ((each.chat_id, chance.choice(["no friend", "blocked"])),)
    sends = [each for each in made if each.accepted and each.endpoint != "profile"]
    sends.sort(key=lambda each: (each.accepted_at, each.number))
    lost = []
    for each in sends:
        for message in each.body["messages"]:
            same = [one for one in lost if one[:2] == (each.chat_id, message["text"])]
            if each.unreached:
                lost.append((each.chat_id, message["text"], each.number, each.unreached[0][1]))
            elif same:
                lost.remove(same[0])
    report = judge([], made)
    told = [*report.never_reached, *report.closed_chats]
    assert {(one.chat, one.call, one.reason) for one in told} == {
        (chat, number, reason) for chat, _, number, reason in lost
    }
    assert {one.reason for one in report.never_reached} <= {"no friend"}
    assert {one.reason for one in report.closed_chats} <= {"blocked"}
