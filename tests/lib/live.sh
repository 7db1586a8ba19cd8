# shellcheck shell=bash
# The live part: a real starknet-devnet, a real gateway in front of it, real clients. Reads TARGET,
# WORK and VENV. Every process started here is ended here, by its pid.

PIDS=()

# Starts a command in the background as the leader of its own process group, as a terminal's Ctrl-C
# needs it; its output goes to $WORK/NAME.log. Sets STARTED.
start() {
  local name=$1
  shift
  : >"$WORK/$name.log" # exists before the command starts
  set -m
  "$@" >"$WORK/$name.log" 2>&1 </dev/null &
  STARTED=$!
  set +m
  PIDS+=("$STARTED")
}

alive() { kill -0 "$1" 2>/dev/null; }

# Waits until a log holds what the sed script prints, or its process has ended. Sets FOUND.
await_line() {
  local name=$1 pid=$2 script=$3
  for _ in {1..600}; do
    FOUND=$(sed -nE "$script" "$WORK/$name.log" | sed -n 1p)
    [[ -z $FOUND ]] || return 0
    alive "$pid" || break
    sleep 0.1
  done
  echo "$name did not come up" >&2
  return 1
}

# Ends a process and returns its exit status; one that runs on for 30 s is a failure.
finish() {
  local signal=$1 pid=$2
  kill -s "$signal" "$pid"
  for _ in {1..300}; do
    alive "$pid" || break
    sleep 0.1
  done
  if alive "$pid"; then
    echo "process $pid ignores $signal" >&2
    return 1
  fi
  wait "$pid"
}

# The processes, as /proc/PID/environ, that were started with our mark in their environment. grep's
# exit status is ignored: processes start and end while it reads.
marked() { grep -lzx "SMOKE_MARK=$WORK" /proc/[0-9]*/environ 2>/dev/null || true; }

stop_all() {
  local pid process
  for pid in "${PIDS[@]}"; do
    alive "$pid" || continue
    kill -s TERM "$pid" 2>/dev/null || true
    for _ in {1..50}; do
      alive "$pid" || break
      sleep 0.1
    done
    kill -s KILL "$pid" 2>/dev/null || true
  done
  for process in $(marked); do
    kill -s KILL "${process//[!0-9]/}" 2>/dev/null || true
  done
}

show_logs() {
  local log
  for log in "$WORK"/*.log; do
    [[ -s $log ]] || continue
    printf '\n--- the end of %s\n' "${log##*/}" >&2
    tail -n 20 "$log" >&2
  done
}

start_network() {
  start devnet starknet-devnet --seed 0 --chain-id PORTCULLIS_DEV --host 127.0.0.1 --port 0
  DEVNET_PID=$STARTED
  await_line devnet "$DEVNET_PID" 's/.*listening on 127\.0\.0\.1:([0-9]+).*/\1/p'
  NODE=http://127.0.0.1:$FOUND/rpc

  # All clients share one address: the limit is tested elsewhere, at its exact bound.
  cat >"$WORK/live.toml" <<EOF
[node]
url = "$NODE"
[gateway]
listen = "127.0.0.1:0"
requests_per_minute = 100000
docs = true
[admin]
listen = "127.0.0.1:0"
EOF
  "$TARGET/debug/portcullis" check --config "$WORK/live.toml"
  start gateway "$TARGET/debug/portcullis" serve --config "$WORK/live.toml"
  GATEWAY_PID=$STARTED
  local address='"message":"listening".*"surface":"SURFACE".*"address":"([^"]+)"'
  await_line gateway "$GATEWAY_PID" "s/.*${address/SURFACE/gateway}.*/\1/p"
  GATEWAY=http://$FOUND/rpc
  await_line gateway "$GATEWAY_PID" "s/.*${address/SURFACE/admin}.*/\1/p"
  ADMIN=http://$FOUND
  echo "gateway $GATEWAY, admin $ADMIN, node $NODE"
}

with_urls() { env PORTCULLIS_GATEWAY="$GATEWAY" PORTCULLIS_NODE="$NODE" "$@"; }

client_js() { (cd tests/clients/js && with_urls node --test {account,reads,refusals}.test.mjs); }

# A node whose chain the tests change, and a gateway with its cache on.
cache_js() {
  (cd tests/clients/js && PORTCULLIS=$TARGET/debug/portcullis \
    node --test --test-concurrency=2 cache_*.test.mjs)
}

