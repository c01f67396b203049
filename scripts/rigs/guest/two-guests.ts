// Two guests as the firewall's plan names them: golden text and namespaces speak of the same ones. Pure.

import { filteredMark } from '../../../src/base/link-names.ts'
import type { Nft } from '../../../src/host/network/nft.ts'
import type { HostTablePlan } from '../../../src/vm/network/host-table.plan.ts'
import type { NftPlan } from '../../../src/vm/network/nft.plan.ts'

export const nextHop = '169.254.88.1'
export const guest = (n: number) => ({
  tap: `srtest00000${n}`,
  mac: `02:00:00:00:00:0${n}`,
  address: `10.88.0.${n}`,
  addressV6: null as string | null,
})
export const unspent = { limitBytes: 100_000, usedBytes: 0, rescueLimitBytes: 50_000, rescueUsedBytes: 0 } as const
/** Kernel objects of a guest with this tap. */
export const objectsOf = (tap: string | null) =>
  tap === null ? { quotas: [], counters: [] } : { quotas: [tap, `${tap}_rescue`], counters: [tap] }
/** Tests of open connections open many in a second. */
const bounds = { perAddressMax: 4, perNetworkMax: 6, allMax: 6, newPerSecondMax: 10_000 } as const
/** The link between this host and the namespace of the guests. */
export const link = {
  tapPrefix: 'sr',
  nextHop,
  nextHopV6: null,
  loopbackClients: true,
  mtuBytes: 1500,
} as const
export const hostPlan = (change: Partial<HostTablePlan> = {}): HostTablePlan => ({
  table: 'strongroom',
  link: 'sr-vms',
  nextHop,
  nextHopV6: null,
  source: { kind: 'masquerade' },
  sourceV6: null,
  dropOthers: false,
  services: { ports: [8441, 8442], ...bounds },
  uids: { min: 70_000, max: 79_999 },
  namesPort: null,
  gatewayListen: null,
  gatewayVmService: null,
  ...change,
})
/** This host's part of a `VmNetwork` whose VMs are in the same namespace, in a table of its own. */
export const hostPart = (nft: Pick<Nft, 'applyRuleset'>) => ({ nft, ruleset: hostPlan({ table: 'strongroom_host' }) })
export const plan = (change: Partial<NftPlan> = {}): NftPlan => ({
  table: 'strongroom',
  tapPrefix: 'sr',
  mtuBytes: 1500,
  pool: '10.88.0.0/24',
  v6: null,
  ownNetworks: [],
  hostAddresses: ['192.0.2.1'],
  egress: { allowed: [], newFlowsPerSecondMax: 250, flowsMax: 2048 },
  names: null,
  nextHop,
  nextHopPorts: [8442],
  services: bounds,
  snapshotPort: 8446,
  publicPort: null,
  fetchPort: 3129,
  gatewayListen: null,
  gatewayVmService: null,
  vms: [1, 2].map(n => ({ ...guest(n), ...unspent, opened: true, network: 'world' })),
  removed: { quotas: [], counters: [] },
  ...change,
})
/** Instead of the table of VMs: it lets everything pass, which routing would stop without its mark. */
export const openText = `flush ruleset
table inet open { chain marked { type filter hook prerouting priority mangle; meta mark set ${filteredMark}; }; }
`
export const nextHopV6 = 'fd73:7472:6f6e:67::1'
export const poolV6 = '2001:db8:88::/64'
/** The same guest with IPv6, beside IPv4 or alone. */
export const guestV6 = (n: number, { alone = false } = {}) => ({
  ...guest(n),
  ...(alone ? { address: null } : {}),
  addressV6: `2001:db8:88::${n}`,
})
/** The same plan with both families, or with IPv6 alone. */
export const planV6 = ({ alone = false, v6 = {}, ...change }: PlanV6Change = {}): NftPlan =>
  plan({
    ...(alone ? { pool: null } : {}),
    v6: { pool: poolV6, nextHop: nextHopV6, allowed: [], ...v6 },
    vms: [1, 2].map(n => ({ ...guestV6(n, { alone }), ...unspent, opened: true, network: 'world' })),
    ...change,
  })
type PlanV6Change = Partial<Omit<NftPlan, 'v6'>> & { readonly alone?: boolean; readonly v6?: Partial<NftPlan['v6']> }
/** Bytes that a guest used of its cap and of its allowance. */
export function quotaOf(used: Readonly<Record<string, number>>, n: number): { cap: number; rescue: number } {
  const { tap } = guest(n)
  return { cap: used[tap] ?? -1, rescue: used[`${tap}_rescue`] ?? -1 }
}
