// What the page knows: the simulator's state, the open chat, and who speaks there.

import { act } from "./api.js";
import { trying } from "./popup.js";

export const here = {
  state: { users: [], groups: [], last: [], bot: { name: "" } }, // as the simulator gives it
  chats: [], // all of its chats, as people.js lists them
  chosen: null, // the open chat's id
  speaker: null, // in a group: who speaks
};

export const chat = () => here.chats.find((each) => each.id === here.chosen);

// The user whose phone this is.
export const me = () => (chat()?.kind === "user" ? here.chosen : here.speaker);

export const nameById = (id) => here.state.users.find((user) => user.userId === id)?.name || "？";

const OF_GROUP = new Set(["join", "leave"]);

// An act of the open chat, or the promise of one; resolves to whether it was done. The stream shows
// its result.
export function perform(promised) {
  const user = me();
  const where = chat().kind === "user" ? {} : { chat: here.chosen };
  return trying("送信できませんでした", async () => {
    const details = await promised;
    const who = OF_GROUP.has(details.act) ? {} : { user };
    await act({ ...who, ...where, ...details });
  });
}
