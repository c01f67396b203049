// Names and addresses of instances. Effects: SQL.

import { eq } from 'drizzle-orm'
import { type DirectoryDb, prepareRaw } from '../db.ts'
import type { Instance } from './instance.table.ts'
import { type InstanceAddress, instanceAddresses } from './instance-address.table.ts'

/** Null if it has none any more. */
export function setAddress(db: DirectoryDb, instanceId: string, addresses: InstanceAddress | null): void {
  if (addresses === null) db.delete(instanceAddresses).where(eq(instanceAddresses.instanceId, instanceId)).run()
  else {
    db.insert(instanceAddresses)
      .values({ instanceId, ...addresses })
      .onConflictDoUpdate({ target: instanceAddresses.instanceId, set: { ...addresses } })
      .run()
  }
}

/** Fields that the name of an instance follows from; addresses as in the fleet's directory. */
export type NamedInstance = Pick<Instance, 'id' | 'name' | 'hostId' | 'vmId' | 'desired' | 'status'> &
  InstanceAddress & { readonly organization: string; readonly sshHostKey: string | null }

export type NamedInstances = {
  /** Instances that are there, in any order. The caller bounds their number. */
  readonly find: (ids: readonly string[]) => NamedInstance[]
  /** Ids of all hosts' instances that are not terminated, oldest first. */
  readonly living: () => string[]
}

/** Prepared once, and raw: all instances of a fleet are looked up every few seconds. */
export function prepareNamed(db: DirectoryDb): NamedInstances {
  const find = prepareRaw<NamedInstance>(
    db,
    `SELECT i.id, i.name, o.slug AS organization, i.host_id AS hostId, i.vm_id AS vmId, i.desired, i.status,
       a.address, a.address_v6 AS addressV6, t.ssh_host_key AS sshHostKey
     FROM json_each(?) wanted JOIN instances i ON i.id = wanted.value JOIN organizations o ON o.id = i.organization_id
     LEFT JOIN instance_addresses a ON a.instance_id = i.id
     LEFT JOIN instance_attestations t ON t.instance_id = i.id`,
  )
  const living = prepareRaw<{ id: string }>(
    db,
    `SELECT id FROM instances
     WHERE status IN ('provisioning', 'ready', 'failed', 'terminating')
     ORDER BY created_at_ms, id`,
  )
  return { find: ids => find.all(JSON.stringify(ids)), living: () => living.all().map(({ id }) => id) }
}
