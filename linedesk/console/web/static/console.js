// Keeps the page as it is now: fetches it anew and changes only what differs. So scroll, focus,
// what is half typed and what is open stay. The page works without any of this.
"use strict";

const PATIENCE_MS = 6000;
const SLOWEST_S = 15;

const every = Number(document.body.dataset.every || 0);
const offline = document.getElementById("offline");
let lostAt = null;
let failures = 0;
let timer = null;

function idOf(node) {
  // Not `node.id`: in a form that is its field of this name.
  return node.nodeType === Node.ELEMENT_NODE ? node.getAttribute("id") : null;
}

function sameKind(old, fresh) {
  return old.nodeName === fresh.nodeName && idOf(old) === idOf(fresh);
}

function isPersons(node) {
  // What a person fills in, or has opened, is his.
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
    if (answer.redirected && new URL(answer.url).pathname === "/login") location.reload();
    return [answer.ok, text];
  } finally {
    clearTimeout(tooLate);
  }
}

function isTyping() {
  const chosen = window.getSelection();
  return chosen && !chosen.isCollapsed;
}

function lost() {
  failures += 1;
  lostAt = lostAt || new Date();
  offline.textContent = `✕ No connection to the console since ${lostAt.toLocaleTimeString()}. What you see is of that time; it is tried again by itself.`;
  offline.hidden = false;
}

function found() {
  failures = 0;
  lostAt = null;
  offline.hidden = true;
}

async function refresh() {
  timer = null;
  if (document.hidden) return;
  try {
    const [isWhole, text] = await fetched(location.href);
    const fresh = new DOMParser().parseFromString(text, "text/html");
    found();
    // Nothing moves under a text that somebody is about to copy.
    if (!isTyping()) {
      for (const id of ["trouble", "said"]) {
        const [old, wanted] = [document.getElementById(id), fresh.getElementById(id)];
        if (old && wanted) morph(old, wanted);
        else if (old) old.remove();
        else if (wanted) document.getElementById("main").before(document.importNode(wanted, true));
      }
      // What could not be read is told above; what was read before stays.
      if (isWhole) {
        morph(document.getElementById("main"), fresh.getElementById("main"));
        document.title = fresh.title;
      }
    }
  } catch (error) {
    lost();
  }
  plan();
}

function plan() {
  if (!timer) timer = setTimeout(refresh, 1000 * Math.min(every * 2 ** failures, SLOWEST_S));
}

async function refreshPart(part) {
  const seconds = Number(part.dataset.every);
  if (!document.hidden && part.isConnected) {
    try {
      const [isWhole, text] = await fetched(part.dataset.source);
      const fresh = new DOMParser().parseFromString(`<div>${text}</div>`, "text/html");
      if (isWhole) morphChildren(part, fresh.body.firstChild);
    } catch (error) {
      // The page itself says so.
    }
  }
  setTimeout(refreshPart, seconds * 1000, part);
}

if (every) {
  plan();
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden && !timer) refresh();
  });
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
