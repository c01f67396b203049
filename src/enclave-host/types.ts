// Parts of engine and appliance that the host's side of the gateway VM needs. Types only.

import type { VmEngine } from '../vm/engine.ts'
import type { VmGateways } from '../vm/evidence/gateway.driver.ts'
import type { RecordedLaunch } from '../vm/evidence/launch-policy.plan.ts'

/** Where the firewall sends the gateway's clients, and what the gateway reaches. */
export type GatewayRoute = {
  /** Null: nobody is served. */
  readonly serving: string | null
  readonly upstreams: readonly { readonly address: string; readonly port: number }[]
}

export type GatewayEngine = Pick<VmEngine, 'define' | 'dismiss' | 'view' | 'onChange' | 'open'> &
  Omit<VmGateways, '#private'> & {
    /** Recorded launch. Fault attest.unavailable. */
    readonly launch: (vmId: string) => RecordedLaunch
    /** Idempotent; resolves when the firewall has it. Faults: host.command_failed, host.command_timeout. */
    readonly route: (route: GatewayRoute) => Promise<void>
  }

/**
 * Certificates for a key that stays in its VM. `csr`: PKCS #10, DER. Fault invalid_request: malformed, or not signed
 * by its key.
 */
export type Certify = (csr: Uint8Array) => Promise<{ readonly clients: string; readonly guests: string }>
