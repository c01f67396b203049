// A further attempt of an instance on another host of its fleet, and VMs that a host has to end because their instance
// is not its own any more. Effects: SQL.

import { sql } from 'drizzle-orm'
import type { DirectoryDb } from '../db.ts'
import { instanceById } from './instance.query.ts'
import { setAddress } from './instance-address.query.ts'

/** Hosts that an instance is given to, one after the other. */
export const attemptsMax = 2

/**
 * Gives an instance that is not ready yet to another host, where it starts over: without VM, addresses, egress and
 * the key for the gateway that its first host made. False if it has moved, or was given on before; nothing was
 * written.
 */
export function giveToHost(
  tx: DirectoryDb,
  { id, from, to, nowMs }: { id: string; from: string; to: string; nowMs: number },
): boolean {
  const instance = instanceById(tx, id)
  if (instance === null || instance.hostId !== from || instance.attempt >= attemptsMax) return false
  if (instance.status !== 'provisioning' || instance.desired !== 'present') return false
  // The VM stays in the row: the copy finds in it what its host has to end.
  tx.run(sql`UPDATE instances SET host_id = ${to}, attempt = attempt + 1, egress_bytes = 0, egress_observed_at_ms = NULL,
    egress_block_applied_at_ms = NULL, changed_at_ms = max(changed_at_ms, ${nowMs}) WHERE id = ${id}`)
  // Equals the rule of a fleet's directory, which applies it itself.
  tx.run(sql`UPDATE gateway_keys
    SET revoked_at_ms = max(created_at_ms, (SELECT changed_at_ms FROM instances WHERE id = ${id}))
    WHERE instance_id = ${id} AND revoked_at_ms IS NULL`)
  setAddress(tx, id, null)
  return true
}

export function listLeftVms(db: DirectoryDb): string[] {
  return db.all<{ vm_id: string }>(sql`SELECT vm_id FROM left_vms`).map(({ vm_id: vmId }) => vmId)
}

/** Nothing is left of it. */
export function removeLeftVm(db: DirectoryDb, vmId: string): void {
  db.run(sql`DELETE FROM left_vms WHERE vm_id = ${vmId}`)
}
