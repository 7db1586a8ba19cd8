#!/usr/bin/env bash
# A Redis of the tests' own: on a Unix socket only, without files, ended afterwards. When sourced, it
# defines start_redis and stop_redis; the first exports PORTCULLIS_TEST_REDIS, its URL. When run, it
# wraps one command:
#
#   tests/lib/redis.sh cargo test --test it -- fleet

REDIS_FOLDER=

# redis-tools has the server under another name: the package of the server would start a service.
find_redis() {
  command -v redis-server || command -v redis-check-rdb
}

start_redis() {
  local program
  program=$(find_redis) || {
    echo "Redis is missing: install the package redis-tools" >&2
    return 1
  }
  REDIS_FOLDER=$(mktemp -d /tmp/portcullis-redis.XXXXXX)
  ln -s "$program" "$REDIS_FOLDER/redis-server"
  "$REDIS_FOLDER/redis-server" --port 0 --unixsocket "$REDIS_FOLDER/socket" --save '' \
    --dir "$REDIS_FOLDER" >"$REDIS_FOLDER/server.log" 2>&1 &
  REDIS_PID=$!
  until redis-cli -s "$REDIS_FOLDER/socket" ping >/dev/null 2>&1; do
    kill -0 "$REDIS_PID" 2>/dev/null || {
      cat "$REDIS_FOLDER/server.log" >&2
      stop_redis
      return 1
    }
    sleep 0.1
  done
  export PORTCULLIS_TEST_REDIS=unix:$REDIS_FOLDER/socket
}

stop_redis() {
  [[ -n $REDIS_FOLDER ]] || return 0
  kill "$REDIS_PID" 2>/dev/null && wait "$REDIS_PID" 2>/dev/null || true
  rm -rf "$REDIS_FOLDER"
  REDIS_FOLDER=
}

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then
  set -euo pipefail
  trap stop_redis EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  start_redis
  printf 'PORTCULLIS_TEST_REDIS=%s\n' "$PORTCULLIS_TEST_REDIS" >&2
  "$@"
fi
