// From the rows of a key's gateways to the target of one of them, and to its grant. Pure.

import { type Amounts, NO_AMOUNTS, type ShareAsk, type ShareGrant } from '../../contract/vm/shares.ts'
import { planShares, reserveOf, type Sharer } from './shares.plan.ts'

/** One gateway's row of a key, as the directory has it. */
export type ShareRow = Omit<ShareAsk, 'keyPrefix'> & {
  readonly keyPrefix: string
  /** Host and gateway. */
  readonly id: string
  readonly isOwn: boolean
  /** Since its last question, by the clock of silence. */
  readonly silentMs: number
}

/** A gateway asks again after so long, at the latest. */
export const renewSharesMs = 2_000

/** A gateway that has missed so many renewals neither takes nor gives; what it has stays its own until it is over. */
const silentFromMs = 3 * renewSharesMs

/** In which another host hears of a want and gives up what it does not hold. */
const handOverMs = 2 * renewSharesMs
/** Until a whole window is over, where nothing else is known. */
const wholeWindowMs = 61_000

const DIMENSIONS = [0, 1, 2] as const
type Dimension = (typeof DIMENSIONS)[number]

/** The ask with nothing above the limits in it: a gateway counts for its own host's part alone. */
export function boundedBy(limits: Amounts, ask: ShareAsk): ShareAsk {
  const bounded = (amounts: Amounts) => mapDimensions(dimension => Math.min(amounts[dimension], limits[dimension]))
  return {
    ...ask,
    ...{ share: bounded(ask.share), held: bounded(ask.held), wanted: bounded(ask.wanted) },
    least: mapDimensions(dimension => (ask.least[dimension] > limits[dimension] ? 0 : ask.least[dimension])),
  }
}

/** It has nothing left and wants nothing. */
export function isGivenBack({ share, held, wanted }: Pick<ShareAsk, 'share' | 'held' | 'wanted'>): boolean {
  return [...share, ...held, ...wanted].every(amount => amount === 0)
}

/** The part that it is to have. `others`: as of the last answer; undefined: it asks for the first time. */
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

/** Unused parts of others come with their next questions; else their windows have to let go of something. */
function moreInMsOf(dimension: Dimension, others: readonly ShareRow[]): number {
  const heard = others.filter(({ silentMs }) => silentMs < silentFromMs)
  if (others.length === 0 || heard.some(({ share, held }) => share[dimension] > held[dimension])) return handOverMs
  const frees = heard.filter(({ held }) => held[dimension] > 0).map(({ freesInMs }) => freesInMs[dimension])
  return frees.length === 0 ? wholeWindowMs : Math.min(...frees) + handOverMs
}

function mapDimensions(amountOf: (dimension: Dimension) => number): Amounts {
  return [amountOf(0), amountOf(1), amountOf(2)]
}
