// Rules that count the egress of VMs, and drop what exceeds a cap or an allowance. Pure.

import { filteredMark } from '../../base/link-names.ts'
import { publicTlsPort } from '../../contract/vm/orders/published.ts'
import type { EgressPlan } from './egress.plan.ts'

type Rule = [chain: 'charge' | 'flows' | 'spent' | 'rescue', rule: string]

/**
 * Counts all packets of a guest that `from_vm` passes, also those to the host, and drops what exceeds the cap. Answers
 * within SSH connections that others began have a separate allowance; they are recognized after connection tracking.
 * The quota of a gateway's VM is unlimited.
 */
export function chargeRules(
  { newFlowsPerSecondMax: rate, flowsMax }: EgressPlan,
  uncounted: readonly string[],
  publicPort: number | null,
): Rule[] {
  const burst = 4 * rate
  const beyond = publicPort === null ? '' : 'quota name iifname map @published '
  const unconfirmed = 'ct state new ct status & confirmed == 0'
  return [
    // Without this mark, no packet is routed (host/network/vm-link.ts).
    ['charge', `meta mark set meta mark | 0x${filteredMark.toString(16).padStart(8, '0')}`],
    ['charge', 'iifname != @opened iifname != @fetching iifname != @serving accept'],
    // Without a connection, it would leave with the VM's own address.
    ['charge', 'ct state invalid,untracked drop'],
    ...uncounted.flatMap((match): Rule[] => [
      ['charge', `${match} ${unconfirmed} jump flows`],
      ['charge', `${match} accept`],
    ]),
    ['charge', 'iifname @opened jump replies'],
    // The clients' limits bound the gateway's flows. An unanswered flow stays `new`; only its first packet is
    // unconfirmed.
    ['charge', `${unconfirmed} iifname != @serving jump flows`],
    // They count towards the cap too. Beyond the owner's part of it only they are dropped: strangers cause them. Where
    // the operator has closed the port again, connections that are still open get nothing more.
    ['charge', `iifname @opened tcp sport ${publicPort ?? publicTlsPort} ct direction reply ${beyond}drop`],
    ['charge', 'counter name iifname map @counters quota name iifname map @quotas goto spent'],
    ['flows', `add @flow_rates { iifname limit rate over ${rate}/second burst ${burst} packets } drop`],
    ['flows', `add @flow_counts { iifname ct count over ${flowsMax} } drop`],
    ['spent', 'iifname @opened tcp sport 22 ct state established ct direction reply goto rescue'],
    ['spent', 'add @closed { iifname }'],
    ['spent', 'iifname != @opened drop'],
    ['spent', 'goto refuse_all'],
    ['rescue', 'quota name iifname map @rescues drop'],
  ]
}
