# shellcheck shell=bash
# Where tools and caches are. Sourced by the bash bootstrap; sets variables and PATH, changes nothing on disk.

STRONGROOM_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
export STRONGROOM_ROOT

if [[ -z ${HOME:-} ]]; then
  HOME=$(getent passwd "$(id -u)" | cut -d: -f6)
  export HOME
fi

# Caches live outside the clone, so that a fresh clone starts warm.
if [[ -z ${STRONGROOM_CACHE:-} ]]; then
  if [[ $(id -u) -eq 0 || -w /var/cache/strongroom ]]; then
    STRONGROOM_CACHE=/var/cache/strongroom
  else
    STRONGROOM_CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/strongroom
  fi
fi
export STRONGROOM_CACHE

# The one place that pins Bun, by version and digests.
export STRONGROOM_BUN_LOCK=$STRONGROOM_ROOT/scripts/lib/bun.lock.json
STRONGROOM_BUN_VERSION=$(sed -n 's/^ *"version": "\([0-9][0-9.]*\)",\{0,1\}$/\1/p' "$STRONGROOM_BUN_LOCK")
if [[ -z $STRONGROOM_BUN_VERSION ]]; then
  echo "$STRONGROOM_BUN_LOCK: version is not one exact version" >&2
  exit 1
fi
export STRONGROOM_BUN_VERSION
export STRONGROOM_BUN_DIR=$STRONGROOM_CACHE/tools/bun-$STRONGROOM_BUN_VERSION

case :$PATH: in
  *:/usr/sbin:*) ;;
  *) PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin ;;
esac
case $PATH: in
  "$STRONGROOM_BUN_DIR/node_modules/.bin":*) ;;
  *) PATH=$STRONGROOM_BUN_DIR/node_modules/.bin:$PATH ;;
esac
export PATH
