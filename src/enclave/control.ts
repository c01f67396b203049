// The part of the configuration that the host may change while the gateway runs: keys with their limits, and the keys
// of upstreams. State in memory.
//
// The host is hostile: a snapshot counts only if it is signed by the control key of workload.json and its revision is
// above the one in force. After a restart no revision is in force, so the host can replay an older one; the threat
// model states this.

import { createPublicKey, type KeyObject, verify } from 'node:crypto'
import { present } from '../base/assert.ts'
import { fromBase64Url } from '../base/bytes.ts'
import { messageOf } from '../base/fault.ts'
import { parseJson } from '../base/json.ts'
import { type CheckResult, checkValue } from '../contract/check.ts'
import { type ControlKey, ControlSnapshot, controlMessage } from '../contract/vm/enclave.ts'
import { withoutIgnorable } from '../contract/vm/ignorable.ts'
import { type Refusal, refuse } from '../guest/wire.codec.ts'
import { type Cost, createCost } from '../inference/metering/price.ts'
import type { KnownGatewayKey } from '../store/directory/gateway-key.query.ts'

export class Control {
  readonly #key: KeyObject
  #revision = 0
  #keys: ReadonlyMap<string, KnownGatewayKey> = new Map()
  #upstreamKeys: ReadonlyMap<string, string> = new Map()
  #isShared = false
  #prices = '[]'
  #cost: Cost = createCost([])

  /** `controlKey`: the Ed25519 public key of workload.json, base64url. */
  constructor(controlKey: string) {
    this.#key = createPublicKey({ key: { kty: 'OKP', crv: 'Ed25519', x: controlKey }, format: 'jwk' })
  }

  /** Revision of the snapshot in force; 0 before the first. */
  get revision(): number {
    return this.#revision
  }

  findKey(prefix: string): KnownGatewayKey | null {
    return this.#keys.get(prefix) ?? null
  }

  upstreamKey(upstream: string): string | null {
    return this.#upstreamKeys.get(upstream) ?? null
  }

  /** Hosts of a fleet share the keys' limits. */
  get isShared(): boolean {
    return this.#isShared
  }

  /** Computes costs by the prices in force; replaced when prices change. */
  get cost(): Cost {
    return this.#cost
  }

  /** Applies all of it or nothing. `signature`: base64url. The snapshot in force is accepted again. */
  apply(bytes: Uint8Array, signature: string): { readonly ok: true; readonly revision: number } | Refusal {
    const signed = fromBase64Url(signature)
    if (signed === null || !verify(null, controlMessage(bytes), this.#key, signed)) {
      return refuse('bad_request', 'control: not signed by the control key of workload.json')
    }
    const read = readSnapshot(bytes)
    if (!read.ok) return refuse('bad_request', `control: ${read.problem}`)
    const { revision, keys, upstreamKeys, prices, budgets, shared } = read.value
    if (revision < this.#revision) {
      return refuse('bad_request', `control: revision ${revision} is below ${this.#revision}, which is in force`)
    }
    if (revision > this.#revision) {
      const pricesText = JSON.stringify(prices)
      // Called first, because it throws if a model has two prices.
      if (pricesText !== this.#prices) this.#cost = createCost(prices)
      this.#prices = pricesText
      const organizations = new Map(budgets.map(budget => [budget.organizationId, budget]))
      this.#keys = new Map(
        keys.map(key => [key.prefix, knownOf(key, organizations.get(key.organizationId) ?? noBudget)]),
      )
      this.#upstreamKeys = new Map(Object.entries(upstreamKeys))
      this.#isShared = shared === true
      this.#revision = revision
    }
    return { ok: true, revision }
  }
}

/** Arrays and objects within each other: room for the ignorable members of later releases. */
const depthMax = 16

function readSnapshot(bytes: Uint8Array): CheckResult<ControlSnapshot> {
  try {
    return checkValue(ControlSnapshot, withoutIgnorable(parseJson(bytes, { depthMax })))
  } catch (error) {
    return { ok: false, problem: messageOf(error) }
  }
}

const noBudget = { budgetNanoUsd: null, budgetTokens: null, shortBudgets: null }

/** Returns a key in the store's form. A snapshot has only keys that are valid, except that they may have expired. */
function knownOf(
  { secretSha256, clientMade, shortBudgets = null, endUserBudget, ...key }: ControlKey,
  organization: Omit<ControlSnapshot['budgets'][number], 'organizationId'>,
): KnownGatewayKey {
  const digest = present(fromBase64Url(secretSha256), 'the schema lets only base64url through')
  return {
    key: {
      ...key,
      shortBudgets: endUserBudget === undefined ? shortBudgets : { ...shortBudgets, endUser: endUserBudget },
      // The host does not pass on the operator's names.
      name: null,
      isClientMade: clientMade === true,
      secretSha256: Buffer.from(digest),
      createdAtMs: 0,
      lastUsedAtMs: null,
      revokedAtMs: null,
    },
    organizationStatus: 'active',
    organizationBudget: {
      budgetNanoUsd: organization.budgetNanoUsd,
      budgetTokens: organization.budgetTokens,
      shortBudgets: organization.shortBudgets ?? null,
    },
    instanceDesired: null,
  }
}
