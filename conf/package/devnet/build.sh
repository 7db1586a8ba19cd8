# shellcheck shell=bash
# The node of `portcullis dev` as a release has it: starknet-devnet of the version that `dev` is made
# for, compiled from the crates' registry. Sourced by conf/package/build.

DEVNET_VERSION=$(sed -n 's/^pub(super) const VERSION: &str = "\(.*\)";$/\1/p' \
  "$ROOT/dev/src/install.rs")

# Its sources as published, with their lock file. Cargo verifies them by the registry's checksum.
devnet_sources() {
  local published
  (cd "$WORK" && cargo info --quiet "starknet-devnet@$DEVNET_VERSION" >/dev/null)
  for published in "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/"starknet-devnet-$DEVNET_VERSION"; do
    [[ -f $published/Cargo.lock ]] || fail "the registry has no sources of starknet-devnet"
    rm -rf "$1"
    mkdir -p "${1%/*}"
    cp -r "$published" "$1"
    break
  done
  # no part of a workspace around it
  printf '\n[workspace]\n' >>"$1/Cargo.toml"
}

# As dev/src/install.rs does.
compile_devnet() {
  set_flags
  (cd "$1" && MAKEFLAGS= CARGO_PROFILE_RELEASE_OPT_LEVEL=1 \
    CARGO_PROFILE_RELEASE_CODEGEN_UNITS=256 CARGO_PROFILE_RELEASE_DEBUG=false \
    CARGO_PROFILE_RELEASE_STRIP=true \
    cargo build --locked --release --bin starknet-devnet --target "$TRIPLE" \
    --target-dir "$TARGET/package-build")
  DEVNET=$TARGET/package-build/$TRIPLE/release/starknet-devnet
}

build_devnet() {
  local sources=$TARGET/package-build/devnet name program=$WORK/starknet-devnet target
  devnet_sources "$sources"
  [[ -n $DEVNET ]] || compile_devnet "$sources"
  identify "$DEVNET"
  if [[ $MACHINE == "${HOST%%-*}" ]]; then
    [[ $("$DEVNET" --version) == "starknet-devnet $DEVNET_VERSION" ]] ||
      fail "$DEVNET is not starknet-devnet $DEVNET_VERSION"
  fi
  name=portcullis-devnet-$DEVNET_VERSION-$MACHINE-linux
  target=$MACHINE-unknown-linux-gnu
  strip_into "$DEVNET" "$program"
  (cd "$sources" && python3 -B "$HERE/crates.py" sbom --target "$target" --binary "$program") \
    >"$OUT/$name.cdx.json"
  (cd "$sources" && python3 -B "$HERE/crates.py" licences --target "$target") \
    >"$WORK/devnet-licences"
  devnet_archive "$sources" "$program" "$name"
  devnet_deb "$sources" "$program"
}

# Its sources, the program, and the name of the archive.
devnet_archive() {
  local dir=$WORK/devnet-archive/$3
  mkdir -p "$dir"
  cp "$2" "$1/LICENSE" "$HERE/devnet/README" "$dir/"
  cp "$WORK/devnet-licences" "$dir/THIRD-PARTY-LICENCES"
  settle "$dir"
  pack_archive "$WORK/devnet-archive" "$3"
}

devnet_deb() {
  local root=$WORK/devnet-deb doc=$WORK/devnet-deb/usr/share/doc/portcullis-devnet
  mkdir -p "$root/DEBIAN" "$doc" "$root/usr/lib/portcullis" "$root/usr/share/lintian/overrides"
  cp "$2" "$root/usr/lib/portcullis/"
  {
    printf 'https://github.com/starknet-io/starknet-devnet, unchanged. The libraries that it is linked\n'
    printf 'with are each under a licence of their own: THIRD-PARTY-LICENCES.gz in this folder.\n\n'
    cat "$1/LICENSE"
  } >"$doc/copyright"
  gzip -n9 <"$WORK/devnet-licences" >"$doc/THIRD-PARTY-LICENCES.gz"
  debian_changelog portcullis-devnet "$DEVNET_VERSION" "starknet-devnet $DEVNET_VERSION, unchanged." \
    >"$doc/changelog.Debian.gz"
  cp "$HERE/devnet/lintian-overrides" "$root/usr/share/lintian/overrides/portcullis-devnet"
  (cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
  cat >"$root/DEBIAN/control" <<CONTROL
Package: portcullis-devnet
Version: $DEVNET_VERSION-1
Architecture: $DEBIAN
Maintainer: $MAINTAINER
Installed-Size: $(du -sk --apparent-size --exclude=DEBIAN "$root" | cut -f 1)
Depends: $(dependencies "$2")
Enhances: portcullis
Section: net
Priority: optional
Description: local Starknet node for trying Portcullis
 The command "portcullis dev" runs the whole of Portcullis on loopback, with
 this node behind it. The package has starknet-devnet in the version that the
 command is made for, and puts nothing on PATH.
CONTROL
  settle "$root"
  pack_deb "$root" "portcullis-devnet_$DEVNET_VERSION-1_$DEBIAN.deb"
}
