# shellcheck shell=bash
# The units and the installer, and the service under a real systemd of its own. Reads TARGET and
# WORK, and what live.sh and systemd/machine.sh define.

# shellcheck source=tests/systemd/machine.sh
source tests/systemd/machine.sh

SERVICES=(portcullis.service portcullis-prune.service)
UNITS=("${SERVICES[@]}" portcullis.socket portcullis-relay.socket portcullis-sidecar.socket
  portcullis-prune.timer)

# The services' exposure, on systemd's own scale from 0 to 10.
units_are_tight() {
  local service
  for service in "${SERVICES[@]}"; do
    systemd-analyze security --offline=true --threshold=15 "systemd/$service" | tail -n 1
  done
}

expect() {
  local what=$1 expected=$2 actual=$3
  [[ $expected == "$actual" ]] || {
    printf '%s: expected\n%s\nnot\n%s\n' "$what" "$expected" "$actual" >&2
    return 1
  }
}

# One command installs everything into an empty folder, and removes it again.
install_into_a_root() {
  local root=$WORK/root installed
  mkdir "$root"
  systemd/install --root "$root" --binary "$TARGET/debug/portcullis"
  installed=$(cd "$root" && find . -mindepth 1 \( -type f -o -name secrets \) -printf '%m %P\n' |
    LC_ALL=C sort)
  expect "what is installed" "\
644 etc/portcullis/portcullis.toml
644 usr/local/lib/systemd/system/portcullis-prune.service
644 usr/local/lib/systemd/system/portcullis-prune.timer
644 usr/local/lib/systemd/system/portcullis-relay.socket
644 usr/local/lib/systemd/system/portcullis-sidecar.socket
644 usr/local/lib/systemd/system/portcullis.service
644 usr/local/lib/systemd/system/portcullis.socket
644 usr/local/share/bash-completion/completions/portcullis
644 usr/local/share/fish/vendor_completions.d/portcullis.fish
644 usr/local/share/man/man1/portcullis.1
644 usr/local/share/zsh/site-functions/_portcullis
700 etc/portcullis/secrets
755 usr/local/bin/portcullis
755 usr/local/bin/portcullis-with-secrets" "$(grep -v '/portcullis-[a-z-]*\.1$' <<<"$installed")"
  expect "whose it is" "$(id -un)" "$(find "$root" -printf '%u\n' | sort -u)"

  echo "# mine" >>"$root/etc/portcullis/portcullis.toml"
  echo s >"$root/etc/portcullis/secrets/relay.token"
  systemd/install --root "$root" --binary "$TARGET/debug/portcullis" >/dev/null
  grep -q "# mine" "$root/etc/portcullis/portcullis.toml"
  systemctl --root="$root" enable portcullis.service portcullis-prune.timer 2>/dev/null
  expect "what starts with the system" "\
multi-user.target.wants/portcullis.service
portcullis.service.wants/portcullis.socket
sockets.target.wants/portcullis.socket
timers.target.wants/portcullis-prune.timer" \
    "$(cd "$root/etc/systemd/system" && find . -type l -printf '%P\n' | LC_ALL=C sort)"

  chroot_check "$root"

  systemd/install --root "$root" --uninstall 2>/dev/null
  expect "what is left" "\
etc/portcullis/portcullis.toml
etc/portcullis/secrets/relay.token" \
    "$(cd "$root" && find etc usr -type f -o -type l | LC_ALL=C sort)"
}

# What is released, packed from the debug binary.
packages() {
  VENV=$PACKAGE_VENV tests/package/run "$TARGET/debug/portcullis" ${PORTCULLIS_TEST_LONG:+long}
}

# The installed program accepts the installed configuration, with only its own libraries.
chroot_check() {
  local root=$1 bare=$WORK/bare library
  cp -r "$root" "$bare"
  for library in $(ldd "$bare/usr/local/bin/portcullis" | grep -o '/[^ ]*'); do
    mkdir -p "$bare${library%/*}"
    cp -L "$library" "$bare$library"
  done
  unshare_as_root --root="$bare" /usr/local/bin/portcullis check \
    --config /etc/portcullis/portcullis.toml
  rm -rf "$bare"
}

# A node and the installed service in a machine with a systemd. The machine has a network of its
# own, so that the installed configuration needs one change only: a higher rate limit per client.
start_machine() {
  ((EUID == 0)) || {
    echo "a systemd of its own needs root: sudo -E tests/run" >&2
    return 1
  }
  machine_files
  systemd/install --root "$MACHINE_ROOT" --binary "$TARGET/debug/portcullis" >/dev/null
  systemd-analyze --root="$MACHINE_ROOT" verify "${UNITS[@]}"
  sed -i '/^\[gateway\]/a requests_per_minute = 10000000' \
    "$MACHINE_ROOT/etc/portcullis/portcullis.toml"
  machine_boot
  start machine-node nsenter -t "$MACHINE_PID" -n \
    starknet-devnet --seed 0 --chain-id PORTCULLIS_DEV --host 127.0.0.1 --port 5050
  await_line machine-node "$STARTED" 's/.*listening on (127\.0\.0\.1:5050).*/\1/p'
  machine_do systemctl enable --now portcullis.socket portcullis.service 2>/dev/null
  machine_do systemctl status --no-pager --lines=0 portcullis.service
}

# $1 requests per second.
lose_nothing() {
  MACHINE="${ENTER[*]} $MACHINE_PID" \
    nsenter -t "$MACHINE_PID" -n node tests/systemd/load.mjs "$1"
}

