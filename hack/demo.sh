#!/usr/bin/env bash
# The whole story in a minute, on a real engine: create, exec, kill -9 the daemon in mid-exec, carry on, stop, resume,
# pause, lose the database, delete. Uses directories of its own, ends what it started, leaves nothing behind. Fails if anything is not as told.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then bold=$'\e[1m' dim=$'\e[2m' green=$'\e[32m' red=$'\e[31m' off=$'\e[0m'
else bold='' dim='' green='' red='' off=''; fi
step() { printf '\n%s%s%s\n' "$bold" "$*" "$off"; }
say()  { printf '%s%s%s\n' "$dim" "$*" "$off"; }
good() { printf '%s%s%s\n' "$green" "ok: $*" "$off"; }
die()  { printf '%s%s%s\n' "$red" "failed: $*" "$off" >&2; tail -n 20 "$home/agboxd.log" >&2 || true; exit 1; }
run()  { printf '%s$ agbox %s%s\n' "$dim" "$*" "$off"; bin/agbox "$@"; }

home=$(mktemp -d "${TMPDIR:-/tmp}/agbox-demo.XXXXXX")
export XDG_RUNTIME_DIR=$home/run XDG_DATA_HOME=$home/data XDG_CONFIG_HOME=$home/config
unset AGBOX_HOST
mkdir -p "$XDG_CONFIG_HOME/agents-sandbox"
printf '[http]\nlisten = "off"\n' >"$XDG_CONFIG_HOME/agents-sandbox/config.toml"
daemon=

start_daemon() {
  bin/agboxd >>"$home/agboxd.log" 2>&1 &
  daemon=$!
  disown "$daemon"
  for _ in $(seq 100); do
    bin/agbox version >/dev/null 2>&1 && return
    kill -0 "$daemon" 2>/dev/null || die "agboxd ended at its start"
    sleep 0.1
  done
  die "agboxd does not answer"
}

ours() { # everything that Docker holds with the label of this demo's daemon
  local label=label=io.github.1996fanrui.agents-sandbox.instance=$instance
  docker ps -aq --filter "$label"; docker network ls -q --filter "$label"
}

finish() {
  code=$?
  if [ -n "$daemon" ]; then
    kill "$daemon" 2>/dev/null || true
    for _ in $(seq 100); do kill -0 "$daemon" 2>/dev/null || break; sleep 0.1; done
  fi
  bin/agboxd --user purge --yes --volumes >/dev/null || true
  rm -rf "$home"
  exit "$code"
}
trap finish EXIT

step "1. What has to be there: a Docker engine, the base image, the programs"
hack/engine.sh
hack/base-image.sh
make --no-print-directory build
start_daemon
instance=$(cat "$XDG_DATA_HOME/agents-sandbox/instance")
good "agboxd runs (pid $daemon)"

step "2. Say what you want"
sed 's/^/    /' config/examples/hello.yaml
run apply -f config/examples/hello.yaml --wait
run get

step "3. Run something in it"
run exec hello -- sh -c 'echo "hello from $(hostname), I am $(id -un)"'

step "4. Start something long, and kill -9 the daemon in the middle of it"
# shellcheck disable=SC2016 # the shell in the sandbox expands it
exec_id=$(bin/agbox exec hello --detach -- sh -c 'i=1; while [ $i -le 8 ]; do echo "line $i"; i=$((i+1)); sleep 0.5; done; exit 7')
say "exec $exec_id: eight lines in four seconds, then exit code 7"
sleep 1
kill -9 "$daemon"
good "agboxd is dead; the exec does not know"
sleep 1.5
start_daemon
good "agboxd is back (pid $daemon), and has found everything again:"
run execs hello
say "\$ agbox logs -f $exec_id"
bin/agbox logs -f "$exec_id" >"$home/out" || die "logs ended with an error"
sed 's/^/    /' "$home/out"
[ "$(cat "$home/out")" = "$(for i in 1 2 3 4 5 6 7 8; do echo "line $i"; done)" ] || die "the log is not complete"
good "the log is complete: nothing ran twice, nothing is missing"
events=$(bin/agbox events hello)
grep -q 'EXEC_FAILED.*7' <<<"$events" || die "the exit code is not on record: $events"
good "its true exit code is on record: 7"

step "5. Stop, resume: same files"
run exec hello -- sh -c 'echo kept > /workspace/note'
run stop hello
run get
run resume hello
[ "$(bin/agbox exec hello -- cat /workspace/note)" = kept ] || die "the file is gone"
good "/workspace/note is still there"

step "6. Pause: frozen with its memory; then lose the database"
# shellcheck disable=SC2016
exec_id=$(bin/agbox exec hello --detach -- sh -c 'i=1; while [ $i -le 6 ]; do echo "beat $i"; i=$((i+1)); sleep 0.3; done; exit 5')
sleep 0.5
run pause hello
kill -9 "$daemon"
rm "$XDG_DATA_HOME/agents-sandbox/ids.db"
good "agboxd is dead and its database is gone"
start_daemon
good "agboxd is back (pid $daemon); it has rebuilt its records from what it found:"
run get
run resume hello
bin/agbox logs -f "$exec_id" >"$home/out" || die "logs ended with an error"
[ "$(cat "$home/out")" = "$(for i in 1 2 3 4 5 6; do echo "beat $i"; done)" ] || die "the log is not complete: $(cat "$home/out")"
good "the command went on where it was frozen, and its log is complete"
[ "$(bin/agbox exec hello -- cat /workspace/note)" = kept ] || die "the file is gone"

step "7. What happened since, in order"
run events hello

step "8. Delete: Docker holds nothing of ours"
run delete hello --wait
[ -z "$(ours)" ] || die "left behind: $(ours)"
[ -z "$(ls -A "$XDG_DATA_HOME/agents-sandbox/exec-logs" "$XDG_DATA_HOME/agents-sandbox/s" 2>/dev/null | grep -v : || true)" ] || die "files are left behind"
good "no container, no network, no file"
printf '\n%sThat is agbox.%s Next: README.md has a tour.\n' "$bold" "$off"
