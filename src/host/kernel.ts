// Facts and switches of the running kernel. Effects: reads and writes /proc.

import { readFileSync, writeFileSync } from 'node:fs'
import { wrapFault } from '../base/fault.ts'

/** Random per boot of the host (random(4)): a changed value means that every process of before is gone. */
export function hostBootId(): string {
  return readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim()
}

/** Lets the host route IPv4 between interfaces, in this network namespace. Fault host.unsupported. */
export function enableForwarding(): void {
  const path = '/proc/sys/net/ipv4/ip_forward'
  try {
    if (readFileSync(path, 'utf8').trim() !== '1') writeFileSync(path, '1')
  } catch (error) {
    throw wrapFault(error, `write ${path}`, 'host.unsupported')
  }
}
