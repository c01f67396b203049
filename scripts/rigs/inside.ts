// Commands inside the network namespace of an appliance's VMs. Pure.

import { namespaceFile } from '../../src/host/network/vm-namespace.ts'

/** Default of `network.table`, which the namespace is named by. */
const usualName = 'strongroom'
export const usualFile = namespaceFile(usualName)

/** The same command in there. */
export function insideVms(argv: readonly string[]): string[] {
  return ['nsenter', `--net=${usualFile}`, ...argv]
}
