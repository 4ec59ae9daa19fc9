"""Rich menus: each act has the name of its endpoint.

Callers hold the simulator's lock. LINE needs seconds for bulks and batches, the simulator none; a
batch is `ongoing` for three all the same.
"""

import re
from functools import partial

from linemessages import Finding
from linesim.http.answers import Answer, json_answer, moment
from linesim.model import errors, ids
from linesim.model.calls import Call
from linesim.model.errors import LineError
from linesim.model.media import Medium
from linesim.model.menus import Links, Menu
from linesim.model.platform import Platform
from linesim.model.tokens import UUID

MOST = 1_000  # of menus, and of aliases
MOST_IMAGE_BYTES = 1024 * 1024
BATCH_SECONDS = 3.0
PNG = b"\x89PNG\r\n\x1a\n"
# The JPEG segments that tell a size; the three left out are tables.
FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
ALIAS = re.compile("[a-z0-9_-]{1,32}")

refused = partial(LineError, details=())


def create_menu(platform: Platform, call: Call) -> Answer:
    if len(platform.menus.menus) >= MOST:
        raise refused(400, "The maximum number of rich menus is reached")  # linesim's own text
    return json_answer({"richMenuId": platform.menus.add(call.body)})


def menu(platform: Platform, call: Call, rich_menu_id: str) -> Answer:
    _found(platform, rich_menu_id)
    return json_answer(platform.menus.view(rich_menu_id))


def menus(platform: Platform, call: Call) -> Answer:
    return json_answer({"richmenus": [platform.menus.view(one) for one in platform.menus.menus]})


def delete_menu(platform: Platform, call: Call, rich_menu_id: str) -> Answer:
    _found(platform, rich_menu_id)
    platform.menus.delete(rich_menu_id)
    return json_answer({})


def menu_image(platform: Platform, call: Call, rich_menu_id: str) -> Answer:
    image = _found(platform, rich_menu_id).image
    if image is None:
        raise errors.not_found()
    return Answer(200, image.data, image.media_type)


def set_menu_image(platform: Platform, call: Call, rich_menu_id: str, image: Medium) -> Answer:
    menu = _found(platform, rich_menu_id)
    if menu.image is not None:
        raise LineError(400, "An image has already been uploaded to the richmenu")
    size = menu.written["size"]
    if image.size > MOST_IMAGE_BYTES or _pixels(image.data) != (size["width"], size["height"]):
        raise LineError(400, "The image size is not allowed for richmenu")
    menu.image = image
    return json_answer({})


def _pixels(data: bytes) -> tuple[int, int] | None:
    """Width and height of a PNG or JPEG; None for other data."""
    if data.startswith(PNG) and data[12:16] == b"IHDR":
        return int.from_bytes(data[16:20]), int.from_bytes(data[20:24])
    at = 2 if data.startswith(b"\xff\xd8\xff") else len(data)
    while at + 9 <= len(data) and data[at] == 0xFF:
        if data[at + 1] in FRAMES:
            return int.from_bytes(data[at + 7 : at + 9]), int.from_bytes(data[at + 5 : at + 7])
        at += 2 + int.from_bytes(data[at + 2 : at + 4])
    return None


def default_menu(platform: Platform, call: Call) -> Answer:
    if platform.menus.default is None:
        raise refused(404, "no default richmenu")
    return json_answer({"richMenuId": platform.menus.default})


def set_default_menu(platform: Platform, call: Call, rich_menu_id: str | None = None) -> Answer:
    _check_shown(platform, rich_menu_id)
    platform.menus.show(rich_menu_id)
    return json_answer({})


clear_default_menu = set_default_menu


def _found(platform: Platform, menu_id: str) -> Menu:
    if menu_id not in platform.menus.menus:
        raise errors.not_found()
    return platform.menus.menus[menu_id]


def _check_shown(platform: Platform, menu_id: str | None) -> None:
    """A menu to show needs an image; None is no menu."""
    if menu_id is not None and _found(platform, menu_id).image is None:
        raise refused(400, "must upload richmenu image before applying it to user")


def create_menu_alias(platform: Platform, call: Call) -> Answer:
    alias = call.body["richMenuAliasId"]
    if alias in platform.menus.aliases:
        raise refused(400, "conflict richmenu alias id")
    if len(platform.menus.aliases) >= MOST:
        raise refused(400, "The maximum number of rich menu aliases is reached")  # linesim's own
    return _lead(platform, call, alias)


def update_menu_alias(platform: Platform, call: Call, rich_menu_alias_id: str) -> Answer:
    _aliased(platform, rich_menu_alias_id)
    return _lead(platform, call, rich_menu_alias_id)


