// CPU, memory and egress of one instance over the last hour. Effects: the store.

import { Type } from '@sinclair/typebox'
import { Elysia } from 'elysia'
import { iso } from '../../base/clock.ts'
import { InstanceReference } from '../../contract/admin/admin.ts'
import { AdminInstanceUsage } from '../../contract/admin/views/instance-usage.ts'
import { vmById } from '../../store/ledger/vm.query.ts'
import type { AdminDeps } from '../deps.ts'
import { instanceByReference } from '../instances.ts'

const bytesPerMib = 1_048_576

export function instanceUsageRoutes({ store, vmUsage }: Pick<AdminDeps, 'store' | 'vmUsage'>) {
  return new Elysia({ normalize: false }).get('/instance/usage', ({ query }) => usageOf(query.ref), {
    query: Type.Object({ ref: InstanceReference }),
    response: AdminInstanceUsage,
  })

  /** Throws Fault not_found. */
  function usageOf(reference: string): AdminInstanceUsage {
    const { vmId } = instanceByReference(store.directory.db, reference).instance
    const vm = vmId === null ? null : vmById(store.ledger.db, vmId)
    const points = vm === null ? [] : vmUsage(vm.id)
    return {
      vcpus: vm?.vcpus ?? null,
      memory_bytes: vm === null ? null : vm.memoryMib * bytesPerMib,
      points: points.map(({ atMs, cpus, memoryBytes, egressBytes }) => ({
        at: iso(atMs),
        cpus,
        memory_bytes: memoryBytes,
        egress_bytes: egressBytes,
      })),
    }
  }
}
