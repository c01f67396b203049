// The host's order: reasons to reject it, and its part of the dispatch receipt. Pure.

import { sha256 } from '../attest/hash.ts'
import { toHex, utf8 } from '../base/bytes.ts'
import { nixOptionsOf, optionWords } from '../contract/http/option-words.ts'
import { type BuildOrder, orderText } from '../contract/vm/build-order.ts'
import type { OrderWords } from './attester.ts'

/**
 * Returns why the order is rejected; null if it is accepted. An authority or mirror determines what is fetched, so each
 * must match the client's request. The client's verifier checks that the request in the order is the client's.
 */
export function orderProblem({ accepts, fetch, options }: BuildOrder): string | null {
  // Options without a value would select a toolchain and set nothing else.
  if (options !== null && optionWords(options).length === 0)
    return 'build.order.options: must be null when no option is set'
  const keys = new Set((nixOptionsOf(options)?.caches ?? []).map(({ publicKey }) => publicKey))
  if (new Set([...keys].map(key => key.slice(0, key.indexOf(':')))).size < keys.size)
    return 'build.order.options.nix.caches: two keys have the same name, so Nix would use only one of them'
  if (fetch === null) return null
  const { ca, cratesMirror } = fetch
  if (ca !== null && digestOf(ca) !== accepts.caSha256) {
    return 'build.order.fetch.ca: authorities whose SHA-256 the request does not carry as fetch_ca_sha256'
  }
  if (cratesMirror !== null && cratesMirror !== accepts.cratesMirror) {
    return 'build.order.fetch.cratesMirror: a mirror that the request does not name as crates_mirror'
  }
  return null
}

export function orderWords(order: BuildOrder): OrderWords {
  const { fetch } = order
  return {
    orderDigest: sha256(utf8(orderText(order))),
    fetchProxy: fetch?.proxy ?? null,
    fetchMirror: fetch?.cratesMirror ?? null,
    fetchAuthoritiesDigest: fetch?.ca == null ? null : sha256(utf8(fetch.ca)),
  }
}

function digestOf(text: string): string {
  return toHex(sha256(utf8(text)))
}
