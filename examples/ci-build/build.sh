#!/bin/sh
# A CI job: builds the checkout in a measured VM, verifies the result and fails on anything but PASS.
#
#   examples/ci-build/build.sh [DIRECTORY]        # the directory with Cargo.toml or flake.nix; this one without it
#
# Environment:
#   STRONGROOM_BUILDS_API  https://builds.DOMAIN:8443
#   STRONGROOM_API_KEY     an organization's key, ca_…: a secret of the CI system
#   STRONGROOM_POLICY      file: the policy of the builder's image, kept in your repository
#                          (strongroom verify policy-example --image IMAGE --operator-key KEY > policy.json)
#   STRONGROOM_CA          file: the operator's ca.pem; leave it out if certificates are by a public authority
#   STRONGROOM_OUT         where the verified files and both documents go; strongroom-out without it, which is no
#                          part of the source; another directory should be outside of it
#   STRONGROOM_FLAGS       more options of `strongroom build submit`, such as --fetch-ca FILE
# Needs the strongroom executable on the PATH. Exit status: that of `strongroom build submit` or, if it is 0, of
# `strongroom verify build`. Their --help lists them: 0 PASS, 1 a build or its evidence failed, 2 bad usage or input,
# 3 no connection, 6 genuine evidence that the policy refuses.
set -eu

source=${1:-.}
out=${STRONGROOM_OUT:-strongroom-out}
: "${STRONGROOM_BUILDS_API:?}" "${STRONGROOM_POLICY:?}"

mkdir -p "$out"
# A fresh nonce for each run: the verdict is about this build and no earlier one.
nonce=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')

# `submit` verifies before it unpacks. Any other status than 0 ends this script with the same one.
# shellcheck disable=SC2086 # STRONGROOM_FLAGS is a list of words
strongroom build submit "$source" --nonce "$nonce" --policy "$STRONGROOM_POLICY" --output "$out" --json \
  ${STRONGROOM_CA:+--ca "$STRONGROOM_CA"} ${STRONGROOM_FLAGS-} >"$out/submit.json"

# The same verdict once more, offline, from the archive and the source alone, as anyone who has both can do it.
archive=$(sed -n 's/.*"archive": *"\([^"]*\)".*/\1/p' "$out/submit.json")
# shellcheck disable=SC2086
strongroom verify build "$archive" --nonce "$nonce" --source "$source" --policy "$STRONGROOM_POLICY" \
  ${STRONGROOM_FLAGS-} >"$out/verdict.txt" || status=$?
cat "$out/verdict.txt"
exit "${status:-0}"
