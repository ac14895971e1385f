// The MCP server as a client of the official SDK uses it. Run by tests/it/mcp.rs, which has made the sessions it asks about; it
// prints "ok NAME" and "FAILED NAME: why".
//
// CODEMIE is the binary, FOLDER the folder of the caller, MODULES where the SDK is installed, PART which checks are made.
import { createRequire } from "node:module";
import assert from "node:assert/strict";

const { CODEMIE, FOLDER, MODULES, PART } = process.env;
const sdk = createRequire(`${MODULES}/`);
const { Client } = sdk("@modelcontextprotocol/sdk/client/index.js");
const { StdioClientTransport } = sdk("@modelcontextprotocol/sdk/client/stdio.js");

const TOOLS = [
  "start_session",
  "list_sessions",
  "get_session_data",
  "send_message",
  "wait_for_session",
  "resume_session",
  "end_session",
  "explain_session",
];

const open = async (...args) => {
  const transport = new StdioClientTransport({
    command: CODEMIE,
    args: ["mcp", ...args],
    env: { ...process.env },
    cwd: FOLDER,
    stderr: "inherit",
  });
  const client = new Client({ name: "codemie-test", version: "1.0.0" });
  await client.connect(transport);
  // From here on the client checks every answer by the tool's own schema.
  const { tools } = await client.listTools();
  const call = async (name, args = {}, options) => {
    const answer = await client.callTool({ name, arguments: args }, undefined, options);
    assert.deepEqual(JSON.parse(answer.content[0].text), answer.structuredContent, "text and structure are the same");
    if (!answer.isError) return answer.structuredContent;
    const { code, message, next } = answer.structuredContent;
    assert.ok(code && message && next, JSON.stringify(answer.structuredContent));
    return { failed: code };
  };
  return { client, tools, call };
};

