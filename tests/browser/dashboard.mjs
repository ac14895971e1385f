// The dashboard as a person uses it, in a real browser. Run by tests/it/dashboard: it serves a filled store at BASE, answers
// what is asked on standard output ("ask WORD" gets one line of JSON), and reads "ok NAME" and "FAILED NAME: why".
//
// SHOTS, a folder, gets a picture of every page.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import assert from "node:assert/strict";

const { BASE, TOKEN, MODULES, CHROMIUM, SHOTS, PROJECT } = process.env;
const { chromium } = createRequire(`${MODULES}/`)("playwright-core");

const answers = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const ask = async (word) => {
  console.log(`ask ${word}`);
  return JSON.parse((await answers.next()).value);
};

const browser = await chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox", "--disable-gpu"] });
const complaints = [];
// Every page anybody opens is watched: what it logs, and whom it talks to.
const watched = async (options = {}) => {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  context.setDefaultTimeout(20_000);
  context.on("page", (page) => {
    page.on("console", (message) => {
      // A refused login is answered 401, which the browser calls an error.
      const expected = message.text().includes("401") && new URL(page.url()).pathname === "/login";
      if (["error", "warning"].includes(message.type()) && !expected) complaints.push(`${page.url()}: ${message.text()}`);
    });
    page.on("pageerror", (error) => complaints.push(`${page.url()}: ${error}`));
    page.on("request", (request) => {
      if (!request.url().startsWith(`${BASE}/`)) complaints.push(`${page.url()} asks ${request.url()}`);
    });
    page.on("response", (response) => {
      const policy = response.headers()["content-security-policy"] ?? "";
      if (!policy.includes("default-src 'none'") || policy.includes("unsafe")) complaints.push(`${response.url()}: policy ${policy}`);
    });
  });
  return context;
};

