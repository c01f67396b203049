// Two guests as the firewall's plan names them: golden text and namespaces speak of the same ones. Pure.

import type { NftPlan } from '../../src/vm/nft.plan.ts'

export const gateway = '169.254.88.1'
export const guest = (n: number) => ({ tap: `srtest00000${n}`, mac: `02:00:00:00:00:0${n}`, address: `10.88.0.${n}` })
export const unspent = { limitBytes: 100_000, usedBytes: 0, rescueLimitBytes: 50_000, rescueUsedBytes: 0 } as const
/** What is in the kernel of a guest with this tap. */
export const objectsOf = (tap: string | null) =>
  tap === null ? { quotas: [], counters: [] } : { quotas: [tap, `${tap}_rescue`], counters: [tap] }
export const plan = (change: Partial<NftPlan> = {}): NftPlan => ({
  table: 'strongroom',
  tapPrefix: 'sr',
  mtuBytes: 1500,
  pool: '10.88.0.0/24',
  ownNetworks: [],
  egress: { allowed: [], source: { kind: 'masquerade' }, newFlowsPerSecondMax: 250, flowsMax: 2048 },
  dropOthers: false,
  gateway,
  gatewayPorts: [8442],
  services: { ports: [8441, 8442], perAddressMax: 4, allMax: 6 },
  uids: { min: 70_000, max: 79_999 },
  fetchPort: 3129,
  gatewayListen: null,
  gatewayService: null,
  vms: [1, 2].map(n => ({ ...guest(n), ...unspent, opened: true, network: 'world' })),
  removed: { quotas: [], counters: [] },
  ...change,
})
/** What a guest has used of its cap and of its allowance. */
export function quotaOf(used: Readonly<Record<string, number>>, n: number): { cap: number; rescue: number } {
  const { tap } = guest(n)
  return { cap: used[tap] ?? -1, rescue: used[`${tap}_rescue`] ?? -1 }
}
