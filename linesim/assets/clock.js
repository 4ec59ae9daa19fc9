// The simulator's clock, which can be moved ahead for bots that live in time.

import { post } from "./api.js";
import { byId, written } from "./dom.js";
import { trying } from "./popup.js";

const moment = written({
  ...{ year: "numeric", month: "numeric", day: "numeric", weekday: "short" },
  ...{ hour: "2-digit", minute: "2-digit", second: "2-digit" },
});

let offset = null; // milliseconds from the browser's clock to the simulator's
let known = 0; // the seconds by which the simulator's was moved ahead

// The simulator stops at each timer of the bot, so this may take a while.
async function advance(seconds) {
  const focused = document.activeElement;
  busy(true);
  await trying("時計を進められませんでした", async () => setClock(await post("/sim/clock", { advance: seconds })));
  busy(false);
  focused?.focus();
}

function busy(is) {
  for (const button of document.querySelectorAll(".clock button")) button.disabled = is;
  byId("clock-moving").hidden = !is;
}

byId("clock-steps").addEventListener("click", ({ target }) => {
  if (target.dataset.seconds) advance(+target.dataset.seconds);
});
byId("clock-form").addEventListener("submit", (event) => {
  event.preventDefault();
  advance(byId("clock-seconds").valueAsNumber);
  event.target.reset();
});
tick();

// `now` and `ahead` in seconds, from the simulator. Late messages are ignored: a simulator's clock
// never goes back.
export function setClock({ now, ahead }) {
  if (ahead < known) return;
  known = ahead;
  offset = now * 1000 - Date.now();
  byId("clock-ahead").textContent = ahead ? `${span(ahead)}進めました` : "";
  draw();
}

// Another simulator may answer from now on.
export function forgetClock() {
  known = 0;
}

function tick() {
  draw();
  setTimeout(tick, 1000 - (time() % 1000));
}

export function time() {
  return Date.now() + (offset ?? 0);
}

function draw() {
  if (offset !== null) byId("clock-now").textContent = moment(time());
}

function span(seconds) {
  const whole = Math.round(seconds);
  const parts = [
    [Math.floor(whole / 86400), "日"],
    [Math.floor(whole / 3600) % 24, "時間"],
    [Math.floor(whole / 60) % 60, "分"],
    [whole % 60, "秒"],
  ];
  return parts.filter(([count]) => count).map(([count, unit]) => count + unit).join("");
}