let failed = 0;
const check = async (name, work) => {
  try {
    await work();
    assert.deepEqual(complaints.splice(0), [], "what the browser complained of");
    console.log(`ok ${name}`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED ${name}: ${String(error.stack ?? error).replaceAll("\n", " | ")}`);
  }
};
const shot = async (page, name, fullPage = true) => {
  if (SHOTS) await page.screenshot({ path: `${SHOTS}/${name}.png`, fullPage });
};

const context = await watched();
const page = await context.newPage();
const rows = () => page.locator("main table tbody tr");
const names = () => page.locator("td.name > a:first-child").allTextContents();
const apply = () => page.getByRole("button", { name: "Apply" }).click();
const { sessions, incomplete, resumed } = await ask("sessions");
const pages = ["/", "/sessions", `/sessions/${sessions[1]}`, "/live", "/health"];

await check("login", async () => {
  await page.goto(`${BASE}/sessions?agent=codex`);
  assert.equal(new URL(page.url()).pathname, "/login", "whoever is not in is shown the door");
  await shot(page, "login");
  await page.getByLabel("Token").fill("codemie_read_wrong");
  await page.getByRole("button", { name: "Log in" }).click();
  await page.getByRole("alert").waitFor();
  await page.getByLabel("Token").fill(TOKEN);
  await page.getByRole("button", { name: "Log in" }).click();
  await page.waitForURL(`${BASE}/sessions?agent=codex`);
  const [cookie] = await context.cookies();
  assert.ok(cookie.httpOnly && cookie.sameSite === "Strict", JSON.stringify(cookie));
  assert.ok(!cookie.value.includes(TOKEN));
});

await check("every page", async () => {
  for (const path of pages) {
    const response = await page.goto(BASE + path);
    assert.equal(response.status(), 200, path);
    const headers = response.headers();
    assert.equal(headers["cache-control"], "no-store", path);
    assert.equal(headers["x-frame-options"], "DENY", path);
    assert.equal(await page.locator("h1").count(), 1, path);
    assert.match(await page.title(), / · codemie$/);
    assert.equal(await page.locator("[style], style, script:not([src])").count(), 0, "nothing inline");
    await shot(page, path === "/" ? "overview" : path.includes(sessions[1]) ? "session" : path.slice(1));
  }
  assert.equal((await page.goto(`${BASE}/sessions/none`)).status(), 404);
  complaints.splice(0); // the browser says that there was a 404
});

await check("overview: charts and filters", async () => {
  await page.goto(BASE);
  assert.equal(await page.locator("svg.plot").count(), 3);
  assert.equal(await page.locator("svg.plot").first().locator("rect.hit").count(), 30, "a column for each day");
  assert.match(await page.locator("svg.plot title").last().textContent(), /\d begun/);
  const last = page.locator("svg.plot").first().locator("a").last();
  assert.equal(await last.locator(".say").evaluate((said) => getComputedStyle(said).opacity), "0");
  await last.locator("rect.hit").hover({ position: { x: 3, y: 3 } });
  assert.match(await last.locator(".say").textContent(), /20\d\d · (< )?\$/);
  assert.equal(await last.locator(".say").evaluate((said) => getComputedStyle(said).opacity), "1", "what is pointed at is said");
  const all = await page.locator("dl.totals dd").first().textContent();
  for (const [label, value] of [["Agent", "codex"], ["Project", PROJECT], ["Model", "gpt-5.2-codex"], ["User", "mira"]]) {
    await page.getByLabel(label).selectOption(value);
    await apply();
    assert.equal(new URL(page.url()).searchParams.get(label.toLowerCase()), value);
    const some = await page.locator("dl.totals dd").first().textContent();
    assert.notEqual(some, all, `${label} narrows`);
    assert.equal(await page.getByLabel(label).inputValue(), value, "the form shows what is set");
  }
  await shot(page, "overview-filtered");
  await page.getByRole("link", { name: "agent: codex" }).click();
  assert.equal(new URL(page.url()).searchParams.get("agent"), null);
  await page.getByRole("link", { name: "clear all" }).click();
  await page.getByRole("link", { name: "1 year" }).click();
  assert.match(await page.locator("section h2").first().textContent(), /per week/);
  await page.getByRole("link", { name: "gemini", exact: true }).click();
  assert.equal(new URL(page.url()).searchParams.get("agent"), "gemini");
  // One model: its sessions are those of the list, and what no model does is not said to be none.
  await page.goto(`${BASE}/?range=7d&model=gpt-5.2`);
  const tiles = await page.locator("dl.totals dt").allTextContents();
  assert.deepEqual(tiles, ["Cost", "Sessions", "Tokens", "API calls"]);
  assert.equal(await page.locator("svg.plot").count(), 2, "no chart of sessions");
  const begun = Number(await page.locator("dl.totals > div").nth(1).locator("dd").first().textContent());
  assert.ok(begun > 0);
  assert.match(await page.locator("dl.totals > div").first().textContent(), /\$\d+\.\d\d per session/);
  await shot(page, "overview-model");
  await page.locator("a.plain").first().click();
  assert.equal(new URL(page.url()).pathname, "/sessions", "an amount leads to its sessions");
  assert.equal(new URL(page.url()).searchParams.get("range"), "7d");
  assert.match(await page.locator("h1 .aside").first().textContent(), new RegExp(`^${begun} · \\$`));
  await page.goto(`${BASE}/?range=7d`);
  await page.getByText(/% on 7 days before/).first().waitFor();
  await page.goto(`${BASE}/?from=2001-01-01&to=2001-01-02`);
  await page.getByText("No sessions match").waitFor();
  const refused = await page.goto(`${BASE}/?from=then`);
  assert.equal(refused.status(), 400);
  await page.getByText("from is not a date").waitFor();
  complaints.splice(0);
});

await check("sessions: filter, search, order, pages", async () => {
  await page.goto(`${BASE}/sessions`);
  const first = await names();
  assert.equal(first.length, 50);
  await page.getByRole("link", { name: "Next page" }).click();
  const second = await names();
  assert.equal(second.filter((name) => first.includes(name)).length, 0, "another page, other sessions");
  await page.getByRole("link", { name: "First page" }).click();
  assert.deepEqual(await names(), first);
  await page.getByLabel("Agent").selectOption("gemini");
  await apply();
  assert.deepEqual([...new Set(await rows().locator("td:nth-child(2)").allTextContents())], ["gemini"]);
  await page.goto(`${BASE}/sessions`);
  await page.getByLabel("Status").selectOption("failed");
  await apply();
  assert.deepEqual([...new Set(await rows().locator("td:last-child").allTextContents())], ["failed"]);
  await page.goto(`${BASE}/sessions`);
  await page.getByRole("searchbox").fill("FIX-AUTH.");
  await page.keyboard.press("Enter");
  await page.waitForURL(/q=FIX-AUTH/);
  assert.deepEqual((await names()).sort(), ["fix-auth.2", "fix-auth.3"]);
  await page.goto(`${BASE}/sessions`);
  await page.getByRole("link", { name: "Cost" }).click();
  const costs = async () => (await rows().locator("td:nth-child(8)").allTextContents()).map((text) => Number(text.replace(/[^0-9.]/g, "")));
  const expensive = await costs();
  assert.deepEqual(expensive, [...expensive].sort((a, b) => b - a), "the most expensive first");
  await page.getByRole("link", { name: "Next page" }).click();
  const next = await costs();
  assert.ok(next[0] <= expensive.at(-1), "the order goes on over pages");
  await shot(page, "sessions-by-cost");
});

await check("session: chain, curve, tools", async () => {
  await page.goto(`${BASE}/sessions/${sessions[1]}`);
  const chain = page.locator("ol.chain > li");
  assert.equal(await chain.count(), 3);
  assert.equal(await page.locator("ol.chain [aria-current] b").textContent(), "fix-auth.2");
  assert.equal(await chain.first().locator("i").textContent(), "/clear");
  assert.equal(await page.locator("h1 .pill").nth(1).textContent(), "2 of 3");
  assert.ok(await page.locator("path.line").isVisible());
  const times = await page.locator(".course text:not(.axis text, .say)").allTextContents();
  assert.ok(times.length > 2 && new Set(times).size === times.length, `times said once: ${times}`);
  assert.ok((await page.locator(".point title").count()) > 10);
  assert.ok((await page.locator("ol.turns > li").count()) >= 9);
  assert.ok((await page.locator("table.bars rect.error").count()) > 0, "errors stand out");
  await page.getByRole("link", { name: /^fix-auth\.3/ }).click();
  await page.waitForURL(`${BASE}/sessions/${sessions[2]}`);
  assert.equal(await page.locator("ol.chain [aria-current] b").textContent(), "fix-auth.3");
  await page.goto(`${BASE}/sessions/${resumed}`);
  assert.match(await page.locator(".cut text").textContent(), /^3 h closed$/);
  const plot = await page.locator(".course svg.plot").boundingBox();
  for (const mark of await page.locator(".course .mark").all()) {
    const { x, width } = await mark.boundingBox();
    assert.ok(x >= plot.x && x + width <= plot.x + plot.width, "every mark is inside");
  }
  await page.getByText("no answer").waitFor();
  await shot(page, "session-resumed");
  await page.emulateMedia({ colorScheme: "dark" });
  await shot(page, "dark-session-resumed");
  await page.emulateMedia({ colorScheme: "light" });
  await page.goto(`${BASE}/sessions/${incomplete}`);
  await page.getByText(/Not all of this session has arrived: 1 event \(4\)/).waitFor();
});

await check("health: gaps and machines", async () => {
  await page.goto(`${BASE}/health`);
  assert.ok((await page.getByText("1 event (4)").count()) > 0);
  assert.equal(await page.locator("section").last().locator("tbody tr").count(), 6, "a line for each machine");
});

await check("live: whoever connects sees no empty page", async () => {
  const watching = await context.newPage();
  await watching.addInitScript(() => {
    window.seen = [];
    document.addEventListener("DOMContentLoaded", () => {
      const note = () => window.seen.push([document.querySelectorAll("#running > li").length, document.getElementById("state").className]);
      const observer = new MutationObserver(note);
      observer.observe(document.getElementById("running"), { childList: true });
      observer.observe(document.getElementById("state"), { attributes: true });
      note();
    });
  });
  await watching.goto(`${BASE}/live`);
  await watching.locator("#state.on").waitFor();
  const seen = await watching.evaluate(() => window.seen);
  assert.ok(seen[0][0] >= 1, "the page is whole before its stream begins");
  assert.deepEqual(seen.slice(1), [[seen[0][0], "state on"]], "and connected with all of it in place");
  await watching.close();
});

await check("live: a session, a /clear as a chain, an end", async () => {
  await page.goto(`${BASE}/live`);
  // Connected is said when all that runs is in its place.
  await page.locator("#state.on").waitFor();
  const running = page.locator("#running > li");
  const before = await running.count();
  assert.ok(before >= 1, "the chain's last session runs");
  const started = await ask("start");
  await page.locator(`#run-${started.id}`).waitFor();
  await page.locator(`[id="told-session.start-${started.id}"]`).waitFor();
  assert.equal(await running.count(), before + 1);
  assert.equal(await page.locator("#count").textContent(), String(before + 1));
  const left = await page.locator("#feed > li > .agent").evaluateAll((all) => all.map((one) => one.getBoundingClientRect().x));
  assert.equal(new Set(left).size, 1, "agents stand below each other");
  const cleared = await ask("clear");
  await page.locator(`#run-${cleared.id}`).waitFor();
  await page.locator(`#run-${started.id}`).waitFor({ state: "detached" });
  await page.locator(`[id="told-session.end-${started.id}"]`).getByText("cleared").waitFor();
  await shot(page, "live-cleared");
  await page.locator(`#run-${cleared.id} a`).click();
  assert.equal(await page.locator("ol.chain > li").count(), 2);
  await page.goto(`${BASE}/live`);
  await page.locator("#state.on").waitFor();
  await ask("end");
  await page.locator(`#run-${cleared.id}`).waitFor({ state: "detached" });
  assert.equal(await running.count(), before);
});

await check("keyboard", async () => {
  await page.goto(BASE);
  await page.keyboard.press("Tab");
  const skip = page.locator("a.skip");
  assert.ok(await skip.evaluate((link) => link === document.activeElement), "the first stop skips the rest");
  assert.ok((await skip.boundingBox()).y >= 0, "and can be seen");
  await page.keyboard.press("Enter");
  assert.equal(await page.evaluate(() => document.activeElement.id), "content");
  await page.goto(BASE);
  for (let stop = 0; stop < 4; stop += 1) await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "Sessions");
  const outline = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
  assert.equal(outline, "solid", "where one is can be seen");
  await page.keyboard.press("Enter");
  await page.waitForURL(`${BASE}/sessions`);
});

