// Order in which organizations, and the keys of each, get the slots of an upstream: those with the fewest slots now,
// and among equals deficit round robin over the time for which they had slots. State in memory, times are arguments.

import { shareOf } from '../../base/work/fair-slots.ts'

/** The owner of a request, by which upstreams are shared. */
export type Owner = { readonly organizationId: string; readonly keyPrefix: string }

/** Number of names stored at each level. A dropped name counts as new. No share: organizations, and keys of each. */
const namesMax = 512
/** How long after another owner's last request slots are kept free for it. */
const recentMs = 600_000
/** A name leaves 1 / `leftParts` of its slots to others, at least one if there are two. */
const leftParts = 8

/** The slots of one upstream. */
export class UpstreamSlots {
  readonly #countMax: number
  readonly #organizations = new FairLevel()
  #held = 0

  constructor(countMax: number) {
    this.#countMax = countMax
  }

  /** Number of slots in use. */
  get held(): number {
    return this.#held
  }

  get isFull(): boolean {
    return this.#held >= this.#countMax
  }

  /**
   * Reports whether a slot is free for this owner: an organization leaves some to other organizations, and a key
   * leaves some of its organization's to other keys, if those had requests recently.
   */
  isFree({ organizationId, keyPrefix }: Owner, { organizations, keys }: HasOthers): boolean {
    if (this.isFull) return false
    const ofOrganization = organizations ? leaving(this.#countMax) : this.#countMax
    const ofKey = keys ? leaving(ofOrganization) : ofOrganization
    const organization = this.#organizations.find(organizationId)
    return (organization?.held ?? 0) < ofOrganization && (organization?.parts?.find(keyPrefix)?.held ?? 0) < ofKey
  }

  /** Takes a slot. Call the returned function once to release it. */
  take({ organizationId, keyPrefix }: Owner, nowMs: number): (nowMs: number) => void {
    const organization = this.#organizations.take(organizationId)
    organization.share.parts ??= new FairLevel()
    const key = organization.share.parts.take(keyPrefix)
    this.#held += 1
    return endMs => {
      this.#held -= 1
      for (const taken of [organization, key]) taken.giveBack(endMs - nowMs)
    }
  }

  /** Returns a negative number if `a` goes before `b`; 0 if the order of arrival decides. */
  compare(a: Owner, b: Owner): number {
    const byOrganization = this.#organizations.compare(a.organizationId, b.organizationId)
    if (byOrganization !== 0) return byOrganization
    return this.#organizations.find(a.organizationId)?.parts?.compare(a.keyPrefix, b.keyPrefix) ?? 0
  }
}

function leaving(countMax: number): number {
  return countMax < 2 ? countMax : countMax - shareOf(countMax, leftParts)
}

/** The part of an upstream that one organization or key has. */
type Share = {
  held: number
  /** End of the time that it has used, on the level's own clock. */
  finishMs: number
  /** Number of its newest slot, in the order in which slots were taken. */
  turn: number
  /** The keys of an organization. */
  parts: FairLevel | null
}

type TakenSlot = { readonly share: Share; readonly giveBack: (lastedMs: number) => void }

/**
 * Names that share slots. Each slot begins at the end of its name's time, or now if that is past; the clock of the
 * level is the start of the newest slot. So an idle name gains no credit, and a name with long use waits for the
 * others.
 */
class FairLevel {
  /** Ordered by last service, the longest ago first. */
  readonly #shares = new Map<string, Share>()
  #nowMs = 0
  #turns = 0
  /** Name at the end of `#shares`. */
  #newest: string | null = null

  find(name: string): Share | undefined {
    return this.#shares.get(name)
  }

  take(name: string): TakenSlot {
    const share = this.#shares.get(name) ?? { held: 0, finishMs: 0, turn: 0, parts: null }
    const startMs = Math.max(this.#nowMs, share.finishMs)
    this.#nowMs = startMs
    this.#turns += 1
    share.held += 1
    share.turn = this.#turns
    if (name !== this.#newest) {
      this.#newest = name
      this.#shares.delete(name)
      this.#shares.set(name, share)
    }
    if (this.#shares.size > namesMax) this.#forgetOne()
    return {
      share,
      giveBack: lastedMs => {
        share.held -= 1
        share.finishMs = Math.max(share.finishMs, startMs + lastedMs)
      },
    }
  }

  compare(a: string, b: string): number {
    if (a === b) return 0
    const [left, right] = [this.#shares.get(a), this.#shares.get(b)]
    return (
      (left?.held ?? 0) - (right?.held ?? 0) ||
      Math.max(left?.finishMs ?? 0, this.#nowMs) - Math.max(right?.finishMs ?? 0, this.#nowMs) ||
      (left?.turn ?? 0) - (right?.turn ?? 0)
    )
  }

  #forgetOne(): void {
    const idle = this.#shares.entries().find(([, { held }]) => held === 0)
    if (idle !== undefined) this.#shares.delete(idle[0])
  }
}

export type HasOthers = { readonly organizations: boolean; readonly keys: boolean }

/** Records whether another organization, or another key of the same one, had requests recently. */
export class RecentOwners {
  readonly #organizations = new LastTwo()
  /** The one with the newest request is last. */
  readonly #keys = new Map<string, LastTwo>()

  note({ organizationId, keyPrefix }: Owner, nowMs: number): void {
    const isLast = this.#organizations.note(organizationId, nowMs)
    const known = this.#keys.get(organizationId)
    const keys = known ?? new LastTwo()
    keys.note(keyPrefix, nowMs)
    if (isLast && known !== undefined) return
    this.#keys.delete(organizationId)
    this.#keys.set(organizationId, keys)
    if (this.#keys.size <= namesMax) return
    for (const longestAgo of this.#keys.keys().take(1)) this.#keys.delete(longestAgo)
  }

  others({ organizationId, keyPrefix }: Owner, nowMs: number): HasOthers {
    const sinceMs = nowMs - recentMs
    return {
      organizations: this.#organizations.hasOther(organizationId, sinceMs),
      keys: this.#keys.get(organizationId)?.hasOther(keyPrefix, sinceMs) === true,
    }
  }
}

/** The two most recent names, enough to find one other than a given name. */
class LastTwo {
  #last = { name: '', atMs: Number.NEGATIVE_INFINITY }
  #before = this.#last

  /** Reports whether the name was the last one already. */
  note(name: string, atMs: number): boolean {
    const isSame = name === this.#last.name
    if (!isSame) this.#before = this.#last
    this.#last = { name, atMs }
    return isSame
  }

  hasOther(name: string, sinceMs: number): boolean {
    return (this.#last.name === name ? this.#before : this.#last).atMs > sinceMs
  }
}
