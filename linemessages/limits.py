"""What LINE's reference says of single properties and the OpenAPI does not.

The headings of the reference's "Message objects" and "Action objects" and of each request are the
sources, with docs/messaging-api/flex-message-layout for sizes. A property that is not here is
checked by the OpenAPI alone. What "should" be so, such as an encoded URL, is no limit.
"""

from __future__ import annotations

from collections.abc import Mapping

from linemessages.finding import Check
from linemessages.values import (
    LINKS,
    MOST,
    colour,
    items,
    number,
    or_unlimited,
    pattern,
    ratio,
    size,
    text,
    url,
    visible,
)

REQUIRED: Mapping[str, tuple[str, ...]] = {
    "QuickReply": ("items",),
    "QuickReplyItem": ("type", "action"),
    "Emoji": ("index", "productId", "emojiId"),
    "ImagemapVideo": ("originalContentUrl", "previewImageUrl", "area"),
    "ImagemapExternalLink": ("linkUri", "label"),
    "FlexBoxLinearGradient": ("angle", "startColor", "endColor"),
    "FlexSpan": ("text",),
    "DatetimePickerAction": ("data", "mode"),
    "MessageAction": ("text",),
    "PostbackAction": ("data",),
    "URIAction": ("uri",),
    "AltUri": ("desktop",),
    "CameraAction": ("label",),
    "CameraRollAction": ("label",),
    "LocationAction": ("label",),
    "AudienceRecipient": ("audienceGroupId",),
    "RedeliveryRecipient": ("requestId",),
    **{f"{kind}DemographicFilter": ("oneOf",) for kind in ("Gender", "AppType", "Area")},
    "CouponCreateRequest": ("reward",),
    "CouponDiscountRewardRequest": ("priceInfo",),
    "CouponCashBackRewardRequest": ("priceInfo",),
    **{f"{kind}FixedPriceInfoRequest": ("fixedAmount",) for kind in ("CashBack", "Discount")},
    **{f"{kind}PercentagePriceInfoRequest": ("percentage",) for kind in ("CashBack", "Discount")},
    "DiscountExplicitPriceInfoRequest": ("originalPrice", "priceAfterDiscount"),
    "RichMenuRequest": ("size", "selected", "name", "chatBarText", "areas"),
    "RichMenuSize": ("width", "height"),
    "RichMenuArea": ("bounds", "action"),
    "RichMenuBounds": ("x", "y", "width", "height"),
    "RichMenuSwitchAction": ("richMenuAliasId", "data"),
}

# Numbers of entries: the least and the most.
COUNTS: Mapping[str, tuple[int, int | None]] = {
    "TextMessage.emojis": (0, 20),
    "QuickReply.items": (1, 13),
    "ImagemapMessage.actions": (0, 50),
    "ButtonsTemplate.actions": (1, 4),
    "ConfirmTemplate.actions": (2, 2),
    "CarouselTemplate.columns": (1, 10),
    "CarouselColumn.actions": (1, 3),
    "ImageCarouselTemplate.columns": (1, 10),
    "FlexCarousel.contents": (1, 12),
    **{f"{kind}DemographicFilter.oneOf": (1, None) for kind in ("Gender", "AppType", "Area")},
    **{
        f"Operator{kind}.{name}": (1, None)
        for kind in ("Recipient", "DemographicFilter")
        for name in ("and", "or")
    },
    # LINE takes none at all, and areas that end beyond the menu.
    "RichMenuRequest.areas": (0, 20),
}

ALT_TEXT = text(1_500)
LINK = url(1_000, LINKS)
AREA = number(0, MOST, whole=True)
STEPS = ("xs", "sm", "md", "lg", "xl", "xxl")
SPACE = size("none", *STEPS)
PADDING = size("none", *STEPS, percent=True)
OFFSET = size("none", *STEPS, percent=True, negative=True)
FONT = size("xxs", *STEPS, "3xl", "4xl", "5xl")
EXTENT = size(percent=True)
FLEX = number(0, MOST, whole=True)
RATIO_WORDS = pattern("rectangle|square", "Must be rectangle or square")
FIT_WORDS = pattern("cover|contain", "Must be cover or contain")

UNITS = items(pattern("[A-Za-z0-9_]{1,30}", "Must be 1 to 30 of a-z, A-Z, 0-9 and _"), 0, 1)
AMOUNT = number(1, MOST, whole=True)

# Flex properties mean the same in each component.
FLEX_VALUES: Mapping[str, Check] = {
    "flex": FLEX,
    "maxLines": FLEX,
    "margin": SPACE,
    "spacing": SPACE,
    **dict.fromkeys(("offsetTop", "offsetBottom", "offsetStart", "offsetEnd"), OFFSET),
    **dict.fromkeys(
        ("paddingAll", "paddingTop", "paddingBottom", "paddingStart", "paddingEnd"), PADDING
    ),
    **dict.fromkeys(("width", "height", "maxWidth", "maxHeight"), EXTENT),
    **dict.fromkeys(
        ("color", "backgroundColor", "borderColor", "separatorColor"),
        colour,
    ),
    **dict.fromkeys(("startColor", "endColor", "centerColor"), colour),
    "borderWidth": size("none", "light", "normal", "medium", "semi-bold", "bold"),
    "cornerRadius": SPACE,
    "lineSpacing": size(),
    "aspectRatio": ratio,
    "angle": pattern(
        r"(?:[12]?\d?\d|3[0-5]\d)(?:\.\d+)?deg", "Must be an angle from 0deg to below 360deg"
    ),
    "centerPosition": pattern(
        r"(?:\d?\d(?:\.\d+)?|100(?:\.0+)?)%", "Must be a percentage from 0% to 100%"
    ),
    "url": url(),
    "previewUrl": url(),
    "text": text(MOST, 0),
    "size": FONT,
}
MENU_ID = pattern("richmenu-[0-9a-f]{32}", "invalid richMenuId")

