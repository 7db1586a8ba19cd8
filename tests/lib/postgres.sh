#!/usr/bin/env bash
# A PostgreSQL of the tests' own: a fresh cluster in a temporary folder, on a Unix socket only,
# removed afterwards. When sourced, it defines start_postgres and stop_postgres; the first exports
# PORTCULLIS_TEST_POSTGRES, a URL to which a test appends the name of a database. When run, it wraps
# one command:
#
#   tests/lib/postgres.sh cargo test --test store

POSTGRES_FOLDER=

# The server refuses to run as root; the user it runs as owns the folder.
as_postgres() {
  if (($(id -u) != 0)); then
    "$@"
    return
  fi
  local user=nobody
  ! id postgres >/dev/null 2>&1 || user=postgres
  setpriv --reuid="$user" --regid="$(id -g "$user")" --clear-groups env HOME="$POSTGRES_FOLDER" "$@"
}

# From PATH, or from Debian's folder outside PATH.
find_postgres() {
  local folder
  if command -v initdb >/dev/null && command -v pg_ctl >/dev/null; then
    dirname "$(command -v initdb)"
    return
  fi
  for folder in /usr/lib/postgresql/*/bin; do
    [[ -x $folder/initdb ]] && printf '%s\n' "$folder"
  done | sort -Vr | sed -n 1p
}

# Further arguments are settings such as fsync=on; by default writes do not wait for the disk.
start_postgres() {
  local bin setting options
  bin=$(find_postgres)
  [[ -n $bin ]] || {
    echo "PostgreSQL is missing: install the package postgresql" >&2
    return 1
  }
  POSTGRES_FOLDER=$(mktemp -d /tmp/portcullis-pg.XXXXXX)
  POSTGRES_BIN=$bin
  if (($(id -u) == 0)); then
    chown "$(as_postgres id -u):$(as_postgres id -g)" "$POSTGRES_FOLDER"
  fi
  options="-k $POSTGRES_FOLDER -c listen_addresses="
  for setting in fsync=off max_connections=300 "$@"; do options+=" -c $setting"; done
  (
    cd "$POSTGRES_FOLDER" || exit
    as_postgres "$bin/initdb" -D data -U portcullis -A trust -E UTF8 --locale=C --no-sync \
      >initdb.log 2>&1 &&
      # These roles require their passwords.
      as_postgres sed -i '1i local all protected,late,mistyped,rotated scram-sha-256' data/pg_hba.conf &&
      as_postgres "$bin/pg_ctl" -D data -l server.log -o "$options" -w -s start \
        >pg_ctl.log 2>&1
  ) || {
    cat "$POSTGRES_FOLDER"/*.log >&2
    stop_postgres
    return 1
  }
  export PORTCULLIS_TEST_POSTGRES=postgres://portcullis@${POSTGRES_FOLDER//\//%2F}/
}

stop_postgres() {
  [[ -n $POSTGRES_FOLDER ]] || return 0
  if [[ -e $POSTGRES_FOLDER/data/postmaster.pid ]]; then
    (
      cd "$POSTGRES_FOLDER" &&
        as_postgres "$POSTGRES_BIN/pg_ctl" -D data -m immediate -s stop
    ) || true
  fi
  rm -rf "$POSTGRES_FOLDER"
  POSTGRES_FOLDER=
}

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then
  set -euo pipefail
  trap stop_postgres EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  start_postgres
  printf 'PORTCULLIS_TEST_POSTGRES=%s\n' "$PORTCULLIS_TEST_POSTGRES" >&2
  "$@"
fi
