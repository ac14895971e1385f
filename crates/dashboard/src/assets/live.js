// Times grow older, filters apply at once. The live page: rows come from the server as the pages render them, and are put in place.
"use strict";
(() => {
  const relative = (then) => {
    const s = Math.max(0, (Date.now() - then) / 1000);
    if (s < 45) return "just now";
    if (s < 3570) return `${Math.round(s / 60)} min ago`;
    if (s < 84600) return `${Math.round(s / 3600)} h ago`;
    return null; // what is that old may stay as it was written
  };
  const age = () => {
    for (const time of document.querySelectorAll("time[data-ago]")) {
      const text = relative(Date.parse(time.dateTime));
      if (text !== null && time.textContent !== text) time.textContent = text;
    }
  };
  setInterval(age, 15000);

  // A filter that is chosen applies at once; without this script there is the button.
  for (const choice of document.querySelectorAll("form.filters select, form.filters input[type=date]")) {
    choice.addEventListener("change", () => choice.form.requestSubmit());
  }

  const running = document.getElementById("running");
  const feed = document.getElementById("feed");
  const state = document.getElementById("state");
  if (!running || !feed || !state) return;

  const say = (kind, text) => {
    state.className = `state ${kind}`;
    state.textContent = text;
  };
  const rows = (html) => {
    const parsed = new DOMParser().parseFromString(html, "text/html");
    return [...parsed.querySelectorAll("li")].map((item) => document.importNode(item, true));
  };
  const put = (list, html, limit) => {
    const [item] = rows(html);
    const old = item.id && document.getElementById(item.id);
    if (old) {
      old.replaceWith(item);
    } else {
      item.classList.add("fresh");
      list.prepend(item);
    }
    while (limit && list.children.length > limit) list.lastElementChild.remove();
    settle();
  };
  const settle = () => {
    for (const list of [running, feed]) {
      document.getElementById(`${list.id}-none`).hidden = list.children.length > 0;
    }
    document.getElementById("count").textContent = String(running.children.length);
    age();
  };

  const stream = new EventSource("/live/events");
  stream.addEventListener("error", () => say("off", "Disconnected; trying again"));
  // All that runs, at the beginning and when something was missed. From here on the page is up to date.
  stream.addEventListener("reset", (event) => {
    running.replaceChildren(...rows(event.data));
    settle();
    say("on", "Connected");
  });
  stream.addEventListener("running", (event) => put(running, event.data, 0));
  stream.addEventListener("gone", (event) => {
    document.getElementById(`run-${event.data}`)?.remove();
    settle();
  });
  stream.addEventListener("told", (event) => put(feed, event.data, 100));
  window.addEventListener("pagehide", () => stream.close());
})();
