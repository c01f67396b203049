// Parts of a key's limits that a gateway has on lease where hosts of a fleet share them. Pure.
//
// A gateway's request contains what it has, holds and needs, and it is granted shares; the limits stay those of the
// key, so a grant never admits more than the key's own terms do.

import { Closed } from '../forms.ts'
import { type Static, Type } from '../type.ts'

const Amount = Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })
const KeyPrefix = Type.String({ minLength: 1, maxLength: 32 })

/** Requests within a minute, tokens within a minute, requests at once. */
export const Amounts = Type.Tuple([Amount, Amount, Amount])
export type Amounts = Static<typeof Amounts>

export const NO_AMOUNTS: Readonly<Amounts> = [0, 0, 0]

export const ShareAsk = Closed({
  keyPrefix: KeyPrefix,
  /** In force: no request is admitted that would exceed it. */
  share: Amounts,
  /** Taken within the last minute and not slid out yet; requests that run. More than `share` after that was lowered. */
  held: Amounts,
  wanted: Amounts,
  /** With it the next waiting request would be admitted; zeros: none waits. */
  least: Amounts,
  /** Milliseconds until some of `held` is free again. */
  freesInMs: Amounts,
  /** Milliseconds for which requests wait, or were refused, and none was admitted. */
  waitingMs: Amount,
})
export type ShareAsk = Static<typeof ShareAsk>

export const ShareGrant = Closed({
  keyPrefix: KeyPrefix,
  share: Amounts,
  /** The part that is to be in force from now on where it is below `share`: another host has a right to the rest. */
  keep: Amounts,
  /** Milliseconds until there may be more, as far as is known. */
  moreInMs: Amounts,
  /** Another host waits for some of what is not kept. */
  isWanted: Type.Boolean(),
})
export type ShareGrant = Static<typeof ShareGrant>

/** Keys in one message of a gateway VM: they fit into a line of the channel. */
export const sharesOfMessageMax = 64

export const ShareAnswer = Closed({
  /** How long all shares of the gateway are good, counted from before it asked; 0: the question came too late. */
  goodMs: Amount,
  /** A key that is missing does not exist. */
  grants: Type.Array(ShareGrant),
})
export type ShareAnswer = Static<typeof ShareAnswer>

/** `turn` rises with each question of a gateway. Rejects when the fleet's directory does not answer. */
export type RenewShares = (turn: number, asks: readonly ShareAsk[]) => Promise<ShareAnswer>
