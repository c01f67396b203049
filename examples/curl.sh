#!/usr/bin/env bash
# The three services by curl alone. curl verifies certificates, not evidence: see openai.ts and `strongroom verify`.
#
#   examples/curl.sh instance ~/.ssh/id_ed25519.pub     # A: create an instance, wait until it is ready, list all
#   examples/curl.sh gateway "Why is the sky blue?"     # B: a streamed chat completion
#   examples/curl.sh build DIRECTORY                    # C: submit a directory, follow the build, fetch the result
#
# Environment:
#   STRONGROOM_INSTANCES    https://instances.DOMAIN:8441
#   STRONGROOM_GATEWAY      https://inference.DOMAIN:8442
#   STRONGROOM_BUILDS       https://builds.DOMAIN:8443
#   STRONGROOM_API_KEY      an organization's key, ca_…, for A and C
#   STRONGROOM_GATEWAY_KEY  a gateway key, gw_…, for B
#   STRONGROOM_MODEL        for B: a model's id
#   STRONGROOM_CA           file: the operator's ca.pem; leave it out if certificates are by a public authority
#   STRONGROOM_POLICY       for C, file: the policy of the builder's image that the printed command names; builder.json
# Needs curl and jq; for C also tar and openssl.
set -euo pipefail

# request KEY URL [CURL OPTION…]: the key goes over standard input, where no list of processes shows it.
request() {
  local key=$1 url=$2
  shift 2
  printf 'header = "Authorization: Bearer %s"\n' "$key" |
    curl --config - --silent --show-error --fail-with-body ${STRONGROOM_CA:+--cacert "$STRONGROOM_CA"} "$@" "$url"
}

instance() {
  local api=${STRONGROOM_INSTANCES:?} key=${STRONGROOM_API_KEY:?} name record status
  jq --raw-input '{public_key: .}' "${1:?a file with an SSH public key}" >"$work/request.json"
  # Keep this key if the request is to be repeated: the same one within 24 hours creates nothing new.
  name=$(request "$key" "$api/v1/instances" --header 'Content-Type: application/json' \
    --header "Idempotency-Key: $(cat /proc/sys/kernel/random/uuid)" --data-binary @"$work/request.json" |
    jq --raw-output .data.name)
  while :; do
    record=$(request "$key" "$api/v1/instances/$name")
    status=$(jq --raw-output .data.status <<<"$record")
    echo "$name: $status" >&2
    case $status in
      ready) break ;;
      failed) jq .data <<<"$record" && return 1 ;;
    esac
    sleep 5
  done
  request "$key" "$api/v1/instances" | jq --raw-output '.data.instances[] | [.name, .status, .created_at] | @tsv'
}

gateway() {
  local api=${STRONGROOM_GATEWAY:?} key=${STRONGROOM_GATEWAY_KEY:?}
  jq --null-input --arg model "${STRONGROOM_MODEL:?}" --arg prompt "${1:-Say hello.}" \
    '{model: $model, stream: true, messages: [{role: "user", content: $prompt}]}' >"$work/request.json"
  request "$key" "$api/v1/chat/completions" --no-buffer --header 'Content-Type: application/json' \
    --data-binary @"$work/request.json" |
    sed --unbuffered --quiet 's/^data: \({.*\)/\1/p' |
    jq --raw-output --join-output --unbuffered '.choices[0].delta.content // empty'
  echo
}

build() {
  local api=${STRONGROOM_BUILDS:?} key=${STRONGROOM_API_KEY:?} job
  # Sends every other file, also what .gitignore names: keep keys out of the directory. `strongroom build submit` leaves
  # out what .gitignore names, and refuses files with an API key.
  tar --create --gzip --file "$work/source.tar.gz" --directory "${1:?a directory}" --exclude=./.git --exclude=./target .
  base64 --wrap=0 "$work/source.tar.gz" >"$work/source"
  jq --null-input --arg nonce "$(openssl rand -hex 16)" --rawfile source "$work/source" \
    '{nonce: $nonce, source_data: $source}' >"$work/request.json"
  job=$(request "$key" "$api/build" --header 'Content-Type: application/json' --data-binary @"$work/request.json" |
    jq --raw-output .job_id)
  request "$key" "$api/build/$job/events" --no-buffer
  request "$key" "$api/build/$job/result" --output "$job.tar.gz"
  # The verdict compares the source as it was sent, so that archive stays.
  mv "$work/source.tar.gz" "$job.source.tar.gz"
  echo "$job.tar.gz is not verified. This verifies it:"
  echo "strongroom verify build $job.tar.gz --nonce $(jq --raw-output .nonce "$work/request.json")" \
    "--source $job.source.tar.gz --policy ${STRONGROOM_POLICY:-builder.json}"
}

work=$(mktemp --directory)
trap 'rm --recursive --force "$work"' EXIT
case ${1-} in
  instance | gateway | build) "$@" ;;
  *) sed --quiet '2,/^set/{s/^# \{0,1\}//p}' "$0" >&2 && exit 2 ;;
esac
