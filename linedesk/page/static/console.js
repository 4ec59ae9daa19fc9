// Keeps the page current: fetches it again and changes only the differences, so scroll, focus, half
// typed input and open parts stay. Writes times in the browser's zone. The page is marked as stale
// while it has no current data. The page works without this script.
"use strict";

// In the language of the page.
const TEXTS = JSON.parse(document.getElementById("texts").textContent);

function fill(text, values) {
  return text.replace(/\{(\w+)\}/g, (place, name) => (name in values ? values[name] : place));
}

const PATIENCE_MS = 6000;
const SLOWEST_S = 15;

// A hidden page refreshes seldom: only its title and icon are visible.
const HIDDEN_S = 5;

const every = Number(document.body.dataset.every || 0);
const offline = document.getElementById("offline");
const selecting = document.getElementById("selecting");
// The time of the last answer with current data, and the start of a time without any.
let currentAt = Date.now();
let lostAt = null;
let failures = 0;
let timer = null;

function idOf(node) {
  // Not `node.id`: in a form this is its field of this name.
  return node.nodeType === Node.ELEMENT_NODE ? node.getAttribute("id") : null;
}

function sameKind(old, fresh) {
  return old.nodeName === fresh.nodeName && idOf(old) === idOf(fresh);
}

function isPersons(node) {
  // The operator's input and opened parts stay.
  return node.nodeName === "INPUT" && node.type !== "hidden";
}

function morphAttributes(old, fresh) {
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) {
    const kept = name === "open" && old.nodeName === "DETAILS";
    if (!kept && !fresh.hasAttribute(name)) old.removeAttribute(name);
  }
}

function morph(old, fresh) {
  if (old.isEqualNode(fresh) || isPersons(old)) return;
  if (old.nodeType === Node.TEXT_NODE) {
    old.data = fresh.data;
    return;
  }
  if (old.nodeType !== Node.ELEMENT_NODE) return;
  morphAttributes(old, fresh);
  // A part with a source of its own has its own clock.
  if (!old.dataset.source || old.dataset.source !== fresh.dataset.source) morphChildren(old, fresh);
}