# The documents as generators and readers use them: each suite starts a node and a whole system.
documents_js() {
  (cd tests/clients/js && PORTCULLIS=$TARGET/debug/portcullis \
    node --test --test-concurrency=1 {examples,generated}.test.mjs)
}

# A page in a real browser, on another origin than the gateway's.
browser_js() {
  (cd tests/clients/js && PORTCULLIS=$TARGET/debug/portcullis node --test browser_*.test.mjs)
}

# The relay's suites start what they need: a node, networks on it, relays.
relay_js() {
  (cd tests/clients/js && PORTCULLIS=$TARGET/debug/portcullis \
    node --test --test-concurrency=2 relay_*.test.mjs)
}

# The operator's page in a real browser, with a system of its own.
operator_page() {
  (cd tests/clients/js && PORTCULLIS=$TARGET/debug/portcullis CHROMIUM=$(command -v chromium) \
    node --test operator_*.test.mjs)
}

# Real crashes: kill -9 at chosen and at random moments.
crashes() { PORTCULLIS=$TARGET/debug/portcullis node tests/crash/run.mjs --rounds "$1"; }

# Compares every response with the node's own.
soak() { PORTCULLIS=$TARGET/debug/portcullis node tests/soak/run.mjs "$@"; }

# Tests of the rules by which a soak is judged.
soak_judge() { node --test tests/soak/*.test.mjs; }

# The whole system, for a length such as 20m; its report is in target/soak/.
system_soak() { PORTCULLIS=$TARGET/debug/portcullis tests/soak/run "$1"; }

# The sidecar's suites start what they need, too, on SQLite and on PostgreSQL.
sidecar_js() {
  (cd tests/clients/js && PORTCULLIS=$TARGET/debug/portcullis \
    node --test --test-concurrency=2 sidecar_*.test.mjs)
}

sidecar_py() {
  PORTCULLIS=$TARGET/debug/portcullis "$VENV/bin/python" -B -m pytest \
    -c tests/clients/py/sidecar/pytest.ini tests/clients/py/sidecar
}

sidecar_crashes() {
  PORTCULLIS=$TARGET/debug/portcullis node tests/crash/webhook.mjs --rounds "$1"
}

# Random streams, as many or for as long as the arguments say.
framing() {
  env "PORTCULLIS_FRAMING_$1=$2" \
    cargo test ${CI:+--locked} --test framing -- --include-ignored --nocapture every_judge
}

# The long variants are judged by the waits of a build with optimisation.
attacks() {
  local build=debug
  if [[ -n ${PORTCULLIS_TEST_LONG-} ]]; then
    build=release
    cargo build "${LOCKED[@]}" --release
  fi
  PORTCULLIS=$TARGET/$build/portcullis "$VENV/bin/python" tests/attack/run.py
}

client_py() {
  PORTCULLIS=$TARGET/debug/portcullis with_urls "$VENV/bin/python" -B -m pytest \
    -c tests/clients/py/pytest.ini tests/clients/py
}

# Compares the responses that tests/it saw with the documented ones.
documents_are_seen() {
  "$VENV/bin/python" -B tests/lib/seen.py "$WORK/seen" conf/openapi/*.yaml
}

# A gateway of its own, with a certificate, in front of the same node.
tls_clients() {
  PORTCULLIS=$TARGET/debug/portcullis PORTCULLIS_NODE=$NODE tests/clients/tls.sh
}

metrics_are_clean() {
  curl -fsS -o "$WORK/metrics" "$ADMIN/metrics"
  echo "$(grep -vc '^#' "$WORK/metrics") samples"
  local complaints
  complaints=$(promtool check metrics <"$WORK/metrics" 2>&1) && [[ -z $complaints ]] || {
    echo "promtool: $complaints" >&2
    return 1
  }
}

# The alert rules: they parse, and each alert fires when it should and not before.
alerts_are_right() {
  promtool check config conf/prometheus/prometheus.yml
  promtool test rules conf/prometheus/tests/*.yml
  amtool check-config conf/prometheus/alertmanager.yml
}

# The same files and the dashboard, against a real Prometheus that scrapes a real program.
prometheus_live() {
  PORTCULLIS=$TARGET/debug/portcullis "$VENV/bin/python" -B tests/prometheus/run.py
}

# unshare(1) as root, or as a user who is mapped to root. Root itself would not own the database's
# socket as a mapped one, and has no user namespaces in a chroot.
unshare_as_root() {
  local mapped=()
  (($(id -u) == 0)) || mapped=(--map-root-user)
  unshare "${mapped[@]}" "$@"
}

# Real faults, with a real Prometheus and Alertmanager. In name spaces of its own: it mounts a small
# file system.
outages() {
  PORTCULLIS=$TARGET/debug/portcullis unshare_as_root --mount "$VENV/bin/python" -B tests/outages/run.py
}

# A fault at each step of a request. It mounts small file systems, as outages does, and traces the
# program, for which it needs root or CAP_SYS_PTRACE.
faults() {
  PORTCULLIS=$TARGET/debug/portcullis unshare_as_root --mount tests/faults/run.mjs
}

# Three instances and one store, with faults of each; six minutes, because a quota is of a minute.
# Wrong clocks and networks have fleets of their own, meanwhile.
fleet() {
  local python=$VENV/bin/python log=$WORK/fleet-faults.log faults status=0
  PORTCULLIS=$TARGET/debug/portcullis "$python" -B tests/fleet/faults.py >"$log" 2>&1 &
  faults=$!
  PORTCULLIS=$TARGET/debug/portcullis "$python" -B tests/fleet/run.py || status=$?
  wait "$faults" || status=$?
  cat "$log"
  PORTCULLIS=$TARGET/debug/portcullis "$python" -B tests/fleet/watcher.py || status=$?
  return "$status"
}

stop_network() {
  finish TERM "$GATEWAY_PID"
  finish TERM "$DEVNET_PID" || true # the node's exit status does not matter
}

# One run over a file with three mistakes: exit 1, and each mistake is named by its key path.
check_names_all() {
  cat >"$WORK/mistakes.toml" <<'EOF'
[node]
url = "ftp://127.0.0.1"
[gateway]
listen = "nowhere"
requests_per_minut = 180
EOF
  local status=0 key
  "$TARGET/debug/portcullis" check --config "$WORK/mistakes.toml" >"$WORK/check.log" 2>&1 ||
    status=$?
  cat "$WORK/check.log"
  ((status == 1)) || {
    echo "exit $status, not 1" >&2
    return 1
  }
  for key in node.url gateway.listen gateway.requests_per_minut; do
    grep -qF "$key" "$WORK/check.log" || {
      echo "$key is not named" >&2
      return 1
    }
  done
}

# Every manual page renders without a warning, and each shell loads and uses its completions.
manual_and_completions() {
  local program=$TARGET/debug/portcullis page shell complaints found
  "$program" man "$WORK/man" >"$WORK/pages"
  for page in "$WORK"/man/*.1; do
    complaints=$(groff -ww -mandoc -Tutf8 -rLL=120n "$page" 2>&1 >"$WORK/page")
    [[ -z $complaints && -s $WORK/page ]] || {
      echo "${page##*/}: $complaints" >&2
      return 1
    }
  done
  echo "$(wc -l <"$WORK/pages") manual pages"
  for shell in bash zsh fish; do
    "$program" completions "$shell" >"$WORK/completions.$shell"
    "$shell" -n "$WORK/completions.$shell"
    found=$(cd "$WORK" && "completed_by_$shell")
    echo "$shell: portcullis store im -> $found"
    [[ $found == import* ]] || return 1
  done
}

