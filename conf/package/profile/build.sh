# shellcheck shell=bash
# The profile of the program under load, by which the compiler optimizes it:
# https://doc.rust-lang.org/rustc/profile-guided-optimization.html. Sourced by conf/package/build.

# It belongs to one version of the program, one compiler and one target, because the names of all
# functions in it depend on these. $1 is the compiler's version.
profile_file() { echo "$HERE/profile/portcullis-$VERSION-rustc-$1-$TRIPLE.profdata.gz"; }

compiler_version() { rustc -vV | sed -n 's/^release: //p'; }

add_flags() {
  local flag
  for flag in "$@"; do CARGO_ENCODED_RUSTFLAGS+=$'\x1f'$flag; done
}

# Lets the compiler use the profile. Without one the program is the same, but slower.
use_profile() {
  local file profile
  file=$(profile_file "$(compiler_version)")
  if [[ ! -f $file ]]; then
    echo "build: no ${file##*/}, so a request will cost up to 11 % more CPU time" >&2
    return
  fi
  # the checksum in the name lets Cargo see another profile
  profile=$TARGET/package-build/$(sha256sum "$file" | cut -c 1-16).profdata
  mkdir -p "${profile%/*}"
  gzip -dc "$file" >"$profile"
  # most functions never ran under load: those are compiled as without a profile
  add_flags "-Cprofile-use=$profile" -Cllvm-args=-pgo-warn-missing-function=false
}

# Compiles the program with counters, loads it as the bench does, and writes the file.
build_profile() {
  local tools counts=$TARGET/package-profile/counts
  tools=$(rustc --print sysroot)/lib/rustlib/$HOST/bin
  [[ -x $tools/llvm-profdata ]] || fail "no llvm-profdata: rustup component add llvm-tools"
  rm -rf "$counts"
  (
    set_flags
    add_flags "-Cprofile-generate=$counts"
    cargo build --locked --profile dist --bin portcullis --target "$TRIPLE" \
      --target-dir "$TARGET/package-profile"
  )
  LLVM_PROFILE_FILE=$counts/%m.profraw cargo bench --locked --profile dev --bench edge \
    -- --program "$TARGET/package-profile/$TRIPLE/dist/portcullis" --rounds 1 --idle 1000
  # what never ran is left out
  "$tools/llvm-profdata" merge --sparse --output "$WORK/profdata" "$counts"
  gzip -9nc "$WORK/profdata" >"$(profile_file "$(compiler_version)")"
}
