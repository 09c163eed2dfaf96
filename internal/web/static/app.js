"use strict";
// Fetches the part of the page that changes when the server says that something has.
(() => {
  const live = document.getElementById("live");
  const link = document.getElementById("link");
  const pause = document.getElementById("pause");
  const form = document.querySelector("form[data-live]");
  let paused = false, busy = false, again = false, connected = false, shown = live.innerHTML, skew = 0;

  const now = () => Date.now() - skew;

  function tellLink() {
    link.textContent = paused ? "paused" : connected ? "live" : "not connected";
    link.className = connected ? "" : "off";
  }

  // As Ago in package snapshot.
  function age(ms) {
    const s = Math.max(0, Math.floor(ms / 1000)), m = Math.floor(s / 60), h = Math.floor(m / 60);
    if (h >= 48) return Math.floor(h / 24) + " d";
    if (h > 0) return h + " h " + m % 60 + " min";
    if (m > 0) return m + " min " + s % 60 + " s";
    return s + " s";
  }

  function ages() {
    for (const e of live.querySelectorAll("[data-since]")) {
      const since = Number(e.dataset.since);
      if (since <= 0) continue; // it is not known
      const text = age(now() - since);
      if (e.textContent !== text) e.textContent = text;
    }
  }

  function setClock() {
    const s = live.querySelector("[data-now]");
    if (s && Number(s.dataset.now) > 0) skew = Date.now() - Number(s.dataset.now);
  }

  const selecting = () => {
    const s = document.getSelection();
    return s && !s.isCollapsed && live.contains(s.anchorNode);
  };

  // show replaces the part, and keeps what the focus is on, and scrolled parts.
  function show(html) {
    if (html === shown) return;
    const a = document.activeElement;
    const focus = live.contains(a) && a !== live ? (a.getAttribute("href") || a.id) : null;
    const scrolled = [...live.querySelectorAll(".wide")].map((e) => [e.scrollLeft, e.scrollTop]);
    live.innerHTML = shown = html;
    [...live.querySelectorAll(".wide")].forEach((e, i) => {
      if (scrolled[i]) [e.scrollLeft, e.scrollTop] = scrolled[i];
    });
    if (focus) {
      const e = [...live.querySelectorAll("a[href], [id]")].find((e) => e.getAttribute("href") === focus || e.id === focus);
      if (e) e.focus({ preventScroll: true });
    }
    setClock();
    ages();
  }

  async function refresh(force) {
    if (busy) {
      again = again || force || "quiet";
      return;
    }
    if (!force && (paused || selecting())) return;
    busy = true;
    try {
      const r = await fetch(location.href, { headers: { "X-Fragment": "1" }, credentials: "same-origin" });
      if (r.status === 403) {
        link.textContent = "the session has ended";
        return;
      }
      if (!(r.headers.get("Content-Type") || "").startsWith("text/html")) throw new Error("no page");
      show(await r.text());
      live.dataset.refreshed = performance.now();
    } catch {
      connected = false;
      tellLink();
    } finally {
      busy = false;
      if (again) {
        const forced = again === true;
        again = false;
        refresh(forced);
      }
    }
  }

  if (form) {
    const search = () => {
      const q = new URLSearchParams(new FormData(form));
      for (const [k, v] of [...q]) if (v === "") q.delete(k);
      history.replaceState(null, "", form.getAttribute("action") + (q.size ? "?" + q : ""));
      refresh(true);
    };
    form.addEventListener("input", search);
    form.addEventListener("submit", (e) => { e.preventDefault(); search(); });
  }

  function setPaused(on) {
    paused = on;
    pause.setAttribute("aria-pressed", String(on));
    pause.textContent = on ? "Go on" : "Pause";
    tellLink();
    if (!on) refresh();
  }
  pause.hidden = false;
  pause.addEventListener("click", () => setPaused(!paused));

  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.altKey || e.metaKey) return;
    if (/^(INPUT|SELECT|TEXTAREA)$/.test(e.target.tagName)) {
      if (e.key === "Escape") e.target.blur();
      return;
    }
    const pages = document.querySelectorAll("nav a");
    const search = document.getElementById("search");
    if (e.key === "/" && search) {
      e.preventDefault();
      search.focus();
      search.select();
    } else if (e.key === "p") {
      setPaused(!paused);
    } else if (e.key >= "1" && e.key <= String(pages.length)) {
      pages[Number(e.key) - 1].click();
    } else if (e.key === "j" || e.key === "k") {
      const rows = [...live.querySelectorAll("tbody a[href], svg a[href]")];
      const at = rows.indexOf(document.activeElement) + (e.key === "j" ? 1 : -1);
      if (rows.length) rows[Math.max(0, Math.min(at, rows.length - 1))].focus();
    }
  });

  setClock();
  setInterval(() => { if (!paused) ages(); }, 1000);
  const timed = live.querySelector("[data-every]");
  if (timed) setInterval(refresh, Number(timed.dataset.every));

  let version = live.querySelector("[data-version]")?.dataset.version;
  const source = new EventSource("events");
  source.addEventListener("open", () => { connected = true; tellLink(); });
  source.addEventListener("error", () => { connected = false; tellLink(); });
  source.addEventListener("change", (e) => {
    connected = true;
    tellLink();
    if (e.data !== version) {
      version = e.data;
      refresh();
    }
  });
  tellLink();
})();