let failed = 0;
const check = async (name, work) => {
  try {
    await work();
    console.log(`ok ${name}`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED ${name}: ${String(error.stack ?? error).replaceAll("\n", " | ")}`);
  }
};
const until = async (look, what) => {
  for (const end = Date.now() + 20_000; Date.now() < end; ) {
    const seen = await look();
    if (seen) return seen;
    await new Promise((done) => setTimeout(done, 50));
  }
  throw new Error(`never: ${what}`);
};

// A session that has ended is called "plain", one in another terminal "busy".
const asked = async () => {
  const { client, tools, call } = await open();
  await check("the server introduces itself", async () => {
    assert.equal(client.getServerVersion().name, "codemie");
    assert.ok(client.getServerCapabilities().tools);
    assert.match(client.getInstructions(), /start_session/);
  });
  await check("every tool has its name, description and schemas", async () => {
    assert.deepEqual(
      tools.map((tool) => tool.name),
      TOOLS,
    );
    for (const { name, description, inputSchema, outputSchema } of tools) {
      assert.ok(description.length > 20, name);
      assert.equal(inputSchema.type, "object", name);
      assert.equal(outputSchema.type, "object", name);
    }
    const start = tools[0].inputSchema;
    assert.deepEqual(start.required, ["agent"]);
    assert.deepEqual(Object.keys(start.properties).sort(), ["agent", "args", "cwd", "idempotency_key", "name", "prompt"]);
  });
  await check("sessions are listed, running ones alone on request", async () => {
    const names = async (args) => (await call("list_sessions", args)).sessions.map((one) => one.name).sort();
    assert.deepEqual(await names({}), ["busy", "plain"]);
    assert.deepEqual(await names({ active: true }), ["busy"]);
    assert.deepEqual(await names({ scope: "mine" }), []);
    assert.deepEqual(await call("list_sessions", { scope: "all" }), { failed: "scope_too_wide" });
  });
  await check("a session without a conversation is no error", async () => {
    const ended = await call("get_session_data", { session: "plain" });
    assert.deepEqual([ended.status, ended.pending, ended.items], ["completed", false, []]);
    const busy = await call("get_session_data", { session: "busy" });
    assert.deepEqual([busy.status, busy.items], ["active", []]);
  });
  await check("evidence is explained", async () => {
    const explained = await call("explain_session", { session: "plain" });
    assert.equal(explained.name, "plain");
  });
  await check("errors have a code, a message and what to do next", async () => {
    for (const [tool, args, code] of [
      ["get_session_data", { session: "nobody" }, "no_such_session"],
      ["get_session_data", { session: "plain", cursor: "nonsense" }, "stale_cursor"],
      ["get_session_data", {}, "invalid_arguments"],
      ["send_message", { session: "plain", text: "hi" }, "ended"],
      ["send_message", { session: "busy", text: "hi" }, "foreground"],
      ["send_message", { session: "busy", text: "!id" }, "text_not_allowed"],
      ["resume_session", { session: "plain" }, "not_resumable"],
      ["resume_session", { session: "busy" }, "already_running"],
      ["end_session", { session: "busy" }, "foreground"],
      ["start_session", { agent: "bash" }, "unknown_agent"],
      ["start_session", { agent: "claude", cwd: ".." }, "folder_not_allowed"],
      ["start_session", { agent: "claude", args: ["-p"] }, "argument_not_allowed"],
      ["start_session", { agent: "claude", env: {} }, "invalid_arguments"],
    ]) {
      assert.deepEqual(await call(tool, args), { failed: code }, `${tool} ${JSON.stringify(args)}`);
    }
    await assert.rejects(client.callTool({ name: "no_such_tool", arguments: {} }));
    const already = await call("end_session", { session: "plain" });
    assert.deepEqual([already.ended, already.already], [true, true]);
  });
  await check("a wait is pending when its time is up, and reports progress", async () => {
    assert.equal((await call("wait_for_session", { session: "plain" })).result, "exit");
    assert.equal((await call("wait_for_session", { session: "busy", timeout_ms: 100 })).result, "pending");
    const progress = [];
    const options = { onprogress: (one) => progress.push(one) };
    const waited = await call("wait_for_session", { session: "busy", timeout_ms: 6_000, until: ["exit"] }, options);
    assert.equal(waited.result, "pending");
    assert.ok(progress.length > 0 && progress[0].message.includes("busy"), JSON.stringify(progress));
  });
  await check("a call can be cancelled, and a flood is refused", async () => {
    const abort = new AbortController();
    const waiting = client.callTool({ name: "wait_for_session", arguments: { session: "busy" } }, undefined, {
      signal: abort.signal,
    });
    setTimeout(() => abort.abort(), 200);
    await assert.rejects(waiting);
    const wait = () => call("wait_for_session", { session: "busy", timeout_ms: 1_000 });
    const answers = await Promise.all(Array.from({ length: 60 }, wait));
    assert.ok(answers.some((answer) => answer.failed === "busy"));
    assert.ok(answers.some((answer) => answer.result === "pending"));
    // The cancelled call gives its place back, too.
    const free = async () => (await call("list_sessions")).sessions;
    assert.equal((await until(free, "an answer after the flood")).length, 2);
  });
  await client.close();
};

// A program that is no agent, in the background: "talker" of mcp.genie.
const background = async () => {
  const first = await open("--compat", "genie");
  await check("the other server's names are there", async () => {
    const names = first.tools.map((tool) => tool.name);
    assert.deepEqual(names, [...TOOLS, "run", "resume", "view", "stop"]);
  });
  let session;
  await check("a session starts in the background and shows its screen", async () => {
    const started = await first.call("run", { agent: "talker", name: "parrot" });
    assert.ok(started.sessionId && started.created, JSON.stringify(started));
    session = started.sessionId;
    const data = () => first.call("get_session_data", { session });
    const seen = await until(async () => {
      const now = await data();
      assert.equal(now.failed, undefined, "never missing, and never an error");
      return now.screen?.join("\n").includes("ready") && now;
    }, "its screen");
    assert.deepEqual([seen.status, seen.name], ["active", "parrot"]);
    const listed = (await first.call("list_sessions", { active: true, scope: "mine" })).sessions;
    assert.deepEqual(listed.map((one) => [one.name, one.background]), [["parrot", true]]);
  });
  await check("a wait for it is pending with a cursor", async () => {
    const waited = await first.call("wait_for_session", { session, until: "exit", timeout_ms: 300 });
    assert.equal(waited.result, "pending");
    assert.ok(waited.cursor, JSON.stringify(waited));
  });
  await check("it lives on when the server ends, and another server ends it", async () => {
    await first.client.close();
    const second = await open("--compat", "genie");
    const active = (await second.call("list_sessions", { active: true })).sessions;
    assert.deepEqual(active.map((one) => one.sessionId), [session]);
    const waiting = second.call("wait_for_session", { session, until: "exit" });
    const ended = await second.call("stop", { sessionId: session });
    assert.deepEqual([ended.ended, ended.survivors], [true, []]);
    assert.equal((await waiting).result, "exit");
    assert.equal((await second.call("view", { sessionId: session })).status === "active", false);
    await second.client.close();
  });
};

await (PART === "background" ? background() : asked());
process.exit(failed === 0 ? 0 : 1);
