// Addresses of the fleet's hosts for each other, in the directory. Effects: statements to PostgreSQL.

import type { Sql } from '../postgres.ts'

export type PeerRow = {
  readonly hostId: string
  readonly name: string
  /** `host:port`; null if it does not serve other hosts. */
  readonly address: string | null
  /** PEM; null if it has published none. */
  readonly certificate: string | null
  /** Whether it is running, according to the database. */
  readonly hasLease: boolean
  /** Addresses of its services as reported, possibly in the form of another release. */
  readonly services: unknown
}

/** No share: hosts are the operator's. */
const hostCountMax = 1_000
const answerMs = 3_000

/** Lists every host of the fleet. */
export async function listPeers(sql: Sql): Promise<PeerRow[]> {
  return await sql.query<PeerRow>(
    `SELECT s.id AS "hostId", s.name, s.has_lease AS "hasLease", s.report -> 'addresses' AS services, p.address, p.certificate
     FROM host_states s LEFT JOIN peers p ON p.host_id = s.id ORDER BY s.id LIMIT $1`,
    [hostCountMax],
    { answerMs },
  )
}

export type Publication = { readonly address: string | null; readonly certificate: string }

/** Publishes a host's address. Returns false if the fleet does not have this host, or not with this role. */
export async function publishPeer(sql: Sql, hostId: string, { address, certificate }: Publication): Promise<boolean> {
  const values = [hostId, address, certificate]
  const [row] = await sql.query<{ done: boolean }>('SELECT publish_peer($1, $2, $3) AS done', values)
  return row?.done === true
}
