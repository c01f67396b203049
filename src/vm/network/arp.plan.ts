// The appliance's table of family arp, and how interfaces that are no VM's are told. Pure.

import { type Element, elementLines } from './nft-elements.plan.ts'

export type ArpPlan = {
  readonly table: string
  readonly tapPrefix: string
  readonly vms: readonly { readonly tap: string; readonly mac: string; readonly address: string | null }[]
}

/** By the name that our taps have, and by their kind: another interface whose name begins so is left alone. */
export function unknownTap(way: 'i' | 'o', prefix: string): string {
  return `meta ${way}ifkind "tun" ${way}ifname "${prefix}*" ${way}ifname != @taps`
}

/**
 * The table of family arp. What a guest says of itself by ARP is what it is: else it could fill the host's one table of neighbours with others,
 * where the kernel is set to believe what it hears (arp_accept).
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
