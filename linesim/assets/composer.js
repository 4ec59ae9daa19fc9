// The input line, with its trays of stickers and attachments.

import { sendPlace } from "./actions.js";
import { upload } from "./api.js";
import { byId, make } from "./dom.js";
import { STICKERS, stickerPicture } from "./stickers.js";

// `send(details)` sends an act, or what a promise makes one, for the user and chat that are open.
export function setUpComposer(send) {
  const text = byId("text");
  const submit = () => {
    const said = text.value;
    if (!said.trim()) return;
    text.value = "";
    fit();
    send({ act: "text", text: said });
  };
  const fit = () => {
    text.style.height = "auto";
    text.style.height = `${Math.min(text.scrollHeight, 130)}px`;
    byId("send").disabled = !text.value.trim();
  };
  byId("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    submit();
  });
  text.addEventListener("input", fit);
  text.addEventListener("keydown", (event) => {
    // While an input method converts kana, Enter accepts the conversion; Safari reports 229
    // instead.
    const converting = event.isComposing || event.keyCode === 229;
    if (event.key === "Enter" && !event.shiftKey && !converting) {
      event.preventDefault();
      submit();
    }
  });
  fit();
  setUpTrays();
  setUpStickers(send);
  setUpTools(send);
}

export function closeTrays() {
  for (const name of ["tools", "stickers"]) toggle(name, false);
}

function setUpTrays() {
  for (const [name, other] of [["tools", "stickers"], ["stickers", "tools"]]) {
    byId(`open-${name}`).addEventListener("click", () => {
      toggle(other, false);
      toggle(name, byId(name).hidden);
    });
  }
}

function toggle(name, open) {
  byId(name).hidden = !open;
  byId(`open-${name}`).setAttribute("aria-expanded", String(open));
}

function setUpStickers(send) {
  byId("stickers").replaceChildren(
    ...STICKERS.map(({ packageId, stickerId, keywords }) =>
      make(
        "button",
        {
          type: "button",
          ariaLabel: `スタンプ ${keywords[0]}`,
          onclick: () => {
            closeTrays();
            send({ act: "sticker", package: packageId, sticker: stickerId, keywords });
          },
        },
        stickerPicture({ packageId, stickerId }),
      ),
    ),
  );
}

function setUpTools(send) {
  byId("tools").addEventListener("click", async (event) => {
    const kind = event.target.closest("[data-send]")?.dataset.send;
    if (!kind) return;
    closeTrays();
    if (kind === "upload") byId("photo").click();
    else if (kind === "location") await sendPlace();
    else send({ act: kind });
  });
  byId("photo").addEventListener("change", () => {
    const [file] = byId("photo").files;
    byId("photo").value = "";
    if (file) send(upload(file).then((medium) => ({ act: "image", medium })));
  });
}
