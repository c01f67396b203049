// Dependencies of the admin interface. Types only.

import type { RandomBytes } from '../base/ids.ts'
import type { Collector } from '../base/prometheus.ts'
import type { Runtime } from '../base/runtime.ts'
import type { AdminLeak, AdminStatus } from '../contract/admin/admin.ts'
import type { AdminInstanceHours, HourGroup } from '../contract/admin/organizations/instance-hours.ts'
import type { UsageDays } from '../contract/http/usage-rows.ts'
import type { OfferedModels } from '../contract/key-rules.ts'
import type { EnclaveStatus } from '../contract/vm/enclave-responses.ts'
import type { FleetAdmin } from '../fleet/hosts/fleet-admin.ts'
import type { MintedKey } from '../http/bearer.ts'
import type { Store } from '../store/db.ts'
import type { Build } from '../store/directory/build.table.ts'
import type { Instance } from '../store/directory/instance.table.ts'
import type { Organization } from '../store/directory/organization.table.ts'
import type { GatewayVmState } from '../store/ledger/gateway-vm.table.ts'
import type { Administrator } from './access/caller.ts'
import type { ConsoleControl } from './access/console-control.ts'
import type { TestAlerts } from './alerts/routes.ts'
import type { OperatorClock } from './clock.ts'
import type { OperatorChips } from './fleet.ts'
import type { OperatorLog } from './log.ts'
import type { MaintenanceMode } from './maintenance/mode.ts'

export type AdminDeps = Runtime & {
  /** Administrators named in the configuration. Root and the daemon's own user always are administrators. */
  readonly administrators: readonly Administrator[]
  readonly ownerUid: number
  /** Throws UnavailableFault while an upgrade is on trial. */
  readonly admitChange: () => void
  readonly store: Pick<Store, 'directory' | 'ledger'>
  readonly mintKey: (random: RandomBytes) => MintedKey
  readonly mintGatewayKey: (random: RandomBytes) => MintedKey
  /** Models that the configured gateway serves; aliases of keys must fit them. */
  readonly offeredModels: OfferedModels
  /** Models of the gateway that have no price. Default: none. */
  readonly unpricedModels?: readonly string[]
  /** Accepts a deletion in the same way as one by the owner. Idempotent. */
  readonly deleteInstance: (instance: Instance, organization: Organization) => Promise<void>
  /** Carries out an accepted deletion soon (removal.ts). */
  readonly removeOrganization: (organizationId: string) => void
  /** Applies the ledger's egress limits to firewall and instances. Safe to repeat. Faults: host.*. */
  readonly applyEgressLimits: () => Promise<void>
  /** Returns the name of a host of the fleet; null if it is unknown, or this host is in no fleet. */
  readonly hostName: (hostId: string) => string | null
  /** Cancels a build in the same way as its owner. No effect on one that has ended. Null if service C is off. */
  readonly cancelBuild: ((id: string) => Promise<Build | null>) | null
  /**
   * Streams the lines of a build's log; with `follow`, until its end. Null if service C is off. Faults: not_found (the
   * log was removed), fleet.unavailable.
   */
  readonly buildLog: ((build: Build, options: BuildLogOptions) => AsyncIterable<Uint8Array>) | null
  /** Sums the time for which instances were ready. Fault invalid_request. */
  readonly instanceHours: (query: InstanceHoursQuery) => Promise<AdminInstanceHours>
  readonly gateway: PlacedGatewayControl
  readonly vm: (vmId: string) => VmSummary | null
  /** Returns CPU, memory and egress of a VM over the last hour, oldest first. */
  readonly vmUsage: (vmId: string) => readonly VmUsagePoint[]
  readonly status: () => AdminStatus
  /** Null if the console is off. */
  readonly console: ConsoleControl | null
  readonly clockGuard: OperatorClock
  readonly maintenance: Pick<MaintenanceMode, 'view' | 'begin' | 'end'>
  readonly transparency: OperatorLog
  readonly chips: OperatorChips
  readonly fleet: FleetAdmin
  /** Takes commands that ran beside the daemon into the record. Never throws. */
  readonly takeHostCommands: () => void
  readonly leaks: () => Promise<readonly AdminLeak[]>
  readonly testAlerts: TestAlerts
  /** Parts of GET /metrics, in order. */
  readonly collectors: readonly Pick<Collector, 'render'>[]
  /** Returns the directory that holds the console of a VM. */
  readonly consoleDir: (vmId: string) => string
}

/** See vm/machine/usage-history.ts. */
export type VmUsagePoint = {
  readonly atMs: number
  readonly cpus: number | null
  readonly memoryBytes: number | null
  readonly egressBytes: number
}

export type InstanceHoursQuery = {
  readonly organizations: readonly Organization[]
  readonly days: UsageDays
  readonly by: ReadonlySet<HourGroup>
}

export type BuildLogOptions = { readonly follow: boolean; readonly signal: AbortSignal }

/** The gateway's VMs. `host`: the gateway is part of the daemon. `off`: there is none. */
export type PlacedGatewayControl = GatewayVmControl | 'host' | 'off'

/** See enclave-host/gateway-vm-supervisor.ts. */
export type GatewayVmControl = {
  readonly view: () => {
    readonly problem: string | null
    readonly gatewayVms: readonly {
      readonly vmId: string
      readonly state: GatewayVmState
      readonly address: string | null
      readonly status: EnclaveStatus | null
      readonly sinceMs: number
      readonly isWanted: boolean
      /** Since when rows of usage have been waiting without any being recorded; null if none wait. */
      readonly usageWaitingSinceMs: number | null
      /** Reason why it does not serve as configured. */
      readonly problem: string | null
      readonly booked: number
      readonly reason: string | null
    }[]
  }
  /** Replaces the serving VM. False if there is none to replace. */
  readonly replace: () => boolean
  /** Resolves once every reachable VM has the keys as in the store. Never rejects. */
  readonly pushControl: () => Promise<void>
  readonly session: () => { readonly log: (from: number) => { readonly seq: number; readonly line: string }[] } | null
}

export type VmSummary = { readonly state: string; readonly address: string | null; readonly addressV6: string | null }

/** Reads the JSON body of an admitted request: the `parse` of every route that has a body. */
export type ReadBody = (context: { readonly request: Request; readonly route: string }) => Promise<unknown>
