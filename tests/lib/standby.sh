#!/usr/bin/env bash
# A PostgreSQL of the tests' own, with a standby that streams from it. Prints its URL, to which a port
# is appended: 5432, 5433 for the standby, 6432 for a PgBouncer. Then it obeys one word a line, and
# repeats it when that is done: kill, start or promote (the standby), die (the primary), synchronous (writes wait for the
# standby), restart (the primary crashes and starts), failover (the primary crashes, and the standby
# is promoted at its address), rejoin (the crashed one is the synchronous standby from then on),
# bouncer. Ends with its input.

set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/postgres.sh"
PRIMARY=data
STANDBY=standby
declare -A PORTS=([data]=5432 [standby]=5433)
# The first argument is the folder of a server.
server() { (cd "$POSTGRES_FOLDER" && as_postgres "$POSTGRES_BIN/pg_ctl" -D "$1" -s "${@:2}"); }
sql() {
  "$ALL/psql" -h "$POSTGRES_FOLDER" -p "${PORTS[$PRIMARY]}" -U portcullis -d postgres -qAt \
    -c "$1" -c 'SELECT pg_reload_conf()' >&2
}
stop_all() {
  [[ ! -e bouncer.pid ]] || kill "$(<bouncer.pid)" || true
  server standby -m immediate stop || true
  stop_postgres
}
trap stop_all EXIT
start_standby() {
  local setting options="-k $POSTGRES_FOLDER -p ${PORTS[$STANDBY]}"
  for setting in listen_addresses= fsync=off max_connections=300; do options+=" -c $setting"; done
  server "$STANDBY" -l "$STANDBY.log" -o "$options" -w start
}
copy_primary() {
  as_postgres "$ALL/pg_basebackup" -h "$POSTGRES_FOLDER" -p "${PORTS[$PRIMARY]}" -U portcullis \
    -R -c fast -D "$STANDBY"
}
start_postgres
cd "$POSTGRES_FOLDER"
ALL=$(dirname "$(readlink -f "$POSTGRES_BIN/initdb")")
copy_primary
start_standby
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
    kill) server "$STANDBY" -m immediate stop ;;
    die) server "$PRIMARY" -m immediate stop ;;
    start) start_standby ;;
    promote) server "$STANDBY" -w promote ;;
    synchronous) sql "ALTER SYSTEM SET synchronous_standby_names = '*'" ;;
    restart) server "$PRIMARY" -m immediate -l "$PRIMARY.log" -w restart ;;
    failover)
      server "$PRIMARY" -m immediate stop
      server "$STANDBY" -w promote
      ln -sf ".s.PGSQL.${PORTS[$STANDBY]}" .s.PGSQL.5432
      read -r PRIMARY STANDBY <<<"$STANDBY $PRIMARY"
      # a standby of a synchronous primary has its settings
      sql 'ALTER SYSTEM RESET synchronous_standby_names' ;;
    rejoin)
      rm -rf "$STANDBY"
      # 5432 leads to the primary
      PORTS[data]=5434
      copy_primary
      start_standby
      sql "ALTER SYSTEM SET synchronous_standby_names = '*'" ;;
    bouncer)
      as_postgres pgbouncer -d bouncer.ini >bouncer.log 2>&1
      until [[ -S .s.PGSQL.6432 && -s bouncer.pid ]]; do [[ -d data ]]; done ;;
  esac
  echo "$word"
done
