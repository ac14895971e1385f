//! A stand-in for Claude Code that writes its files on command: registers its process, answers, begins a new conversation.
//! It costs next to nothing, so many can run at once.

use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use rusqlite::Connection;

use crate::sandbox::Sandbox;

/// Bounds failures only.
const TIMEOUT: Duration = Duration::from_mins(1);

/// Looks again and again until something is found.
pub(crate) fn await_some<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "never seen: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Reads a command per line and says `done` after each: `be ID` registers a conversation, `say KEY` answers in it, `write FILE
/// JSON` appends a line to a file of the project (named without its ending), `exit N`.
const SCRIPT: &str = r#"
root="$HOME/.claude"
project="$root/projects/$(pwd -P | sed 's/[^A-Za-z0-9]/-/g')"
mkdir -p "$root/sessions" "$project"
read -r _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ start _ < /proc/$$/stat
while read -r order what; do
  case $order in
  be)
    id=$what
    printf '{"pid":%s,"sessionId":"%s","procStart":"%s","cwd":"%s","version":"2.1.197"}' \
      $$ "$id" "$start" "$(pwd -P)" > "$root/sessions/$$.json" ;;
  say)
    printf '{"type":"assistant","sessionId":"%s","uuid":"%s","timestamp":"%s","message":{"id":"%s","role":"assistant","model":"claude-opus-4-8","content":[],"usage":{"input_tokens":1,"output_tokens":2}}}\n' \
      "$id" "$what" "$(date -u +%Y-%m-%dT%H:%M:%S.%3NZ)" "$what" >> "$project/$id.jsonl" ;;
  write)
    file="$project/${what%% *}.jsonl"
    mkdir -p "$(dirname "$file")"
    printf '%s\n' "${what#* }" >> "$file" ;;
  exit)
    rm -f "$root/sessions/$$.json"
    exit "$what" ;;
  esac
  echo done
done
"#;

/// Puts the stand-in where [`Scripted::start`] finds it.
pub(crate) fn install(sandbox: &Sandbox) -> PathBuf {
    sandbox.script("agent/claude", SCRIPT)
}

/// One wrapped stand-in.
pub(crate) struct Scripted {
    child: Child,
    database: PathBuf,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Scripted {
    pub(crate) fn start(sandbox: &Sandbox, agent: &Path, folder: &Path, args: &[&str]) -> Self {
        let mut command = sandbox.codemie(&["claude"]);
        command.args(args).env("CODEMIE_REAL_CLAUDE", agent).current_dir(folder);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (orders, answers) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, database: sandbox.path(".codemie/codemie.db"), orders, answers }
    }

    /// Takes up a conversation, and waits until codemie knows.
    pub(crate) fn be(&mut self, id: &str) {
        self.order(&format!("be {id}"));
        await_some("the conversation's session", || {
            let conn = Connection::open(&self.database).ok()?;
            let sql = "SELECT 1 FROM session WHERE agent_session = ?1 AND phase = 'open'";
            conn.query_row(sql, [id], |_| Ok(())).ok()
        });
    }

    /// Waits until the wrapper has looked at the agent's folders for the first time. It takes files that it finds then for older
    /// than the run, and watches the folders from then on.
    pub(crate) fn await_first_look(&self) {
        await_some("the wrapper's watch", || {
            let descriptors = std::fs::read_dir(format!("/proc/{}/fdinfo", self.pid())).ok()?;
            let mut texts =
                descriptors.flatten().filter_map(|entry| std::fs::read_to_string(entry.path()).ok());
            texts.any(|text| text.contains("inotify wd:")).then_some(())
        });
    }

    /// Gives an order and waits until it is carried out.
    pub(crate) fn order(&mut self, order: &str) {
        self.orders.write_all(format!("{order}\n").as_bytes()).unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        assert_eq!(answer, "done\n", "after {order:?}");
    }

    /// Its exit code.
    pub(crate) fn exit(mut self, code: i32) -> Option<i32> {
        self.orders.write_all(format!("exit {code}\n").as_bytes()).unwrap();
        drop(self.orders);
        self.child.wait().unwrap().code()
    }

    /// The wrapper's.
    pub(crate) fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// Waits for its end, however it comes. Its input stays open meanwhile: the end of that would be another way to go.
    pub(crate) fn wait(mut self) {
        self.child.wait().unwrap();
    }
}