completed_by_bash() {
  bash --norc -c 'source completions.bash && complete -p portcullis >/dev/null || exit
    COMP_WORDS=(portcullis store im) COMP_CWORD=2
    _portcullis portcullis im store && echo "${COMPREPLY[@]}"'
}

# zsh completes at a terminal only: this checks that the function is registered.
completed_by_zsh() {
  zsh -f -c 'autoload -U compinit && compinit -D && source ./completions.zsh
    [[ $_comps[portcullis] == _portcullis ]] && functions _portcullis__subcmd__store_commands |
      grep -o "import:[A-Za-z ]*"'
}

completed_by_fish() { fish -N -c 'source completions.fish; complete -C "portcullis store im"'; }

# Runs each shell block of a document's section by itself, as a newcomer would paste it, with the
# addresses that `dev` chose. The paragraph before a block gives the statuses that it prints. zsh has
# no comments at its prompt, so a block has none.
follow() {
  local document=$1 section=$2 surface address block expected found files
  local blocks=$WORK/blocks
  rm -rf "$blocks"
  mkdir "$blocks"
  awk -v section="$section" -v blocks="$blocks" '
    /^##/ { here = $0 ~ "^#+ " section "$"; next }
    /^```/ { if (here && /^```sh/) { at++; print text > (blocks "/" at ".says") }
      code = /^```sh/ && here; text = ""; next }
    code { print > (blocks "/" at ".sh"); next }
    /^$/ { if (!ended) ended = 1; next }
    { if (ended) text = ""; ended = 0; text = text " " $0 }' "$document"
  for surface in gateway:8080 relay:8081 sidecar:8082 admin:8083; do
    address=$(sed -nE "s/^  ${surface%:*} +http:\/\/([0-9.:]+).*/\1/p" "$WORK/dev.log")
    sed -i "s/127\.0\.0\.1:${surface#*:}/$address/g" "$blocks"/*.sh
    # in a did:web within a URI, the colon is encoded twice
    sed -i "s/127\.0\.0\.1%253A${surface#*:}/${address/:/%253A}/g" "$blocks"/*.sh
  done
  sed -i 's/target\/release\/portcullis/portcullis/' "$blocks"/*.sh
  files=$(ls -A "$WORK/dev")
  for block in "$blocks"/*.sh; do
    expected=$(grep -oE '\b[1-5][0-9]{2}\b' "${block%.sh}.says" | xargs) || true
    (cd "$WORK/dev" && PATH=$TARGET/debug:$PATH bash "$block" </dev/null) \
      >"$WORK/followed.log" 2>&1
    found=$(sed -nE 's/.* -> ([0-9]{3})$/\1/p' "$WORK/followed.log" | xargs)
    echo "${document##*/}, $section: ${found:-no call}"
    zsh -fn "$block"
    if [[ $found != "$expected" || $(ls -A "$WORK/dev") != "$files" ]] ||
      grep -q '#' "$block" || grep -i 'not found$\|error:' "$WORK/followed.log"; then
      echo "it says $expected" >&2
      cat "$WORK/followed.log" >&2
      return 1
    fi
  done
}

# From the command to the printed URL, through each printed command, to a Ctrl-C that leaves no
# process behind.
dev_smoke() {
  mkdir "$WORK/dev"
  # Any free ports: the defaults may be in use on a machine that already runs the program.
  start dev env -C "$WORK/dev" SMOKE_MARK="$WORK" \
    PORTCULLIS__GATEWAY__LISTEN=127.0.0.1:0 PORTCULLIS__ADMIN__LISTEN=127.0.0.1:0 \
    PORTCULLIS__RELAY__LISTEN=127.0.0.1:0 PORTCULLIS__SIDECAR__LISTEN=127.0.0.1:0 \
    "$TARGET/debug/portcullis" dev
  local pid=$STARTED line answer ran=0
  await_line dev "$pid" 's/.*(http:\/\/127\.0\.0\.1:[0-9]+\/rpc).*/\1/p'
  echo "up: $FOUND"
  sed -nE 's/^[[:space:]$]*(curl .*)$/\1/p' "$WORK/dev.log" >"$WORK/commands"
  while IFS= read -r line; do
    echo "\$ $line"
    answer=$(cd "$WORK/dev" && bash -c "$line" </dev/null)
    echo "${answer:0:200}"
    if [[ -z $answer || $answer =~ '"reason":"'(parse|invalid|upstream|internal|unauthorized|pins) ||
      $answer =~ '"error":"'[A-Z] ]]; then
      echo "a printed command does not work" >&2
      return 1
    fi
    ran=$((ran + 1))
  done <"$WORK/commands"
  ((ran > 0)) || {
    echo "dev printed no command to try" >&2
    return 1
  }
  follow README.md "In sixty seconds"
  follow conf/interfaces.md "Try the webhook"

  kill -s INT -- "-$pid" # the whole group, as a terminal does
  for _ in {1..300}; do
    [[ -n $(marked) ]] || break
    sleep 0.1
  done
  if [[ -n $(marked) ]]; then
    echo "left behind after Ctrl-C: $(marked)" >&2
    return 1
  fi
  wait "$pid"
}
