// The parts of the proof, in the order of a host's life. Parts that leave files of other packages behind come after
// the removal, on a freshly installed host.

import { DAY_TWO, OWN_SERVER } from './day-two.ts'
import { CHANGED_TABLE, FOREIGN_FIREWALL, SECOND_LOCK } from './firewall.ts'
import { IPV6_ONLY } from './ipv6.ts'
import { FIRST_HOUR, LATER_DAYS, REMOVAL } from './life.ts'
import { PROBLEMS_ENDED, PROBLEMS_RAISED } from './monitoring.ts'
import { NEIGHBOURS } from './neighbours.ts'
import type { Part } from './proof.ts'

export const PARTS: readonly Part[] = [
  ...[...FIRST_HOUR, ...OWN_SERVER],
  ...[...PROBLEMS_RAISED, ...DAY_TWO, ...PROBLEMS_ENDED],
  ...[...SECOND_LOCK, ...LATER_DAYS, ...CHANGED_TABLE, ...REMOVAL],
  ...[...NEIGHBOURS, ...FOREIGN_FIREWALL, ...IPV6_ONLY],
]
