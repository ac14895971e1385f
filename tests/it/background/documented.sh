# A Claude Code that paints its composer, answers each prompt at once, asks for a permission where the prompt is to touch a file,
# and begins a new conversation at `/clear`.
root="$HOME/.claude"
project="$root/projects/$(pwd -P | sed 's/[^A-Za-z0-9]/-/g')"
mkdir -p "$root/sessions" "$project"
id= prompt=
while [ $# -gt 0 ]; do
  case $1 in
  --session-id | --resume) id=$2; shift 2 ;;
  --) prompt=$2; break ;;
  -*) shift ;;
  *) prompt=$1; shift ;;
  esac
done
new_id() { cat /proc/sys/kernel/random/uuid; }
[ -n "$id" ] || id=$(new_id)
read -r _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ start _ < /proc/$$/stat
be() {
  printf '{"pid":%s,"sessionId":"%s","procStart":"%s","cwd":"%s","version":"2.1.197","status":"%s","statusUpdatedAt":%s}' \
    $$ "$id" "$start" "$(pwd -P)" "$1" "$(date +%s%3N)" > "$root/sessions/$$.new"
  mv "$root/sessions/$$.new" "$root/sessions/$$.json"
}
now() { date -u +%Y-%m-%dT%H:%M:%S.%3NZ; }
user() {
  printf '{"type":"user","sessionId":"%s","uuid":"%s","timestamp":"%s","message":{"role":"user","content":"%s"}}\n' \
    "$id" "$(new_id)" "$(now)" "$1" >> "$project/$id.jsonl"
}
answer() {
  printf '{"type":"assistant","sessionId":"%s","uuid":"%s","timestamp":"%s","message":{"id":"%s","role":"assistant","model":"claude-opus-4-8","content":[{"type":"text","text":"%s"}],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":2}}}\n' \
    "$id" "$(new_id)" "$(now)" "$(new_id)" "$1" >> "$project/$id.jsonl"
}
paint() {
  printf '\033[2J\033[H%s\n────────────────────\n❯ \n────────────────────\n\033[3;3H' "$1"
}
# Waits for the key that answers the question.
ask() {
  saved=$(stty -g)
  stty -icanon -echo
  printf '\033[2J\033[H────────────────────\n Bash command\n\n   %s\n\n Do you want to proceed?\n ❯ 1. Yes\n   2. No\n\n Esc to cancel' "$1"
  dd bs=1 count=1 >/dev/null 2>&1
  stty "$saved"
}
# The answer comes last, as with the real one: once it can be read nothing says any more that the agent works.
turn() {
  be busy
  user "$1"
  [ "$1" != 'Touch the file' ] || ask 'touch file'
  be idle
  paint "● Done."
  answer "Done."
}
be idle
paint "Claude Code"
[ -z "$prompt" ] || turn "$prompt"
while read -r line; do
  case $line in
  '') paint "● Done." ;;
  /clear)
    printf '{"display":"/clear","timestamp":%s,"project":"%s","sessionId":"%s"}\n' "$(date +%s%3N)" "$(pwd -P)" "$id" \
      >> "$root/history.jsonl"
    id=$(new_id)
    user '<command-name>/clear</command-name>'
    be idle
    paint "Claude Code" ;;
  *) turn "$line" ;;
  esac
done
