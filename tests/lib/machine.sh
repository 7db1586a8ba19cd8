# shellcheck shell=bash
# How fast this machine is. Machines differ threefold, and what is sampled need not take three times
# as long on a slow one.

# Seconds that a fast machine takes for the loop below, on all its processors at once.
MACHINE_REFERENCE=2.0

# Measures the machine. Exports PORTCULLIS_TEST_SHARE, the percentage of its cases that a sampled step
# draws: 100 up to a third slower than the reference, and never less than 25. All of a long run.
measure_machine() {
  local began=$EPOCHREALTIME loop='
n = 0
for i in range(15_000_000):
    n = (n * 31 + i) & 0xffffffff
'
  if [[ -z ${PORTCULLIS_TEST_LONG-} && -z ${PORTCULLIS_TEST_SHARE-} ]]; then
    seq "$(nproc)" | xargs -P "$(nproc)" -I '{}' python3 -c "$loop"
    PORTCULLIS_TEST_SHARE=$(awk -v took="$EPOCHREALTIME" -v began="$began" \
      -v reference="$MACHINE_REFERENCE" 'BEGIN {
        slow = (took - began) / reference
        share = slow > 4 / 3 ? 100 / slow : 100
        print int(share < 25 ? 25 : share)
      }')
  fi
  export PORTCULLIS_TEST_SHARE=${PORTCULLIS_TEST_SHARE:-100}
}

# This many cases of a sampled step, or fewer on a slow machine, and at least one.
drawn() {
  local cases=$(($1 * ${PORTCULLIS_TEST_SHARE:-100} / 100))
  echo $((cases > 0 ? cases : 1))
}
