// The cluster-state-metrics: VMs, instances, the host resources that they hold, egress. Effects: reads the store for
// each scrape.

import { type Collector, type Family, metricsText } from '../../base/prometheus.ts'
import { INSTANCE_STATUSES } from '../../contract/http/instance.ts'
import type { Store } from '../../store/db.ts'
import { countInstances } from '../../store/directory/instance.query.ts'
import { listEgress } from '../../store/ledger/egress.query.ts'
import { countVms, listVms, reservedBy } from '../../store/ledger/vm.query.ts'
import { VM_STATES } from '../../store/ledger/vm.table.ts'
import type { Capacity } from '../../vm/admission.plan.ts'

export type ClusterMetricsDeps = {
  readonly store: Pick<Store, 'directory' | 'ledger' | 'hostId'>
  readonly capacity: Pick<Capacity, 'memoryMib' | 'vcpus' | 'addresses'>
}

const bytesPerMib = 1_048_576

export function createClusterMetrics(deps: ClusterMetricsDeps): Collector {
  return {
    workload: 'cluster-state-metrics',
    render: () => metricsText([...stateFamilies(deps), ...roomFamilies(deps), ...egressFamilies(deps)]),
  }
}

function stateFamilies({ store }: ClusterMetricsDeps): Family[] {
  const [vms, instances] = [countVms(store.ledger.db), countInstances(store.directory.db)]
  return [
    gauge(
      'strongroom_vms',
      'VMs by state.',
      VM_STATES.map(state => [{ state }, vms[state] ?? 0]),
    ),
    gauge(
      'strongroom_instances',
      'Instances by status, including terminated ones until they are deleted.',
      INSTANCE_STATUSES.map(status => [{ status }, instances[status] ?? 0]),
    ),
  ]
}

function roomFamilies({ store, capacity }: ClusterMetricsDeps): Family[] {
  const used = reservedBy(store.ledger.db, store.hostId)
  return [
    gauge('strongroom_vm_memory_bytes', 'Memory that VMs hold.', [[{}, used.memoryMib * bytesPerMib]]),
    gauge('strongroom_vm_memory_limit_bytes', 'Memory for VMs.', [[{}, capacity.memoryMib * bytesPerMib]]),
    gauge('strongroom_vm_vcpus', 'vCPUs that VMs hold.', [[{}, used.vcpus]]),
    gauge('strongroom_vm_vcpus_limit', 'vCPUs for VMs.', [[{}, capacity.vcpus]]),
    gauge('strongroom_pool_addresses', 'Addresses of the pool that VMs hold.', [[{}, used.vms]]),
    gauge('strongroom_pool_addresses_limit', 'Addresses of the pool.', [[{}, capacity.addresses]]),
  ]
}

/** Returns one series for all VMs, because a label per VM would create a series with each instance, without bound. */
function egressFamilies({ store }: ClusterMetricsDeps): Family[] {
  const living = new Set(listVms(store.ledger.db, store.hostId).map(vm => vm.id))
  const samples = listEgress(store.ledger.db).filter(sample => living.has(sample.vmId))
  const used = samples.map(sample => sample.usedBytes)
  return [
    gauge('strongroom_egress_bytes', 'Total egress of the running VMs so far.', [
      [{}, used.reduce((sum, bytes) => sum + bytes, 0)],
    ]),
    gauge('strongroom_egress_vm_max_bytes', 'Highest egress of a VM.', [
      [{}, used.reduce((most, bytes) => Math.max(most, bytes), 0)],
    ]),
    gauge('strongroom_egress_blocked_vms', 'Running VMs that have used up their egress.', [
      [{}, samples.filter(sample => sample.blockedAtMs !== null).length],
    ]),
  ]
}

function gauge(name: string, help: string, samples: readonly (readonly [Record<string, string>, number])[]): Family {
  return { name, help, type: 'gauge', samples: samples.map(([labels, value]) => ({ labels, value })) }
}
