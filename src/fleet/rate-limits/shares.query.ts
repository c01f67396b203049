// Shares of keys' limits in the fleet's directory. Effects: statements to PostgreSQL.

import type { Amounts, ShareAsk } from '../../contract/vm/shares.ts'
import type { Sql } from '../postgres.ts'
import type { ShareRow } from './grants.plan.ts'

export type RequestedShare = {
  readonly ask: ShareAsk
  readonly limits: Amounts
  /** The gateway's target share; it is granted the free part of it. */
  readonly target: Amounts
}

/** Short enough for another attempt in time. */
const renewalAnswerMs = 1_500

/**
 * Renews shares with one statement for all keys, which locks each key separately. Returns no rows for an outdated turn.
 * Faults: `fleet.unavailable`; `internal` if this host is not a member.
 */
export async function renewShares(
  sql: Sql,
  asked: {
    readonly hostId: string
    readonly member: string
    readonly turn: number
    readonly goodMs: number
    readonly shares: readonly RequestedShare[]
  },
): Promise<ShareRow[]> {
  const rows = asked.shares.map(({ ask, limits, target }) => ({
    ...{ k: ask.keyPrefix, l: limits, s: ask.share, h: ask.held, t: target },
    ...{ w: ask.wanted, m: ask.least, f: ask.freesInMs, a: ask.waitingMs },
  }))
  // Sent as text, because the driver converts an array to a PostgreSQL array.
  return await sql.query<ShareRow>(
    `SELECT key_prefix AS "keyPrefix", id, is_own AS "isOwn", to_json(share) AS share, to_json(held) AS held,
       to_json(wanted) AS wanted, to_json(needed) AS least, to_json(frees_ms) AS "freesInMs",
       waiting_ms AS "waitingMs", silent_ms AS "silentMs" FROM renew_shares($1, $2, $3, $4, $5)`,
    [asked.hostId, asked.member, asked.turn, asked.goodMs, JSON.stringify(rows)],
    { answerMs: renewalAnswerMs },
  )
}

/** Ends the shares of one gateway of the host, or of all but one. Fault `fleet.unavailable`. */
export async function endShares(
  sql: Sql,
  { hostId, ended, otherThan }: { readonly hostId: string; readonly ended: string | null; readonly otherThan: string },
): Promise<void> {
  await sql.query('SELECT end_shares($1, $2, $3)', [hostId, ended, otherThan], { answerMs: renewalAnswerMs })
}
