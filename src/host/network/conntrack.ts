// Removes entries of the kernel's connection tracking (nf_conntrack), by conntrack(8). Effects: one network
// namespace.

import { isIP } from 'node:net'
import { assert } from '../../base/assert.ts'
import { Fault } from '../../base/fault.ts'
import { plainEnv, run } from '../../linux/command.ts'
import { hereNetns, type Netns } from './netns.ts'

/** Where an address can be in an entry: source or destination, of the original direction or of the reply. */
const SIDES = ['--orig-src', '--orig-dst', '--reply-src', '--reply-dst'] as const
const outputBytesMax = 16_777_216

/** Deletes every connection of an address, in both directions. Faults: host.command_failed, host.command_timeout. */
export async function forgetConnections(address: string, timeoutMs: number, netns: Netns = hereNetns): Promise<void> {
  const family = isIP(address)
  assert(family !== 0, 'connections are forgotten by address')
  for (const side of SIDES) {
    try {
      const argv = ['conntrack', '--delete', '--family', `ipv${family}`, side, address]
      await netns.run(() => run(argv, { timeoutMs, outputBytesMax }))
    } catch (error) {
      if (!isNothingDeleted(error)) throw error
    }
  }
}

/** Reports whether conntrack ended with 1 because there was nothing to delete. */
export function isNothingDeleted(error: unknown): boolean {
  return error instanceof Fault && error.message.includes(': 0 flow entries have been deleted')
}

export function hasConntrack(): boolean {
  return Bun.which('conntrack', { PATH: plainEnv.PATH }) !== null
}

/** Throws Fault host.unsupported if the command is missing. */
export function requireConntrack(): void {
  if (hasConntrack()) return
  throw new Fault(
    'host.unsupported',
    'the command conntrack is missing: without it connections of one instance could reach the next; install the package conntrack',
  )
}
