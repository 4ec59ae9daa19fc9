"""Rich menus by HTTP: which one a user sees, what LINE refuses, and batches with their progress."""

import uuid

import pytest
import requests

MENU = "/v2/bot/richmenu"
DEFAULT = "/v2/bot/user/all/richmenu"
UNKNOWN = f"richmenu-{'0' * 32}"
NOBODY = f"U{'0' * 32}"
WRITTEN = {
    "size": {"width": 800, "height": 270},
    "selected": True,
    "name": "予約",
    "chatBarText": "メニュー",
    "areas": [
        {
            "bounds": {"x": 0, "y": 0, "width": 800, "height": 270},
            "action": {"type": "richmenuswitch", "richMenuAliasId": "next", "data": "to next"},
        }
    ],
}
NO_IMAGE = "must upload richmenu image before applying it to user"


def png(width=800, height=270):
    return b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + width.to_bytes(4) + height.to_bytes(4)


def jpeg(width=800, height=270):
    """Before the size come another segment, and a table whose marker is close to a size's."""
    start = b"\xff\xd8\xff\xe0\0\x04JF\xff\xc4\0\x03\0\xff\xc2\0\x11\x08"
    return start + height.to_bytes(2) + width.to_bytes(2) + b"\x03"


def upload(line, menu, data, media_type="image/png"):
    url, headers = f"{line.sim.url}{MENU}/{menu}/content", {"content-type": media_type}
    return line.session.post(url, data=data, headers=headers, timeout=10)


def delete(line, path):
    return line.session.delete(line.sim.url + path, timeout=10)


@pytest.fixture
def new(line):
    """Makes a menu, with an image unless told otherwise, and returns its id."""

    def new(*, bare=False):
        menu = line.post(MENU, WRITTEN).json()["richMenuId"]
        assert bare or upload(line, menu, png()).json() == {}
        return menu

    return new


def seen(sim, user):
    answer = requests.get(f"{sim.url}/sim/users/{user.user_id}/menu", timeout=10)
    return (answer.json()["menu"] or {}).get("richMenuId")


def own(user):
    return f"/v2/bot/user/{user.user_id}/richmenu"


def refusal(answer):
    body = answer.json()
    if details := body.get("details"):
        return answer.status_code, details[0]["property"], details[0]["message"]
    return answer.status_code, body["message"]


def test_a_user_sees_the_own_menu_before_the_default(sim, line, new, taro, hanako):
    first, second, bare = new(), new(), new(bare=True)
    assert refusal(line.post(f"{DEFAULT}/{bare}", None)) == (400, NO_IMAGE)
    assert refusal(line.post(f"{own(taro)}/{bare}", None)) == (400, NO_IMAGE)
    assert refusal(line.get(DEFAULT)) == (404, "no default richmenu")
    line.post(f"{DEFAULT}/{first}", None)
    line.post(f"{own(taro)}/{second}", None)
    assert (seen(sim, taro), seen(sim, hanako)) == (second, first)
    assert line.get(own(taro)).json() == {"richMenuId": second}
    assert refusal(line.get(own(hanako))) == (404, "the user has no richmenu")
    delete(line, own(taro))
    line.post(f"{own(hanako)}/{first}", None)
    assert (seen(sim, taro), seen(sim, hanako)) == (first, first)
    delete(line, f"{MENU}/{first}")
    assert (seen(sim, taro), seen(sim, hanako), line.get(DEFAULT).status_code) == (None, None, 404)
    shown = [one["richMenuId"] for one in line.get(f"{MENU}/list").json()["richmenus"]]
    assert shown == [second, bare]


def test_only_friends_are_linked_and_line_reports_no_other(sim, line, new, taro, hanako):
    menu = new()
    sim.block(hanako)
    assert line.post(f"{own(hanako)}/{menu}", None).status_code == 200
    users = [taro.user_id, hanako.user_id, NOBODY]
    assert line.post(f"{MENU}/bulk/link", {"richMenuId": menu, "userIds": users}).status_code == 202
    assert sim.platform.menus.links == {taro.user_id: menu}
    assert line.post(f"{MENU}/bulk/unlink", {"userIds": users}).status_code == 202
    assert sim.platform.menus.links == {}
    wrong = line.post(f"{MENU}/bulk/unlink", {"userIds": [taro.user_id, "taro"]})
    told = "The property, 'userIds[1]', in the request body is invalid (line: -, column: -)"
    assert refusal(wrong) == (400, told)
    told = "The value for the 'userId' parameter is invalid"
    assert refusal(line.get("/v2/bot/user/taro/richmenu")) == (400, told)


def test_an_image_has_the_size_of_its_menu_and_stays(sim, line, new):
    menu = new(bare=True)
    assert line.get(f"{MENU}/{menu}/content").status_code == 404
    for data in (b"", b"GIF89a", png(800, 271), jpeg(801), png() + bytes(1024 * 1024)):
        told = (400, "The image size is not allowed for richmenu")
        assert refusal(upload(line, menu, data)) == told
    assert upload(line, menu, png(), "image/gif").status_code == 415
    assert upload(line, menu, bytes(3 * 1024 * 1024)).status_code == 413
    assert upload(line, menu, jpeg(), "image/jpeg").json() == {}
    told = (400, "An image has already been uploaded to the richmenu")
    assert refusal(upload(line, menu, png())) == told
    shown = requests.get(f"{sim.url}/sim/menus/{menu}/image", timeout=10)
    for answer in (line.get(f"{MENU}/{menu}/content"), shown):
        assert (answer.content, answer.headers["content-type"]) == (jpeg(), "image/jpeg")


