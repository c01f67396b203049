# shellcheck shell=bash
# Bun, by the digests of scripts/lib/bun.lock.json. Sourced by scripts/setup, needs lib/environment.sh.
#
# No script of a package runs: the executable is taken out of the platform's own package, whose bytes are checked first.

# bun_lock FIELD: one string of the lock, which has one field on a line.
bun_lock() {
  local value
  value=$(sed -n "s|^ *\"$1\": \"\([A-Za-z0-9@/.+=_-]*\)\",\{0,1\}\$|\1|p" "$STRONGROOM_BUN_LOCK")
  if [[ -z $value ]]; then
    echo "$STRONGROOM_BUN_LOCK: no $1" >&2
    return 1
  fi
  echo "$value"
}

# bun_is_right DIRECTORY: whether the Bun below it is the locked one, byte for byte.
bun_is_right() {
  local executable=$1/node_modules/.bin/bun expected
  expected=$(bun_lock executableSha256) || return 1
  [[ -x $executable && $(sha256sum < "$executable") == "$expected  -" ]]
}

# check_bun_package TARBALL
check_bun_package() {
  local expected found
  expected=$(bun_lock integrity) || return 1
  found=sha512-$(openssl dgst -sha512 -binary "$1" | base64 --wrap=0)
  if [[ $found != "$expected" ]]; then
    echo "$(bun_lock package) $STRONGROOM_BUN_VERSION: the package is $found, the lock says $expected"
    echo "what came is not what this commit was made with; look into it before you change $STRONGROOM_BUN_LOCK"
    return 1
  fi
}

install_bun() {
  local partial=$STRONGROOM_BUN_DIR.partial package executable bin
  local -a packed
  package=$(bun_lock package)
  executable=$(bun_lock executable)
  rm -rf "$partial"
  bin=$partial/node_modules/.bin
  mkdir -p "$bin" "$partial/pack"
  (cd "$partial/pack" && npm pack --silent --ignore-scripts "$package@$STRONGROOM_BUN_VERSION")
  packed=("$partial/pack"/*.tgz)
  check_bun_package "${packed[0]}"
  tar --extract --gzip --to-stdout --file "${packed[0]}" "$executable" > "$bin/bun"
  chmod 755 "$bin/bun"
  ln -s bun "$bin/bunx"
  if ! bun_is_right "$partial"; then
    echo "$executable of $package is not the executable of the lock"
    return 1
  fi
  rm -rf "$partial/pack" "$STRONGROOM_BUN_DIR"
  mv "$partial" "$STRONGROOM_BUN_DIR"
}
