#!/usr/bin/env bash
# A PostgreSQL of the tests' own, whose database `small` is on a small disk. Prints its URL, to which
# the name of a database is appended. Then it obeys one word a line, and repeats it when that is done:
# fill (the disk), free. Ends with its input. Run it in a mount namespace, as tests/outages is.

set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/postgres.sh"
SMALL=
stop_all() {
  [[ -z $SMALL ]] || umount --lazy "$SMALL" || true
  stop_postgres
}
trap stop_all EXIT
start_postgres
SMALL=$POSTGRES_FOLDER/small
as_postgres mkdir "$SMALL"
mount -t tmpfs -o size=24m tmpfs "$SMALL"
chown "$(stat -c %u:%g "$POSTGRES_FOLDER")" "$SMALL"
psql() {
  "$(dirname "$(readlink -f "$POSTGRES_BIN/initdb")")/psql" -h "$POSTGRES_FOLDER" -U portcullis \
    -d postgres -qAt "$@" >&2
}
psql -c "CREATE TABLESPACE small LOCATION '$SMALL'" -c 'CREATE DATABASE small TABLESPACE small'
echo "$PORTCULLIS_TEST_POSTGRES"
while read -r word; do
  case $word in
    fill) dd if=/dev/zero of="$SMALL/filler" bs=4096 status=none 2>/dev/null || true ;;
    free) rm "$SMALL/filler" ;;
  esac
  echo "$word"
done
