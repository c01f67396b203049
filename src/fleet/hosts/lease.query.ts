// Renews a host's lease, and gives up hosts that have been silent for too long. Effects: statements to PostgreSQL.

import { present } from '../../base/assert.ts'
import type { HostReport } from '../../contract/admin/fleet.ts'
import { fleetSchema } from '../driver.ts'
import type { Postgres, Sql } from '../postgres.ts'
import type { GiveUp } from './hosts.query.ts'

export type Renewal = {
  readonly hostId: string
  readonly lostAfterMs: number
  readonly platform: string
  /** Number of instances that it has and can take in addition. */
  readonly places: number
  readonly report: HostReport
  /**
   * Identifies this process among those that have the host's identity. A process that can only run after another has
   * ended may have the same.
   */
  readonly process: string
}

export type Rival = {
  /** Both addresses as the database sees them. */
  readonly rival: string
  readonly ownAddress: string
  /** Time of its last renewal, as text. */
  readonly rivalRenewed: string
}

export type Renewed =
  | { readonly isMember: false }
  /** Another process of this host has the lease. */
  | ({ readonly isMember: true } & Rival)
  | {
      readonly isMember: true
      readonly rival: null
      readonly isDraining: boolean
      /** The host was silent for so long that its instances were given up. */
      readonly wasLost: boolean
      readonly epoch: number
      readonly leaseMs: number
      /** Number of the host's newest report; null unless a process with the same id had the lease before. */
      readonly reported: number | null
      /** Hosts to give up. */
      readonly silent: readonly string[]
    }

/** Short enough for another attempt before the lease expires. */
const renewalAnswerMs = 1_500

export async function renewLease(sql: Sql, renewal: Renewal): Promise<Renewed> {
  const { hostId, lostAfterMs, platform, places, report, process } = renewal
  const [row] = await sql.query<Renewed>(
    `SELECT is_member AS "isMember", is_draining AS "isDraining", was_lost AS "wasLost", epoch, lease_ms AS "leaseMs",
       silent, reported, rival, rival_renewed AS "rivalRenewed", own_address AS "ownAddress"
     FROM renew_lease($1, $2, $3, $4, $5, $6)`,
    [hostId, lostAfterMs, platform, places, report, process],
    { answerMs: renewalAnswerMs },
  )
  return present(row, 'a function has one row')
}

/** Reports whether the signed-in role may use the directory. A removed host's may not. */
export async function mayUseDirectory(sql: Sql): Promise<boolean> {
  const [row] = await sql.query<{ may: boolean }>("SELECT has_schema_privilege($1::text, 'USAGE') AS may", [
    fleetSchema,
  ])
  return row?.may === true
}

/** Gives up a silent host. Null if it has returned, or another host gave it up. */
export async function giveUpSilent(
  postgres: Pick<Postgres, 'transact'>,
  { hostId, lostAfterMs }: Pick<Renewal, 'hostId' | 'lostAfterMs'>,
  giveUp: GiveUp,
): Promise<number | null> {
  return await postgres.transact(async tx => {
    const [row] = await tx.query<{ isLost: boolean }>('SELECT mark_lost($1, $2) AS "isLost"', [hostId, lostAfterMs])
    return row?.isLost === true ? await giveUp(tx, hostId) : null
  })
}