def _lead(platform: Platform, call: Call, alias: str) -> Answer:
    menu = platform.menus.menus.get(call.body["richMenuId"])
    if menu is None or menu.image is None:
        raise refused(400, "richmenu not found")
    platform.menus.aliases[alias] = call.body["richMenuId"]
    return json_answer({})


def menu_alias(platform: Platform, call: Call, rich_menu_alias_id: str) -> Answer:
    return json_answer(_aliased(platform, rich_menu_alias_id))


def menu_aliases(platform: Platform, call: Call) -> Answer:
    return json_answer({"aliases": [_aliased(platform, one) for one in platform.menus.aliases]})


def delete_menu_alias(platform: Platform, call: Call, rich_menu_alias_id: str) -> Answer:
    _aliased(platform, rich_menu_alias_id)
    del platform.menus.aliases[rich_menu_alias_id]
    return json_answer({})


def _aliased(platform: Platform, alias: str) -> dict[str, str]:
    if not ALIAS.fullmatch(alias):
        raise errors.invalid_parameter("richMenuAliasId")
    if alias not in platform.menus.aliases:
        raise refused(404, "richmenu alias not found")
    return {"richMenuAliasId": alias, "richMenuId": platform.menus.aliases[alias]}


def user_menu(platform: Platform, call: Call, user_id: str) -> Answer:
    """The user's own menu, not the default; 404 for users who are not friends."""
    _check_user(platform, user_id)
    user, menu_id = platform.world.users.get(user_id), platform.menus.links.get(user_id)
    if menu_id is None or user is None or not user.takes_multicasts:
        raise refused(404, "the user has no richmenu")
    return json_answer({"richMenuId": menu_id})


def link_menu(
    platform: Platform, call: Call, user_id: str, rich_menu_id: str | None = None
) -> Answer:
    _check_user(platform, user_id)
    _check_shown(platform, rich_menu_id)
    platform.menus.link({user_id: rich_menu_id})
    return json_answer({})


unlink_menu = link_menu


def _check_user(platform: Platform, user_id: str, where: str | None = None) -> None:
    """`where` is its place in the body; None: it is in the path."""
    if user_id not in platform.world.users and not ids.USER_ID.fullmatch(user_id):
        raise errors.invalid_property(where) if where else errors.invalid_parameter("userId")


def link_menus(platform: Platform, call: Call) -> Answer:
    for place, user_id in enumerate(call.body["userIds"]):
        _check_user(platform, user_id, f"'userIds[{place}]'")
    menu_id = call.body.get("richMenuId")
    if menu_id is not None and menu_id not in platform.menus.menus:
        raise refused(404, "richmenu not found")
    _check_shown(platform, menu_id)
    platform.menus.link(dict.fromkeys(call.body["userIds"], menu_id))
    return json_answer({}, status=202)


unlink_menus = link_menus


def batch_menus(platform: Platform, call: Call) -> Answer:
    key = call.body.get("resumeRequestKey")
    platform.menus.replace(call.request_id, _replaced(platform, call), key=key)
    return json_answer({}, status=202)


def validate_batch(platform: Platform, call: Call) -> Answer:
    _replaced(platform, call)
    return json_answer({})


def _replaced(platform: Platform, call: Call) -> Links:
    """The menus of a batch, each with the one that replaces it, or None."""
    menus, operations = platform.menus.menus, call.body["operations"]
    unknown, bare = [], []
    for place, one in enumerate(operations):
        for way in sorted({"from", "to"} & one.keys()):
            where, menu_id = f"operations[{place}].{way}", one[way]
            if menu_id not in menus:
                unknown.append(Finding(f"Richmenu ({menu_id}) is not found", where))
            elif way == "to" and menus[menu_id].image is None:
                told = f"'to' richmenu ({menu_id}) must have image but it doesn't"
                bare.append(Finding(told, where))
    if unknown or bare:
        raise errors.invalid_body(*(unknown or bare), status=404 if unknown else 400)
    if any(one["type"] == "unlinkAll" for one in operations):
        return dict.fromkeys(menus)
    return {one["from"]: one.get("to") for one in operations}


def menu_progress(platform: Platform, call: Call) -> Answer:
    """A batch has failed if it met users who are no longer friends."""
    request_id = call.query.get("requestId", "")
    if not UUID.fullmatch(request_id):
        raise errors.invalid_parameter("requestId")
    if (batch := platform.menus.batches.get(request_id)) is None:
        raise errors.not_found()
    accepted, ended = {"acceptedTime": moment(batch.at)}, batch.at + BATCH_SECONDS
    if platform.clock.time() < ended:
        return json_answer({"phase": "ongoing", **accepted})
    phase = "failed" if batch.left else "succeeded"
    return json_answer({"phase": phase, **accepted, "completedTime": moment(ended)})