def test_an_alias_leads_to_a_menu_until_that_is_deleted(sim, line, new, taro):
    first, second, bare = new(), new(), new(bare=True)
    switch, alias = sim.platform.menus.switch, f"{MENU}/alias"
    body = {"richMenuAliasId": "next", "richMenuId": first}
    assert line.post(alias, body).json() == {}
    assert refusal(line.post(alias, body)) == (400, "conflict richmenu alias id")
    for menu in (bare, UNKNOWN):
        refused = line.post(f"{alias}/next", {"richMenuId": menu})
        assert refusal(refused) == (400, "richmenu not found")
    invalid = line.post(f"{alias}/next", {"richMenuId": "1"})
    assert refusal(invalid) == (400, "richMenuId", "invalid richMenuId")
    line.post(f"{alias}/next", {"richMenuId": second})
    assert line.get(f"{alias}/list").json() == {"aliases": [body | {"richMenuId": second}]}
    assert (switch(taro.user_id, "next"), seen(sim, taro)) == ("SUCCESS", second)
    assert switch(NOBODY, "next") == "FAILED"
    delete(line, f"{MENU}/{second}")
    assert switch(taro.user_id, "next") == "RICHMENU_NOTFOUND"
    delete(line, f"{alias}/next")
    assert switch(taro.user_id, "next") == "RICHMENU_ALIAS_ID_NOTFOUND"
    assert refusal(line.get(f"{alias}/next")) == (404, "richmenu alias not found")
    assert line.get(f"{alias}/Next").status_code == 400


def test_a_batch_replaces_menus_side_by_side_and_a_retry_does_the_rest(
    sim, line, new, clock, taro, hanako
):
    first, second, third = new(), new(), new()
    sim.platform.menus.link({taro.user_id: first, hanako.user_id: second})
    sim.block(hanako)
    chain = [(first, second), (second, third)]
    operations = [{"type": "link", "from": one, "to": other} for one, other in chain]
    body = {"operations": operations, "resumeRequestKey": "once"}

    def ask():
        answer = line.post(f"{MENU}/batch", body)
        assert answer.status_code == 202
        query = f"?requestId={answer.headers['x-line-request-id']}"
        return lambda: line.get(f"{MENU}/progress/batch{query}").json()

    progress = ask()
    assert (seen(sim, taro), seen(sim, hanako)) == (second, second)
    assert progress() == {"phase": "ongoing", "acceptedTime": "2027-01-15T08:00:00.000Z"}
    clock.advance(3)
    ended = {"phase": "failed", "completedTime": "2027-01-15T08:00:03.000Z"}
    assert progress() == {"acceptedTime": "2027-01-15T08:00:00.000Z"} | ended
    sim.follow(hanako)
    again = ask()
    assert (seen(sim, taro), seen(sim, hanako)) == (second, third)
    clock.advance(3)
    assert again()["phase"] == "succeeded"
    clock.advance(14 * 24 * 3600)
    assert again() == {"message": "Not found"}
    assert line.get(f"{MENU}/progress/batch?requestId={uuid.uuid4()}").status_code == 404
    assert line.get(f"{MENU}/progress/batch").status_code == 400


def test_a_batch_names_menus_that_are_there(sim, line, new, taro):
    menu, bare = new(), new(bare=True)
    sim.platform.menus.link({taro.user_id: menu})
    for to, told in (
        (UNKNOWN, (404, "operations[0].to", f"Richmenu ({UNKNOWN}) is not found")),
        (bare, (400, "operations[0].to", f"'to' richmenu ({bare}) must have image but it doesn't")),
    ):
        body = {"operations": [{"type": "link", "from": menu, "to": to}]}
        for path in ("batch", "validate/batch"):
            assert refusal(line.post(f"{MENU}/{path}", body)) == told
    assert line.post(f"{MENU}/batch", {"operations": [{"type": "unlinkAll"}]}).status_code == 202
    assert seen(sim, taro) is None


def test_there_are_a_thousand_menus_and_aliases_at_most(sim, line, new):
    menu = new()
    with sim.platform.watch.changing():
        for number in range(999):
            sim.platform.menus.aliases[f"old-{number}"] = menu
            sim.platform.menus.add(WRITTEN)
    assert line.post(MENU, WRITTEN).status_code == 400
    bodies = [{"richMenuAliasId": one, "richMenuId": menu} for one in ("a", "b")]
    assert [line.post(f"{MENU}/alias", body).status_code for body in bodies] == [200, 400]


def test_an_open_page_learns_of_a_changed_menu(sim, line, new, taro):
    with requests.get(f"{sim.url}/sim/stream", stream=True, timeout=10) as stream:
        lines = stream.iter_lines()
        next(lines)
        line.post(f"{own(taro)}/{new()}", None)
        assert b"event: menu" in (next(lines), next(lines))
