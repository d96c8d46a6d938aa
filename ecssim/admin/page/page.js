// Keeps the page as it is now: asks every second which of its parts have changed, and puts those in. What the reader is doing stays:
// focus, selection, open details and scroll positions.
"use strict";
(() => {
  const interval = 1000; // ms between an answer and the next question
  const status = document.getElementById("status");
  const clock = document.getElementById("now");
  const pause = document.getElementById("pause");
  const filters = [document.getElementById("disk-filter"), document.getElementById("call-filter")];
  const parts = new Map([...document.querySelectorAll("[data-part]")].map((e) => [e.dataset.part, e]));

  let paused = false;
  let pressing = false; // a pointer is down: a button must not be replaced under it
  let timer = 0;
  let asked = 0; // the number of the last question
  let lost = false; // the simulator did not answer the last question

  function say(text, bad) {
    status.textContent = "";
    status.classList.toggle("bad", Boolean(bad));
    clearTimeout(say.timer);
    say.timer = setTimeout(() => { // a moment later, so that the same words are read out again
      status.textContent = text;
      if (!bad) say.timer = setTimeout(() => { status.textContent = ""; }, 8000);
    }, 50);
  }

  function filterQuery() {
    const query = new URLSearchParams();
    for (const form of filters) {
      for (const input of form.querySelectorAll("input[type=search]")) {
        if (input.value.trim() !== "") query.set(input.name, input.value.trim());
      }
    }
    return query;
  }

  async function update() {
    clearTimeout(timer);
    const number = ++asked;
    const query = filterQuery();
    query.set("have", [...parts].map(([name, part]) => name + "." + part.dataset.version).join(","));
    try {
      const reply = await fetch("/_sim/update?" + query, { cache: "no-store" });
      if (!reply.ok) throw new Error(await reply.text());
      const answer = await reply.json();
      if (number !== asked) return;
      show(answer);
      if (lost) say("The simulator answers again.");
      lost = false;
    } catch {
      if (number !== asked) return;
      if (!lost) say("The simulator does not answer. What is shown is from " + clock.textContent + " UTC.", true);
      lost = true;
    }
    if (!paused && !document.hidden) timer = setTimeout(update, interval);
  }

  function show(answer) {
    const now = new Date(answer.now);
    clock.dateTime = answer.now;
    clock.textContent = now.toISOString().slice(0, 19).replace("T", " ");
    for (const [name, { version, html }] of Object.entries(answer.parts)) {
      const part = parts.get(name);
      if (part && !pressing && !selects(part)) replace(part, version, html);
    }
    for (const time of document.querySelectorAll("time[data-age]")) {
      const text = age(now - new Date(time.dateTime));
      if (time.textContent !== text) time.textContent = text;
    }
  }

  // age says how long some milliseconds are, as the server does.
  function age(ms) {
    const s = Math.max(0, Math.floor(ms / 1000));
    if (s < 60) return s + " s";
    if (s < 3600) return Math.floor(s / 60) + " min";
    if (s < 86400) return Math.floor(s / 3600) + " h";
    return Math.floor(s / 86400) + " d";
  }

  function selects(part) {
    const selection = getSelection();
    return selection && !selection.isCollapsed && part.contains(selection.anchorNode);
  }

  function replace(part, version, html) {
    const focused = part.contains(document.activeElement) ? document.activeElement : null;
    const key = focused && (focused.dataset.key || focused.getAttribute("aria-label"));
    const scrolled = [...part.querySelectorAll(".scroll")].map((e) => e.scrollLeft);
    const open = new Set([...part.querySelectorAll("details[open]")].map((e) => e.dataset.key));
    const before = new Map([...part.querySelectorAll("tr[data-key]")].map((row) => [row.dataset.key, content(row)]));
    const wasBroken = part.querySelector("#broken") !== null;

    part.innerHTML = html; // the server has escaped what it shows
    part.dataset.version = version;

    part.querySelectorAll(".scroll").forEach((e, n) => { e.scrollLeft = scrolled[n] || 0; });
    part.querySelectorAll("details").forEach((e) => { e.open = open.has(e.dataset.key); });
    for (const row of part.querySelectorAll("tr[data-key]")) {
      row.classList.toggle("fresh", before.get(row.dataset.key) !== content(row));
    }
    if (focused) {
      const again = [...part.querySelectorAll("[data-key], [aria-label]")].find((e) => (e.dataset.key || e.getAttribute("aria-label")) === key && !e.matches("tr"));
      const target = again && again.matches("details") ? again.querySelector("summary") : again;
      (target || part.closest("section")?.querySelector("h2"))?.focus({ preventScroll: true });
    }
    if (!wasBroken && part.querySelector("#broken")) say("An invariant is broken.", true);
  }

  // content is the text of a row without its ages.
  function content(row) {
    const copy = row.cloneNode(true);
    copy.querySelectorAll("time[data-age]").forEach((e) => e.remove());
    return copy.textContent;
  }

  async function act(form) {
    try {
      const reply = await fetch(form.getAttribute("action"), { method: "POST", body: new URLSearchParams(new FormData(form)), headers: { Accept: "application/json" } });
      const answer = await reply.json();
      if (reply.ok) say(form.dataset.done);
      else say(answer.error, true);
    } catch {
      say("The simulator does not answer. Nothing is known to have changed.", true);
    }
    update();
  }

  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.getAttribute("method") === "post") { // form.method would be its field of that name
      event.preventDefault();
      act(form);
    } else if (filters.includes(form)) {
      event.preventDefault();
      filtered();
    }
  });

  function filtered() {
    const query = filterQuery();
    history.replaceState(null, "", query.size > 0 ? "/_sim/?" + query : "/_sim/");
    clearTimeout(filtered.timer);
    filtered.timer = setTimeout(update, 200);
  }
  for (const form of filters) form.addEventListener("input", filtered);

  document.addEventListener("pointerdown", () => { pressing = true; });
  for (const end of ["pointerup", "pointercancel"]) {
    document.addEventListener(end, () => setTimeout(() => { pressing = false; }, 0));
  }
  document.addEventListener("visibilitychange", () => { if (!document.hidden && !paused) update(); });

  pause.hidden = false;
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    if (paused) clearTimeout(timer);
    else update();
  });
  if (new URLSearchParams(location.search).has("done")) history.replaceState(null, "", "/_sim/" + location.hash);
  update();
})();
