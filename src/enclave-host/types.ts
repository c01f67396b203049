// Parts of engine and appliance that the host's side of the gateway VM needs. Types only.

import type { DaySums, MonthSums } from '../contract/vm/enclave.ts'
import type { HostRequest, UsageBatch } from '../contract/vm/enclave-responses.ts'
import type { ShareAnswer } from '../contract/vm/shares.ts'
import type { VmEngine } from '../vm/engine.ts'
import type { GatewayVmRequests } from '../vm/evidence/gateway-vm.driver.ts'
import type { RecordedLaunch } from '../vm/evidence/launch-policy.plan.ts'

/** Where the firewall sends the gateway's clients, and what the gateway can reach. */
export type GatewayVmRoute = {
  /** Null if no VM serves. */
  readonly serving: string | null
  readonly upstreams: readonly { readonly address: string; readonly port: number }[]
}

export type GatewayVmEngine = Pick<VmEngine, 'define' | 'dismiss' | 'view' | 'onChange' | 'open'> &
  Omit<GatewayVmRequests, '#private'> & {
    /** Recorded launch. Fault attest.unavailable. */
    readonly launch: (vmId: string) => RecordedLaunch
    /** Idempotent; resolves when the firewall has it. Faults: host.command_failed, host.command_timeout. */
    readonly route: (route: GatewayVmRoute) => Promise<void>
  }

/**
 * Issues certificates for a key that stays in its VM. `csr`: PKCS #10, DER. Fault invalid_request: malformed, or not
 * signed by its key.
 */
export type Certify = (
  csr: Uint8Array,
  options: {
    readonly byName: boolean
    /** The VM takes `requests` and `stamp`. */
    readonly follows: boolean
    readonly requests: readonly { readonly name: string; readonly csr: Uint8Array }[]
  },
) => Promise<{
  readonly clients: string
  readonly guests: string
  /** Only if requested by name. */
  readonly named?: { readonly serverName: string; readonly cert: string }[]
  /** Only if `follows` is set. */
  readonly requests?: string[]
  readonly stamp?: string
}>

export type HostRequestOf<Kind extends HostRequest['kind']> = Extract<HostRequest, { kind: Kind }>

/** The books of usage, which are the gateway's (`inference/metering/`). */
export type UsageLedger = {
  /** Number of rows of a VM that are booked. */
  readonly booked: (vmId: string) => number
  /**
   * Records a batch. Throws Fault channel.refused if it is not the next batch, or not signed by the VM's receipt key.
   */
  readonly take: (vmId: string, batch: UsageBatch) => void
}

/** Shares of keys' limits that VMs lease from the fleet. `receiptKey`: that of the process in the VM. */
export type VmShares = {
  readonly renew: (receiptKey: string, asked: HostRequestOf<'shares'>) => Promise<ShareAnswer>
  /** The VM has ended. Never rejects. */
  readonly end: (receiptKey: string) => Promise<void>
}

/** A budget in a month (as 2026-11): of a key, or with an empty `keyPrefix` of the organization. */
export type BudgetScope = { readonly organizationId: string; readonly keyPrefix: string; readonly month: string }
export type BudgetPart = { readonly nanoUsd: number; readonly tokens: number }

/** Sums of the ledger for a VM. Fault channel.refused if they are not known yet. */
export type UsageReporter = {
  readonly spent: (vmId: string, want: HostRequestOf<'spent'>) => MonthSums | Promise<MonthSums>
  readonly days: (vmId: string, want: HostRequestOf<'days'>) => DaySums
}
