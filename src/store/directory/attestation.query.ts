// Attestations of instances. Effects: SQL.

import { eq, sql } from 'drizzle-orm'
import { builtOnce, type DirectoryDb } from '../db.ts'
import { type InstanceAttestationRow, instanceAttestations } from './attestation.table.ts'

/** Stores the attestation of an instance's claim; a repeated claim replaces it. */
export function storeAttestation(db: DirectoryDb, row: InstanceAttestationRow): void {
  const { instanceId: _, ...set } = row
  db.insert(instanceAttestations).values(row).onConflictDoUpdate({ target: instanceAttestations.instanceId, set }).run()
}

export function attestationOf(db: DirectoryDb, instanceId: string): InstanceAttestationRow | null {
  return db.select().from(instanceAttestations).where(eq(instanceAttestations.instanceId, instanceId)).get() ?? null
}

type AttestedKey = Pick<InstanceAttestationRow, 'sshHostKey' | 'attestedAtMs'>

/** Without the document, which is long. */
export function attestedKeyOf(db: DirectoryDb, instanceId: string): AttestedKey | null {
  return selectAttestedKey(db).get({ instanceId }) ?? null
}

const selectAttestedKey = builtOnce((db: DirectoryDb) => {
  const { sshHostKey, attestedAtMs } = instanceAttestations
  const where = eq(instanceAttestations.instanceId, sql.placeholder('instanceId'))
  return db.select({ sshHostKey, attestedAtMs }).from(instanceAttestations).where(where).prepare()
})