await check("light and dark", async () => {
  const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor.match(/\d+/g).map(Number)[0]);
  await page.goto(BASE);
  assert.ok((await background()) > 200);
  await page.emulateMedia({ colorScheme: "dark" });
  assert.ok((await background()) < 60);
  for (const path of pages) {
    await page.goto(BASE + path);
    await shot(page, `dark-${path === "/" ? "overview" : path.includes(sessions[1]) ? "session" : path.slice(1)}`);
  }
  await page.emulateMedia({ colorScheme: "light" });
});

await check("on a phone", async () => {
  await page.setViewportSize({ width: 375, height: 812 });
  for (const path of [...pages, `/sessions/${incomplete}`, `/sessions/${resumed}`, "/?range=90d&agent=claude&user=mira"]) {
    await page.goto(BASE + path);
    const width = await page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(width <= 375, `${path} is ${width} wide`);
    await shot(page, `phone-${path === "/" ? "overview" : path.includes(sessions[1]) ? "session" : path.slice(1).replace(/\W.*/, "")}`);
  }
  await page.goto(`${BASE}/sessions`);
  assert.match(await page.locator("td .narrow:visible").first().textContent(), /(ago|now|yesterday|\d [A-Z][a-z]+) · \w+/);
  const button = page.getByRole("button", { name: "Apply" });
  assert.ok(!(await button.isVisible()), "the filters are folded");
  await page.locator("label.fold").click();
  assert.ok(await button.isVisible(), "and unfold");
  await shot(page, "phone-filters");
  await page.setViewportSize({ width: 1280, height: 900 });
  assert.ok(!(await page.locator("td .narrow").first().isVisible()));
  const [to, end] = [await page.getByLabel("To", { exact: true }).boundingBox(), await button.boundingBox()];
  assert.ok(Math.abs(to.y - end.y) < 12, "the button stands beside the last field");
});