VALUES: Mapping[str, Check] = {
    "Sender.name": text(20),
    "Sender.iconUrl": url(),
    "QuickReplyItem.type": pattern("action", "Must be action"),
    "QuickReplyItem.imageUrl": url(),
    "TextMessage.text": text(5_000),
    "TextMessageV2.text": text(5_000),
    "Emoji.index": number(0, 5_000, whole=True),
    "StickerMessage.packageId": text(MOST),
    "StickerMessage.stickerId": text(MOST),
    "ImageMessage.originalContentUrl": url(),
    "ImageMessage.previewImageUrl": url(),
    "VideoMessage.originalContentUrl": url(),
    "VideoMessage.previewImageUrl": url(),
    "VideoMessage.trackingId": pattern(
        r"[A-Za-z0-9\-.=,+*()%$&;:@{}!?<>\[\]]{0,100}",
        "Must be at most 100 of a-z, A-Z, 0-9 and -.=,+*()%$&;:@{}!?<>[]",
    ),
    "AudioMessage.originalContentUrl": url(),
    "AudioMessage.duration": number(1, MOST, whole=True),
    "LocationMessage.title": text(100),
    "LocationMessage.address": text(100),
    "LocationMessage.latitude": number(-90, 90),
    "LocationMessage.longitude": number(-180, 180),
    "CouponMessage.couponId": text(MOST),
    "CouponMessage.deliveryTag": pattern(
        "[A-Za-z0-9_]{0,30}", "Must be at most 30 of a-z, A-Z, 0-9 and _"
    ),
    "ImagemapMessage.baseUrl": url(),
    "ImagemapMessage.altText": ALT_TEXT,
    "ImagemapBaseSize.width": number(1_040, 1_040, whole=True),
    "ImagemapBaseSize.height": number(1, MOST, whole=True),
    "ImagemapVideo.originalContentUrl": url(),
    "ImagemapVideo.previewImageUrl": url(),
    "ImagemapExternalLink.linkUri": LINK,
    "ImagemapExternalLink.label": text(30),
    **{f"ImagemapArea.{name}": AREA for name in ("x", "y", "width", "height")},
    "URIImagemapAction.linkUri": LINK,
    "MessageImagemapAction.text": text(400),
    **{f"{kind}ImagemapAction.label": text(100, 0) for kind in ("URI", "Message", "Clipboard")},
    "TemplateMessage.altText": ALT_TEXT,
    "ButtonsTemplate.thumbnailImageUrl": url(),
    "ButtonsTemplate.imageAspectRatio": RATIO_WORDS,
    "ButtonsTemplate.imageSize": FIT_WORDS,
    "ButtonsTemplate.imageBackgroundColor": colour,
    "ButtonsTemplate.title": visible(40, 0),
    "ButtonsTemplate.text": visible(160),
    "ConfirmTemplate.text": visible(240),
    "CarouselTemplate.imageAspectRatio": RATIO_WORDS,
    "CarouselTemplate.imageSize": FIT_WORDS,
    "CarouselColumn.thumbnailImageUrl": url(),
    "CarouselColumn.imageBackgroundColor": colour,
    "CarouselColumn.title": visible(40, 0),
    "CarouselColumn.text": visible(120),
    "ImageCarouselColumn.imageUrl": url(),
    "FlexMessage.altText": ALT_TEXT,
    "FlexImage.size": size("xxs", *STEPS, "3xl", "4xl", "5xl", "full", percent=True),
    "MessageAction.text": visible(300),
    "PostbackAction.displayText": visible(300, 0),
    "PostbackAction.text": visible(300, 0),
    "PostbackAction.fillInText": visible(300, 0),
    # Which schemes depends on the place.
    "URIAction.uri": url(1_000, ()),
    "AltUri.desktop": url(1_000, ()),
    "UserMentionTarget.userId": text(MOST),
    "ShowLoadingAnimationRequest.loadingSeconds": number(5, 60, by_five=True),
    "PushMessageRequest.customAggregationUnits": UNITS,
    "MulticastRequest.customAggregationUnits": UNITS,
    "CouponCreateRequest.imageUrl": url(),
    "CouponCreateRequest.barcodeImageUrl": url(),
    "CouponCreateRequest.couponCode": text(16),
    "CouponCreateRequest.maxUseCountPerTicket": or_unlimited(1),
    "LotteryAcquisitionConditionRequest.maxAcquireCount": or_unlimited(999_999),
    "CashBackFixedPriceInfoRequest.fixedAmount": AMOUNT,
    "DiscountFixedPriceInfoRequest.fixedAmount": AMOUNT,
    "DiscountExplicitPriceInfoRequest.originalPrice": AMOUNT,
    "DiscountExplicitPriceInfoRequest.priceAfterDiscount": AMOUNT,
    "RichMenuRequest.name": visible(300, 0),
    "RichMenuRequest.chatBarText": visible(14),
    "RichMenuSize.width": number(800, 2_500, whole=True),
    "RichMenuSize.height": number(250, MOST, whole=True),
    "RichMenuSwitchAction.richMenuAliasId": text(32),
    "CreateRichMenuAliasRequest.richMenuId": MENU_ID,
    "UpdateRichMenuAliasRequest.richMenuId": MENU_ID,
    "RichMenuBulkLinkRequest.richMenuId": MENU_ID,
    "RichMenuBatchLinkOperation.from": MENU_ID,
    "RichMenuBatchLinkOperation.to": MENU_ID,
    "RichMenuBatchUnlinkOperation.from": MENU_ID,
}
