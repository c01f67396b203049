// The appliance's table of family arp, and the rule match for interfaces that belong to no VM. Pure.

import { type Element, elementLines } from './nft-elements.plan.ts'

export type ArpPlan = {
  readonly table: string
  readonly tapPrefix: string
  readonly vms: readonly { readonly tap: string; readonly mac: string; readonly address: string | null }[]
}

/** Matches by the name and kind of our taps, so that other interfaces with the same prefix are ignored. */
export function unknownTap(way: 'i' | 'o', prefix: string): string {
  return `meta ${way}ifkind "tun" ${way}ifname "${prefix}*" ${way}ifname != @taps`
}

/**
 * Returns the appliance's table of family arp. A guest may announce only its own address; otherwise it could fill the
 * host's single neighbour table, because the kernel is configured to accept announcements (arp_accept).
 */
export function arpLines({ table: name, tapPrefix, vms }: ArpPlan): string[] {
  const table = `arp ${name}`
  return [
    `add table ${table}`,
    `add set ${table} taps { type ifname; }`,
    `add set ${table} guests { type ifname . ether_addr . ether_addr . ipv4_addr; }`,
    `add chain ${table} input { type filter hook input priority filter; policy accept; }`,
    `flush chain ${table} input`,
    ...['taps', 'guests'].map(set => `flush set ${table} ${set}`),
    ...elementLines(
      table,
      vms.flatMap(({ tap, mac, address }): Element[] => [
        ['taps', `"${tap}"`],
        ...(address === null ? [] : [['guests', `"${tap}" . ${mac} . ${mac} . ${address}`] satisfies Element]),
      ]),
    ),
    `add rule ${table} input ${unknownTap('i', tapPrefix)} drop`,
    `add rule ${table} input iifname @taps iifname . ether saddr . arp saddr ether . arp saddr ip != @guests drop`,
  ]
}
