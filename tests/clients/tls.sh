#!/usr/bin/env bash
# Third-party clients against a gateway with a certificate: curl, h2load and Chromium.
#
#   PORTCULLIS=target/debug/portcullis PORTCULLIS_NODE=http://127.0.0.1:5050/rpc tests/clients/tls.sh
#
# Starts the gateway in front of that node, and ends it. Exits 0 when every client got the expected
# response over the expected HTTP version.
set -euo pipefail

WORK=$(mktemp -d)
GATEWAY=
QUESTION='{"jsonrpc":"2.0","id":7,"method":"starknet_chainId","params":[]}'
ANSWER='{"jsonrpc":"2.0","id":7,"result":"0x'

at_exit() {
  local status=$?
  trap - EXIT INT TERM
  [[ -z $GATEWAY ]] || kill -s KILL "$GATEWAY" 2>/dev/null || true
  ((status == 0)) || tail -n 20 "$WORK/gateway.log" >&2
  rm -rf "$WORK"
  exit "$status"
}
trap at_exit EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

fail() {
  echo "tls.sh: $*" >&2
  exit 1
}

# A self-signed certificate for this machine, and its key.
make_certificate() {
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 \
    -subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1 \
    -keyout "$WORK/new.key" -out "$WORK/new.pem" 2>/dev/null
  chmod 600 "$WORK/new.key"
  mv "$WORK/new.key" "$WORK/edge.key"
  mv "$WORK/new.pem" "$WORK/edge.pem"
}

# Waits for the first match of a sed script in the gateway's log. Sets FOUND.
await_log() {
  for _ in {1..300}; do
    FOUND=$(sed -nE "$1" "$WORK/gateway.log" | sed -n 1p)
    [[ -z $FOUND ]] || return 0
    kill -0 "$GATEWAY" 2>/dev/null || break
    sleep 0.1
  done
  fail "the gateway says nothing of $1"
}

start_gateway() {
  # Every client has the same address: limits are tested elsewhere, at their exact bounds.
  cat >"$WORK/tls.toml" <<EOF
[node]
url = "$PORTCULLIS_NODE"
[gateway]
listen = "127.0.0.1:0"
requests_per_minute = 1000000
max_in_flight_per_client = 1000
[gateway.tls]
certificate_file = "$WORK/edge.pem"
key_file = "$WORK/edge.key"
EOF
  "$PORTCULLIS" check --config "$WORK/tls.toml"
  : >"$WORK/gateway.log" # exists before the command starts
  "$PORTCULLIS" serve --config "$WORK/tls.toml" >"$WORK/gateway.log" 2>&1 </dev/null &
  GATEWAY=$!
  await_log 's/.*"message":"listening".*"address":"127\.0\.0\.1:([0-9]+)".*/\1/p'
  URL=https://localhost:$FOUND
}

# Sends the request with these arguments; prints the response and, on its own line, the HTTP
# version.
ask() {
  curl -sS --max-time 20 --cacert "$WORK/edge.pem" --write-out '\n%{http_version}' \
    -H 'Content-Type: application/json' --data "$QUESTION" "$@" "$URL/rpc"
}

curl_gets() {
  local version=$1 came
  shift
  came=$(ask "$@")
  [[ $came == "$ANSWER"*$'\n'"$version" ]] || fail "curl $*: $came"
  echo "curl $*: HTTP/$version"
}

curl_is_refused() {
  local came status=0
  came=$(ask "$@" 2>&1) || status=$?
  ((status != 0)) || fail "curl $* should not get: $came"
  echo "curl $*: refused"
}

# Sends $1 requests concurrently: all of them must get 200.
load() {
  local count=$1 report
  shift
  printf '%s' "$QUESTION" >"$WORK/question"
  report=$(h2load -n "$count" -d "$WORK/question" -H 'Content-Type: application/json' "$@" "$URL/rpc")
  grep -qF "$count total, $count started, $count done, $count succeeded, 0 failed" <<<"$report" &&
    grep -qF "status codes: $count 2xx" <<<"$report" || fail "h2load $*: $report"
  echo "h2load $*: $(grep -oE "^Application protocol: .*" <<<"$report"), $count requests"
}

# A page that calls the gateway as a wallet's would: cross-origin, so that it needs a preflight.
chromium_asks() {
  cat >"$WORK/page.html" <<EOF
<!doctype html><title>a page</title><body><script>
fetch("$URL/rpc", { method: "POST", headers: { "Content-Type": "application/json" },
  body: '$QUESTION' })
  .then(async (answer) => document.body.append(answer.status, " ", await answer.text()))
  .catch((error) => document.body.append(String(error)));
</script></body>
EOF
  local pin page
  pin=$(openssl x509 -in "$WORK/edge.pem" -pubkey -noout |
    openssl pkey -pubin -outform der | openssl dgst -sha256 -binary | openssl base64)
  page=$(timeout 90 chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage \
    --user-data-dir="$WORK/chromium" --ignore-certificate-errors-spki-list="$pin" \
    --log-net-log="$WORK/net.json" --virtual-time-budget=10000 --dump-dom \
    "file://$WORK/page.html" 2>"$WORK/chromium.log")
  [[ $page == *"200 $ANSWER"* ]] || fail "Chromium: $page $(tail -n 5 "$WORK/chromium.log")"
  node -e '
    const log = JSON.parse(require("node:fs").readFileSync(process.argv[1], "utf8"));
    const kind = log.constants.logEventTypes.HTTP2_SESSION_SEND_HEADERS;
    const sent = log.events.filter((event) => event.type === kind);
    const methods = sent.flatMap((event) => event.params.headers)
      .filter((field) => field.startsWith(":method")).map((field) => field.split(" ")[1]);
    console.log(`Chromium: over HTTP/2: ${methods.join(", ")}`);
    process.exit(methods.includes("OPTIONS") && methods.includes("POST") ? 0 : 1);
  ' "$WORK/net.json" || fail "Chromium did not choose HTTP/2"
}

main() {
  make_certificate
  start_gateway

  curl_gets 2
  curl_gets 2 --http2
  curl_gets 1.1 --http1.1
  curl_gets 1.1 --no-alpn
  curl_gets 2 --tls-max 1.2
  curl_gets 2 --tlsv1.3
  curl_gets 1.1 --tls-max 1.2 --http1.1
  curl_is_refused --tls-max 1.1 --ciphers DEFAULT@SECLEVEL=0

  load 4000 -c 10 -m 20
  load 1000 -c 1 -m 100
  load 1000 -c 10 --h1

  chromium_asks

  cp "$WORK/edge.pem" "$WORK/old.pem"
  make_certificate
  kill -s HUP "$GATEWAY"
  await_log 's/.*(the certificate was reloaded).*/\1/p'
  curl_gets 2
  curl_is_refused --cacert "$WORK/old.pem"

  kill -s TERM "$GATEWAY"
  wait "$GATEWAY" || fail "the gateway ended with $?"
  GATEWAY=
}

main