# A secret from the folder, the store, the prune next to the service; reloads, one of an invalid
# file; a process that hangs is ended by the watchdog and restarted.
service_lives() {
  local etc=$MACHINE_ROOT/etc drop_in=$MACHINE_ROOT/etc/systemd/system/portcullis.service.d
  (umask 077 && "$TARGET/debug/portcullis" token new "$etc/portcullis/secrets/operator.token")
  cat >>"$etc/portcullis/portcullis.toml" <<'EOT'
[sidecar]
base_url = "https://cards.example"
operator_token_file = "secret_operator.token"
EOT
  mkdir -p "$drop_in" "$etc/systemd/system/portcullis-prune.service.d"
  printf '[Service]\nWatchdogSec=3s\n' >"$drop_in/watchdog.conf"
  machine_do systemctl daemon-reload
  machine_do systemctl enable portcullis-sidecar.socket portcullis-prune.timer 2>/dev/null
  machine_do systemctl stop portcullis.service
  machine_do systemctl start portcullis-sidecar.socket portcullis.service
  curl_in -H "Authorization: Bearer $(cat "$etc/portcullis/secrets/operator.token")" \
    http://127.0.0.1:8082/functions/health-check | grep -o '"database":[^]]*'
  a_reload_renews_secrets "$etc/portcullis/secrets/operator.token"
  printf '[Service]\nExecStartPre=/bin/sh -c "ls $CREDENTIALS_DIRECTORY >credentials"\n' \
    >"$etc/systemd/system/portcullis-prune.service.d/credentials.conf"
  machine_do systemctl daemon-reload
  machine_do systemctl start portcullis-prune.service
  expect "the secrets of the prune" secret_postgres.password \
    "$(machine_do cat /var/lib/private/portcullis/credentials)"
  expect "the prune" success \
    "$(machine_do systemctl show --value -p Result portcullis-prune.service)"
  # by its number, which only a library that a small system lacks translates into a name
  expect "the store" "$(service_user) 600" \
    "$(machine_do stat -c "%u %a" /var/lib/private/portcullis/portcullis.db)"

  machine_do systemctl start dbus.socket
  machine_do portcullis-with-secrets check --config /etc/portcullis/portcullis.toml

  reloads_are_reported

  machine_do systemctl kill --signal=STOP --kill-whom=main portcullis.service
  await_property NRestarts 1
  await_property ActiveState active
  await_journal 'Watchdog timeout'
  curl_in http://127.0.0.1:8083/readyz

  machine_do systemctl stop portcullis.socket portcullis-sidecar.socket portcullis.service
  expect "how it ended" success "$(service_property Result)"
  machine_halt
}

# A new token in the folder is valid after a reload: only with it the health check shows its components.
a_reload_renews_secrets() {
  local pid shown
  pid=$(service_property MainPID)
  rm "$1"
  (umask 077 && "$TARGET/debug/portcullis" token new "$1")
  machine_do systemctl reload portcullis.service
  for _ in {1..100}; do
    shown=$(curl_in -H "Authorization: Bearer $(cat "$1")" \
      http://127.0.0.1:8082/functions/health-check)
    if grep -q '"database":' <<<"$shown"; then
      expect "the process after the reload" "$pid" "$(service_property MainPID)"
      expect "the folder of the renewed secrets" "711 root" \
        "$(machine_do stat -c '%a %U' /run/portcullis-credentials)"
      expect "the secrets in it" 400 \
        "$(machine_do sh -c 'stat -c %a /run/portcullis-credentials/*' | sort -u)"
      return 0
    fi
    sleep 0.1
  done
  echo "the new token is not valid after a reload: $shown" >&2
  return 1
}

curl_in() { nsenter -t "$MACHINE_PID" -n curl -fsS "$@"; }

reloads_are_reported() {
  local file=$MACHINE_ROOT/etc/portcullis/portcullis.toml pid
  pid=$(service_property MainPID)
  cp "$file" "$WORK/right.toml"
  echo "nonsense = 1" >>"$file"
  machine_do systemctl reload portcullis.service
  await_property StatusText '*the last reload FAILED*'
  await_journal 'reload failed' -p err
  cp "$WORK/right.toml" "$file"
  machine_do systemctl reload portcullis.service
  await_property StatusText '*the last reload changed nothing*'
  expect "the process after reloads" "$pid" "$(service_property MainPID)"
}

# The number of the service's user, who is not root.
service_user() {
  machine_do awk '$1 == "Uid:" && $2 > 0 { print $2 }' "/proc/$(service_property MainPID)/status"
}

service_property() { machine_do systemctl show --value -p "$1" portcullis.service; }

# Waits until a line of the service's journal matches $1: journald reads what a process wrote later
# than systemd reads its notification. The rest are options of journalctl.
await_journal() {
  local pattern=$1
  shift
  for _ in {1..600}; do
    ! machine_do journalctl --no-pager -q -o cat -u portcullis.service -g "$pattern" "$@" || return 0
    sleep 0.1
  done
  echo "no line of the journal matches $pattern" >&2
  return 1
}

# Waits until a property matches a pattern.
await_property() {
  local name=$1 pattern=$2
  for _ in {1..600}; do
    # shellcheck disable=SC2053 # the right side is a pattern
    [[ $(service_property "$name") != $pattern ]] || return 0
    sleep 0.1
  done
  echo "$name is $(service_property "$name"), not $pattern" >&2
  return 1
}