function morphChildren(old, fresh) {
  let at = old.firstChild;
  for (const wanted of [...fresh.childNodes]) {
    const id = idOf(wanted);
    const known = id ? [...old.children].find((one) => idOf(one) === id) : null;
    if (known && known !== at) old.insertBefore(known, at);
    if (known || (at && sameKind(at, wanted))) {
      const found = known || at;
      morph(found, wanted);
      at = found.nextSibling;
    } else {
      old.insertBefore(document.importNode(wanted, true), at);
    }
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

async function fetched(url) {
  const stop = new AbortController();
  const tooLate = setTimeout(() => stop.abort(), PATIENCE_MS);
  try {
    const answer = await fetch(url, { signal: stop.signal, headers: { "x-live": "1" } });
    const text = await answer.text();
    return [answer.ok, text];
  } finally {
    clearTimeout(tooLate);
  }
}

// --- times

const two = (value) => String(value).padStart(2, "0");
const clockOf = (at) => [at.getHours(), at.getMinutes(), at.getSeconds()].map(two).join(":");
const dayOf = (at) => [at.getFullYear(), two(at.getMonth() + 1), two(at.getDate())].join("-");
const FORMS = {
  minute: (at) => clockOf(at).slice(0, 5),
  clock: clockOf,
  moment: (at) => `${dayOf(at)} ${clockOf(at)}`,
  to_minute: (at) => `${dayOf(at)} ${clockOf(at).slice(0, 5)}`,
  exact: (at) => `${clockOf(at)}.${String(at.getMilliseconds()).padStart(3, "0")}`,
};

function zone() {
  const minutes = -new Date().getTimezoneOffset();
  const [hours, rest] = [Math.floor(Math.abs(minutes) / 60), Math.abs(minutes) % 60];
  const offset = `UTC${minutes < 0 ? "-" : "+"}${hours}${rest ? `:${two(rest)}` : ""}`;
  return `${Intl.DateTimeFormat().resolvedOptions().timeZone} (${offset})`;
}

// The server writes times in its own zone, for pages without a script.
function localise(root) {
  for (const node of root.querySelectorAll("time[data-form], [data-time]")) {
    const at = new Date(node.dataset.time || node.dateTime);
    if (Number.isNaN(at.getTime())) continue;
    const [, ...others] = node.textContent.split("\n");
    node.textContent = [FORMS[node.dataset.form](at), ...others].join("\n");
    if (node.title) node.title = `${FORMS.moment(at)} ${zone()}`;
  }
  const named = root.getElementById && root.getElementById("zone");
  if (named) named.textContent = fill(TEXTS.zone, { zone: zone() });
}

function forLong(milliseconds) {
  const seconds = Math.max(0, Math.floor(milliseconds / 1000));
  if (seconds < 60) return fill(TEXTS.seconds, { count: seconds });
  const minutes = Math.floor(seconds / 60);
  const [large, largest, small, rest] = minutes < 60
    ? [TEXTS.minutes, minutes, TEXTS.seconds, seconds % 60]
    : [TEXTS.hours, Math.floor(minutes / 60), TEXTS.minutes, minutes % 60];
  return fill(TEXTS.two, { larger: fill(large, { count: largest }), smaller: fill(small, { count: rest }) });
}

const ageNow = () => fill(TEXTS.old, { time: forLong(Date.now() - currentAt) });

// --- stale data

function showAges() {
  const isStale = document.body.classList.contains("stale");
  for (const node of document.querySelectorAll(".age")) {
    node.hidden = !isStale;
    if (isStale && lostAt) node.textContent = ageNow();
  }
  if (lostAt) offline.textContent = `✕ ${fill(TEXTS.offline, { time: clockOf(lostAt), age: ageNow() })}`;
}

function showUnknown() {
  const verdict = document.getElementById("verdict");
  if (!verdict) return;
  const line = verdict.querySelector(".verdict") || verdict.insertBefore(document.createElement("p"), verdict.firstChild);
  line.className = "verdict lost";
  const [title, below, age] = ["b", "span", "span"].map((name) => document.createElement(name));
  title.textContent = `✕ ${TEXTS.unknown}`;
  age.className = "age";
  const [before, after] = TEXTS.below.split("{age}");
  below.append(before, age, after);
  line.replaceChildren(title, " ", below);
}

function lost() {
  failures += 1;
  lostAt = lostAt || new Date();
  offline.hidden = false;
  const trouble = document.getElementById("trouble");
  if (trouble) trouble.remove();
  document.body.classList.add("stale");
  document.title = `✕ ${TEXTS.lost} · linedesk`;
  document.getElementById("icon").href = "/static/icon-lost.svg";
  document.getElementById("live").textContent = TEXTS.notLive;
  showUnknown();
  showAges();
}

// The console has answered; its answer shows whether the data is current.
function answered(fresh) {
  failures = 0;
  lostAt = null;
  offline.hidden = true;
  const isStale = fresh.body.classList.contains("stale");
  if (!isStale) currentAt = Date.now();
  document.body.classList.toggle("stale", isStale);
  document.title = fresh.title;
  const icon = fresh.getElementById("icon").getAttribute("href");
  if (document.getElementById("icon").getAttribute("href") !== icon) document.getElementById("icon").href = icon;
  for (const id of ["live", "zone"]) {
    const [old, wanted] = [document.getElementById(id), fresh.getElementById(id)];
    if (old && wanted) morph(old, wanted);
  }
  for (const id of ["trouble", "said"]) {
    const [old, wanted] = [document.getElementById(id), fresh.getElementById(id)];
    if (old && wanted) morph(old, wanted);
    else if (old) old.remove();
    else if (wanted) document.getElementById("main").before(document.importNode(wanted, true));
  }
  if (isStale) showUnknown();
  showAges();
}

// --- refreshing

function isSelecting() {
  const chosen = window.getSelection();
  return Boolean(chosen) && !chosen.isCollapsed;
}

async function refresh() {
  timer = null;
  try {
    const [isWhole, text] = await fetched(location.href);
    const fresh = new DOMParser().parseFromString(text, "text/html");
    // A proxy may answer instead of the console.
    if (!fresh.getElementById("main") || !fresh.getElementById("icon")) throw new Error("not the console");
    localise(fresh);
    answered(fresh);
    // Nothing moves below selected text; the page shows a note. Old data stays until newer data
    // comes.
    if (isWhole && !isSelecting()) morph(document.getElementById("main"), fresh.getElementById("main"));
    showAges();
  } catch (error) {
    lost();
  }
  plan();
}

function plan() {
  const seconds = document.hidden ? Math.max(every, HIDDEN_S) : every;
  if (!timer) timer = setTimeout(refresh, 1000 * Math.min(seconds * 2 ** failures, SLOWEST_S));
}

async function refreshPart(part) {
  const seconds = Number(part.dataset.every);
  if (!document.hidden && part.isConnected) {
    try {
      const [isWhole, text] = await fetched(part.dataset.source);
      const fresh = new DOMParser().parseFromString(`<div>${text}</div>`, "text/html");
      localise(fresh);
      if (isWhole && !isSelecting()) morphChildren(part, fresh.body.firstChild);
    } catch (error) {
      // The refresh of the whole page reports it.
    }
  }
  // A part without data refreshes as often as the page.
  const next = part.querySelector(".trouble") ? every : seconds;
  setTimeout(refreshPart, next * 1000, part);
}

localise(document);

if (every) {
  plan();
  document.addEventListener("visibilitychange", () => {
    if (document.hidden || !timer) return;
    clearTimeout(timer);
    refresh();
  });
  document.addEventListener("selectionchange", () => { selecting.hidden = !isSelecting(); });
  setInterval(() => { if (lostAt) showAges(); }, 1000);
  for (const part of document.querySelectorAll("[data-source]")) {
    setTimeout(refreshPart, Number(part.dataset.every) * 1000, part);
  }
}

const all = document.getElementById("choose-all");
if (all) {
  all.hidden = false;
  all.addEventListener("change", () => {
    for (const box of document.querySelectorAll("#letter-rows input")) box.checked = all.checked;
  });
}

// --- keys

const ROWS = "main tbody tr, main .rows > li";
const CONTROLS = "a[href], button, summary, input:not([type=hidden])";

function moveBy(step) {
  const rows = [...document.querySelectorAll(ROWS)].filter((row) => row.querySelector(CONTROLS) && row.offsetParent);
  const at = rows.indexOf(document.activeElement.closest(ROWS));
  const next = rows[at < 0 && step < 0 ? rows.length - 1 : at + step];
  if (next) next.querySelector(CONTROLS).focus();
}

document.addEventListener("keydown", (event) => {
  const isTyping = event.target.closest("textarea, select, [contenteditable], input:not([type=checkbox])");
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  const search = document.querySelector(".search input");
  if (event.key === "/" && search) {
    event.preventDefault();
    search.focus();
    search.select();
  } else if (event.key === "j" || event.key === "k") {
    moveBy(event.key === "j" ? 1 : -1);
  }
});
