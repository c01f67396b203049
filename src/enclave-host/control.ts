// Control snapshots for running gateway VMs: keys and limits, signed by the control key. Effects: reads the store, a
// timer.

import { toBase64Url, utf8 } from '../base/bytes.ts'
import type { Clock } from '../base/clock.ts'
import { Fault } from '../base/fault.ts'
import { sweepLater } from '../base/work/sweep.ts'
import { SHORT_PERIODS } from '../contract/key-rules.ts'
import { type ControlSnapshot, controlMessage, documentBytesMax } from '../contract/vm/enclave.ts'
import type { DirectoryDb } from '../store/db.ts'
import { type ChangeMark, listGoodGatewayKeys, prepareChangeMark } from '../store/directory/gateway-key.query.ts'
import type { GatewayKey } from '../store/directory/gateway-key.table.ts'
import { listOrganizations } from '../store/directory/organization.query.ts'
import type { Organization } from '../store/directory/organization.table.ts'
import type { ControlKey } from './control-key.ts'

export type ControlSourceDeps = {
  readonly db: DirectoryDb
  readonly key: ControlKey
  readonly upstreamKeys: Readonly<Record<string, string>>
  /** Prices of tokens in the books. */
  readonly prices: ControlSnapshot['prices']
  /** Whether this host is in a fleet, whose hosts share the keys' limits. Default: it is not. */
  readonly isShared?: boolean
  readonly clock: Clock
}

/** A snapshot, ready to be sent. */
export type SignedSnapshot = {
  readonly revision: number
  readonly bytes: Uint8Array
  readonly signature: Uint8Array
}

/** The latest time that a Date can hold (ECMA-262 section 21.4.1.1). No share: a date. */
const revisionMax = 8_640_000_000_000_000
/** How long after its creation a key takes effect in the gateway. */
const lookMs = 100

export class ControlSource {
  readonly #deps: ControlSourceDeps
  readonly #changes: ChangeMark
  readonly #listeners: (() => void)[] = []
  #mark = { own: -1, others: -1 }
  /** Keys and budgets as text, by which a change is seen. */
  #keys = ''
  #current: SignedSnapshot | null = null
  #revision = 0

  constructor(deps: ControlSourceDeps) {
    this.#deps = deps
    this.#changes = prepareChangeMark(deps.db)
  }

  /** Calls `listener` whenever the snapshot has changed. */
  onChange(listener: () => void): void {
    this.#listeners.push(listener)
  }

  /** The current snapshot. */
  current(): SignedSnapshot {
    this.#look()
    this.#current ??= this.#sign()
    return this.#current
  }

  /**
   * Raises our revision above a gateway's, after our clock was set back. Fault channel.refused: the revision is
   * beyond any clock, and no revision would be left above it.
   */
  raiseAbove(revision: number): void {
    if (revision > revisionMax) throw new Fault('channel.refused', `control: unknown revision ${revision}`)
    if (revision < this.#revision) return
    this.#revision = revision
    this.#current = null
  }

  watch(signal: AbortSignal): Promise<void> {
    return sweepLater({ clock: this.#deps.clock, intervalMs: lookMs, signal }, () => {
      if (this.#look()) for (const listener of this.#listeners) listener()
    })
  }

  /** Whether there is another snapshot than at the last look. Cheap while nothing in the store changes. */
  #look(): boolean {
    const mark = { own: this.#changes.own(), others: this.#changes.others() }
    if (mark.own === this.#mark.own && mark.others === this.#mark.others) return false
    this.#mark = mark
    const keys = `"budgets":${JSON.stringify(this.#listBudgets())},"keys":${JSON.stringify(this.#listKeys())}`
    if (keys === this.#keys) return false
    this.#keys = keys
    this.#current = null
    return true
  }

  #listBudgets(): ControlSnapshot['budgets'] {
    return listOrganizations(this.#deps.db)
      .filter(row => row.budgetNanoUsd !== null || row.budgetTokens !== null || row.shortBudgets !== null)
      .map(row => ({ organizationId: row.id, ...budgetsOf(row) }))
  }

  #listKeys(): ControlSnapshot['keys'] {
    return listGoodGatewayKeys(this.#deps.db).map(key => ({
      prefix: key.prefix,
      secretSha256: toBase64Url(key.secretSha256),
      organizationId: key.organizationId,
      instanceId: key.instanceId,
      requestsPerMinute: key.requestsPerMinute,
      tokensPerMinute: key.tokensPerMinute,
      concurrencyMax: key.concurrencyMax,
      expiresAtMs: key.expiresAtMs,
      models: key.models,
      aliases: key.aliases,
      ...keyBudgetsOf(key),
      ...(key.isClientMade ? { clientMade: true } : {}),
    }))
  }

  #sign(): SignedSnapshot {
    const { key, upstreamKeys, prices, isShared, clock } = this.#deps
    // The time, so that a restarted daemon continues above the previous one.
    this.#revision = Math.max(clock.nowMs(), this.#revision + 1)
    const head = JSON.stringify({
      ...{ revision: this.#revision, upstreamKeys, prices },
      // Omitted if no key has it, because VMs of earlier releases refuse the list too.
      ...(this.#keys.includes('"endUserBudget":') ? { ignorable: IGNORABLE } : {}),
      // Omitted if there is no fleet, so that VMs of earlier releases accept it.
      ...(isShared === true ? { shared: true } : {}),
    })
    const bytes = utf8(`${head.slice(0, -1)},${this.#keys}}`)
    if (bytes.length > documentBytesMax.control) {
      throw new Fault('internal', `the keys of the gateway are ${bytes.length} bytes; revoke unused keys`)
    }
    return { revision: this.#revision, bytes, signature: key.sign(controlMessage(bytes)) }
  }
}

/**
 * Members that a VM of an earlier release may leave out until it is replaced. The budgets of the key and the
 * organization hold there in any case.
 */
const IGNORABLE = ['endUserBudget'] as const

type Budgets = Pick<Organization, 'budgetNanoUsd' | 'budgetTokens' | 'shortBudgets'>

/** Selects members by name: VMs refuse members that a later release has added to the store. */
function budgetsOf({ budgetNanoUsd, budgetTokens, shortBudgets }: Budgets) {
  const short = SHORT_PERIODS.flatMap(period => {
    const budget = shortBudgets?.[period]
    return budget === undefined ? [] : [[period, budget] as const]
  })
  const both = { budgetNanoUsd, budgetTokens }
  return short.length === 0 ? both : { ...both, shortBudgets: Object.fromEntries(short) }
}

function keyBudgetsOf(key: Pick<GatewayKey, keyof Budgets>) {
  const endUser = key.shortBudgets?.endUser
  return { ...budgetsOf(key), ...(endUser === undefined ? {} : { endUserBudget: endUser }) }
}
