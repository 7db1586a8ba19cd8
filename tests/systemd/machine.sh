# shellcheck shell=bash
# A machine of our own, with a real systemd as its first process: a container in Linux namespaces,
# on an overlay over this system's files, which it cannot change, with a loopback network of its
# own. Needs root, cgroup2 and overlayfs. Reads WORK; sets MACHINE_ROOT, MACHINE_PID.

MACHINE_GROUP=
MACHINE_PID=
MACHINE_ROOT=

# Creates the file system. Excludes this system's units, except those that systemd itself needs to
# reach a target.
machine_files() {
  mkdir -p "$WORK/machine"
  mount -t tmpfs tmpfs "$WORK/machine"
  mkdir "$WORK"/machine/{upper,scratch,root}
  mount -t overlay overlay "$WORK/machine/root" \
    -o "lowerdir=/,upperdir=$WORK/machine/upper,workdir=$WORK/machine/scratch"
  MACHINE_ROOT=$WORK/machine/root
  rm -rf "$MACHINE_ROOT"/etc/systemd/system/* "$MACHINE_ROOT"/{usr/,}lib/systemd/system/*.wants \
    "$MACHINE_ROOT"/etc/portcullis "$MACHINE_ROOT"/var/lib/private
  local sockets=$MACHINE_ROOT/etc/systemd/system/sockets.target.wants
  mkdir -p "$MACHINE_ROOT/var/lib/private" "$sockets"
  ln -s /lib/systemd/system/systemd-journald.socket "$sockets"
  printf '[Journal]\nStorage=volatile\nReadKMsg=no\n' >"$MACHINE_ROOT/etc/systemd/journald.conf"
  chmod 700 "$MACHINE_ROOT/var/lib/private"
}

machine_boot() {
  local hierarchy
  hierarchy=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
  [[ -n $hierarchy ]] || {
    echo "cgroup2 is not mounted: systemd cannot run" >&2
    return 1
  }
  MACHINE_GROUP=$hierarchy/portcullis-tests-$$
  mkdir "$MACHINE_GROUP"
  start machine bash -c 'echo $$ >"$0/cgroup.procs" && exec unshare --fork --kill-child --pid \
    --mount --uts --ipc --net --cgroup sh "$1" "$2"' "$MACHINE_GROUP" tests/systemd/pid1 "$MACHINE_ROOT"
  local unshare=$STARTED
  for _ in {1..300}; do
    MACHINE_PID=$(pgrep -P "$unshare" || true)
    if [[ -n $MACHINE_PID ]] && machine_do systemctl is-active --quiet sockets.target 2>/dev/null
    then
      echo "$(machine_do systemctl --version | head -n 1), as process 1 of its own namespace"
      return 0
    fi
    alive "$unshare" || break
    sleep 0.1
  done
  echo "systemd did not come up" >&2
  return 1
}

# Followed by its process and a command, runs the command in it. With its root and folder, as the
# namespace of its mounts begins elsewhere if this root is one of chroot(1).
ENTER=(nsenter -m -r -w -p -u -i -n -C -t)

# Runs a command in it.
machine_do() { "${ENTER[@]}" "$MACHINE_PID" "$@"; }

machine_halt() {
  [[ -z $MACHINE_PID ]] || kill -s KILL "$MACHINE_PID" 2>/dev/null || true
  if [[ -n $MACHINE_GROUP && -d $MACHINE_GROUP ]]; then
    for _ in {1..100}; do
      # From the leaves up; the cgroup of an exiting process remains for a moment.
      find "$MACHINE_GROUP" -depth -type d -exec rmdir {} \; 2>/dev/null || true
      [[ -d $MACHINE_GROUP ]] || break
      sleep 0.1
    done
  fi
  if [[ -n $MACHINE_ROOT ]]; then
    umount -R "$MACHINE_ROOT" 2>/dev/null || umount -l "$MACHINE_ROOT" || true
    umount -l "$WORK/machine" || true
  fi
  MACHINE_PID=
  MACHINE_GROUP=
  MACHINE_ROOT=
}
