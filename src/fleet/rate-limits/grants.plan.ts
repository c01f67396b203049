// Computes a gateway's target and grant from the rows of a key's gateways. Pure.

import { type Amounts, NO_AMOUNTS, type ShareAsk, type ShareGrant } from '../../contract/vm/shares.ts'
import { planShares, reserveOf, type Sharer } from './shares.plan.ts'

/** A gateway's row for a key in the directory. */
export type ShareRow = Omit<ShareAsk, 'keyPrefix'> & {
  readonly keyPrefix: string
  /** Identifies host and gateway. */
  readonly id: string
  readonly isOwn: boolean
  /** Time since its last request, by the clock of silence. */
  readonly silentMs: number
}

/** Longest interval between two renewals of a gateway. */
export const renewSharesMs = 2_000

/** A gateway that has missed this many renewals neither takes nor gives. It keeps its share until it expires. */
const silentFromMs = 3 * renewSharesMs

/** Time for another host to learn of a request and to return what it does not use. */
const handOverMs = 2 * renewSharesMs
/** Time until a whole window has passed, used if nothing better is known. */
const wholeWindowMs = 61_000

const DIMENSIONS = [0, 1, 2] as const
type Dimension = (typeof DIMENSIONS)[number]

/** Limits all amounts of the ask, because a gateway is only trusted with its own host's share. */
export function boundedBy(limits: Amounts, ask: ShareAsk): ShareAsk {
  const bounded = (amounts: Amounts) => mapDimensions(dimension => Math.min(amounts[dimension], limits[dimension]))
  return {
    ...ask,
    ...{ share: bounded(ask.share), held: bounded(ask.held), wanted: bounded(ask.wanted) },
    least: mapDimensions(dimension => (ask.least[dimension] > limits[dimension] ? 0 : ask.least[dimension])),
  }
}

/** Reports whether a gateway has nothing left and requests nothing. */
export function isGivenBack({ share, held, wanted }: Pick<ShareAsk, 'share' | 'held' | 'wanted'>): boolean {
  return [...share, ...held, ...wanted].every(amount => amount === 0)
}

/** Returns the target of a gateway's share. `others`: as of the last response; undefined for the first request. */
export function targetOf(limits: Amounts, own: ShareRow, others: readonly ShareRow[] | undefined): Amounts {
  if (isGivenBack(own)) return [...NO_AMOUNTS]
  if (others === undefined) return mapDimensions(dimension => limits[dimension] - reserveOf(limits[dimension]))
  return mapDimensions(dimension => partOf(limits, dimension, [own, ...others], own))
}

export function grantOf(limits: Amounts, own: ShareRow, others: readonly ShareRow[]): ShareGrant {
  const all = [own, ...others]
  const keep = mapDimensions(dimension => partOf(limits, dimension, all, own))
  const lowered = DIMENSIONS.filter(dimension => keep[dimension] < own.share[dimension])
  const isWanted = lowered.some(dimension =>
    others.some(other => other.share[dimension] < Math.min(other.wanted[dimension], limits[dimension])),
  )
  const moreInMs = mapDimensions(dimension => {
    const isMoreDue = keep[dimension] > own.share[dimension] || own.least[dimension] > own.share[dimension]
    return isMoreDue ? moreInMsOf(dimension, others) : wholeWindowMs
  })
  return { keyPrefix: own.keyPrefix, share: own.share, keep, moreInMs, isWanted }
}

function partOf(limits: Amounts, dimension: Dimension, rows: readonly ShareRow[], own: ShareRow): number {
  let limit = limits[dimension]
  const sharers: Sharer[] = []
  for (const { id, share, held, wanted, least, waitingMs, silentMs } of rows) {
    if (silentMs >= silentFromMs) limit -= Math.max(share[dimension], held[dimension])
    else sharers.push({ id, wanted: wanted[dimension], least: least[dimension], waitingMs })
  }
  return planShares(Math.max(0, limit), sharers).get(own.id) ?? 0
}

/**
 * Returns when more may become available: at the next renewal of hosts with unused shares, otherwise when amounts leave
 * their windows.
 */
function moreInMsOf(dimension: Dimension, others: readonly ShareRow[]): number {
  const heard = others.filter(({ silentMs }) => silentMs < silentFromMs)
  if (others.length === 0 || heard.some(({ share, held }) => share[dimension] > held[dimension])) return handOverMs
  const frees = heard.filter(({ held }) => held[dimension] > 0).map(({ freesInMs }) => freesInMs[dimension])
  return frees.length === 0 ? wholeWindowMs : Math.min(...frees) + handOverMs
}

function mapDimensions(amountOf: (dimension: Dimension) => number): Amounts {
  return [amountOf(0), amountOf(1), amountOf(2)]
}
