// A gateway with shares of keys' limits, which a scripted fleet grants. A manual clock.

import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { silentLogger } from '../../../src/base/log.ts'
import type { Amounts, ShareAsk, ShareGrant } from '../../../src/contract/vm/shares.ts'
import { KeyShares } from '../../../src/inference/limits/key-shares.ts'
import { createLimiter } from '../../../src/inference/limits/limiter.ts'
import type { Caller, Ticket } from '../../../src/inference/types.ts'

export const none = { prompt: 0, completion: 0 }
export const goodMs = 300_000

export type Fleet = (asks: readonly ShareAsk[]) => readonly ShareGrant[] | Promise<readonly ShareGrant[]>

export const grant = (keyPrefix: string, share: Amounts, changes: Partial<ShareGrant> = {}): ShareGrant => ({
  keyPrefix,
  share,
  keep: share,
  moreInMs: [60_000, 60_000, 60_000],
  isWanted: false,
  ...changes,
})

/** Grants every key the same. */
export const granting =
  (share: Amounts, changes: Partial<ShareGrant> = {}): Fleet =>
  asks =>
    asks.map(({ keyPrefix, wanted }) =>
      grant(keyPrefix, wanted.every(amount => amount === 0) ? [0, 0, 0] : share, changes),
    )

export function shareBench(fleet: Fleet, isShared = () => true) {
  const clock = createManualClock()
  const asked: (readonly ShareAsk[])[] = []
  const turns: number[] = []
  const logged: string[] = []
  const scripted = { fleet }
  const shares = new KeyShares({
    isShared,
    keysPerAskMax: 64,
    renew: async (turn, asks) => {
      turns.push(turn)
      asked.push(structuredClone(asks))
      return { goodMs, grants: [...(await scripted.fleet(asks))] }
    },
    clock,
    log: {
      ...silentLogger,
      info: message => void logged.push(`info ${message}`),
      warn: message => void logged.push(`warn ${message}`),
    },
  })
  const limiter = createLimiter(clock, shares)
  const stopping = new AbortController()
  void shares.run(stopping.signal)
  const enter = async (caller: Caller, tokens = 0) => {
    await limiter.prepare(caller, tokens)
    return limiter.admit(caller, tokens)
  }
  return {
    clock,
    limiter,
    shares,
    asked,
    turns,
    logged,
    scripted,
    enter,
    admit: async (caller: Caller, tokens = 0): Promise<Ticket> => {
      const outcome = await enter(caller, tokens)
      if (!outcome.ok) throw new Error(`refused: ${outcome.refusal.message}`)
      return outcome.ticket
    },
    refuse: async (caller: Caller, tokens = 0) => {
      const outcome = await enter(caller, tokens)
      if (outcome.ok) throw new Error('admitted')
      return outcome.refusal
    },
    stop: () => stopping.abort(),
  }
}