await check("whatever things are called", async () => {
  const { id } = await ask("long");
  for (const viewport of [{ width: 375, height: 812 }, { width: 1280, height: 900 }]) {
    await page.setViewportSize(viewport);
    for (const path of ["/", "/sessions", `/sessions/${id}`, "/live", "/health"]) {
      await page.goto(BASE + path);
      const width = await page.evaluate(() => document.documentElement.scrollWidth);
      assert.ok(width <= viewport.width, `${path} is ${width} wide`);
      await shot(page, `long-${viewport.width}${path.replace(id, "one").replaceAll("/", "-")}`);
    }
  }
  await page.goto(`${BASE}/sessions`);
  for (const line of await page.locator(".place .line").all()) assert.ok((await line.boundingBox()).height < 30, "one line each");
  assert.ok(await page.evaluate(() => {
    const table = document.querySelector(".scroll");
    return table.scrollWidth <= table.clientWidth;
  }), "every column is in sight");
});

await check("without script", async () => {
  const still = await watched({ javaScriptEnabled: false, storageState: await context.storageState() });
  const other = await still.newPage();
  for (const path of pages) assert.equal((await other.goto(BASE + path)).status(), 200, path);
  await still.close();
});

await check("logout", async () => {
  await page.goto(BASE);
  await page.getByRole("button", { name: "Log out" }).click();
  await page.waitForURL(`${BASE}/login`);
  await page.goto(`${BASE}/health`);
  assert.equal(new URL(page.url()).pathname, "/login");
  assert.deepEqual(await context.cookies(), []);
});

await browser.close();
process.exit(failed === 0 ? 0 : 1);
