#!/usr/bin/env bash
# A PostgreSQL of the tests' own, with a standby that streams from it. Prints its URL, to which a port
# is appended: 5432, 5433 for the standby, 6432 for a PgBouncer. Then it obeys one word a line, and
# repeats it when that is done: kill, start or promote (the standby), synchronous (writes wait for the
# standby), failover (the primary crashes, and the standby is promoted at its address), bouncer. Ends
# with its input.

set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/postgres.sh"
stop_all() {
  [[ ! -e bouncer.pid ]] || kill "$(<bouncer.pid)" || true
  standby -m immediate stop || true
  stop_postgres
}
trap stop_all EXIT
standby() { (cd "$POSTGRES_FOLDER" && as_postgres "$POSTGRES_BIN/pg_ctl" -D standby -s "$@"); }
start_postgres
cd "$POSTGRES_FOLDER"
ALL=$(dirname "$(readlink -f "$POSTGRES_BIN/initdb")")
as_postgres "$ALL/pg_basebackup" -h "$POSTGRES_FOLDER" -U portcullis -R -c fast -D standby
OPTIONS="-k $POSTGRES_FOLDER -p 5433"
for setting in listen_addresses= fsync=off max_connections=300; do OPTIONS+=" -c $setting"; done
standby -l standby.log -o "$OPTIONS" -w start
{
  echo '[databases]'
  echo "* = host=$POSTGRES_FOLDER user=portcullis"
  echo '[pgbouncer]'
  printf '%s\n' "unix_socket_dir = $POSTGRES_FOLDER" 'listen_port = 6432' 'listen_addr =' \
    "pidfile = $POSTGRES_FOLDER/bouncer.pid" 'auth_type = any' 'pool_mode = transaction' \
    'ignore_startup_parameters = extra_float_digits,options'
} >bouncer.ini
echo "$PORTCULLIS_TEST_POSTGRES"
while read -r word; do
  case $word in
    kill) standby -m immediate stop ;;
    start) standby -l standby.log -o "$OPTIONS" -w start ;;
    promote) standby -w promote ;;
    synchronous)
      "$ALL/psql" -h "$POSTGRES_FOLDER" -U portcullis -d postgres -qAt \
        -c "ALTER SYSTEM SET synchronous_standby_names = '*'" -c 'SELECT pg_reload_conf()' >&2 ;;
    failover)
      as_postgres "$POSTGRES_BIN/pg_ctl" -D data -m immediate -s stop
      standby -w promote
      ln -sf .s.PGSQL.5433 .s.PGSQL.5432 ;;
    bouncer)
      as_postgres pgbouncer -d bouncer.ini >bouncer.log 2>&1
      until [[ -S .s.PGSQL.6432 && -s bouncer.pid ]]; do [[ -d data ]]; done ;;
  esac
  echo "$word"
done
