// Messages between the benchmark of a fleet and a process of hosts. Pure.

import type { FleetHostOptions } from '../../rigs/fleet/fleet-host.ts'

/** The program's argument, as JSON. Many hosts in a process need less memory. */
export type HostProgramOptions = { readonly hosts: readonly FleetHostOptions[] }

export type ToHost =
  /** Asks when a host knows the address of a name. */
  | { readonly kind: 'name'; readonly host: number; readonly hostname: string }
  /** Asks when a host's copy has a version. */
  | { readonly kind: 'version'; readonly host: number; readonly version: number }
  /** From now on half of the VMs that are ready send, and are sampled every second. */
  | { readonly kind: 'send' }

export type FromHost =
  | { readonly kind: 'started'; readonly hosts: readonly { readonly url: string; readonly hostId: string }[] }
  | { readonly kind: 'named'; readonly hostname: string; readonly atMs: number }
  | { readonly kind: 'reached'; readonly version: number; readonly atMs: number }
