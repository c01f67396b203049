// A guest that sends more than its cap: the commands, the kernel's count, and what leaves the host. Effects: runs nft
// and ssh.

import { expect } from 'bun:test'
import type { Appliance } from '../../../scripts/rigs/appliance.ts'
import { insideVms } from '../../../scripts/rigs/inside.ts'
import { sizeOf } from '../../../scripts/rigs/network/tap-wire.ts'
import { until } from '../../../scripts/rigs/until.ts'

export const datagramBytes = 1_400

/** Command that sends datagrams to the world, by one process: as fast as the guest can. */
export const blast = (address: string, count: number) =>
  `exec 3>/dev/udp/${address}/9; dd if=/dev/zero bs=${datagramBytes} count=${count} 2>/dev/null >&3; echo blasted`

/** The kernel's quota of the one VM. */
export function capOf(): { used: number; bytes: number } {
  const { stdout } = Bun.spawnSync(insideVms(['nft', '--json', 'list', 'quotas', 'table', 'inet', 'strongroom']))
  type Quota = { name: string; used: number; bytes: number }
  const { nftables } = JSON.parse(stdout.toString()) as { nftables: { quota?: Quota }[] }
  const found = nftables.flatMap(item => (item.quota && !item.quota.name.endsWith('_rescue') ? [item.quota] : []))
  expect(found.length).toBe(1)
  const { used = -1, bytes = -1 } = found[0] ?? {}
  return { used, bytes }
}

const undershootBytesMax = 65_536
/** Not under test: an emulated guest of a busy machine is slow. */
const stepMs = 600_000
const datagramsOfFlood = 1_500

export type Flood = {
  readonly address: string
  /** Packets of its family that have left the host since the last call. */
  readonly left: () => Uint8Array[]
  /** More bytes than these remain before it. */
  readonly remainingMin: number
  /** Called once the session is open, before anything is sent. */
  readonly started?: () => Promise<void>
}

/**
 * The guest floods the world until the kernel's count is at the cap. It sent
 * never a byte more than what remained, and at most 64 KiB less. Returns the packets.
 */
export async function flood(appliance: Appliance, hostname: string, plan: Flood): Promise<Uint8Array[]> {
  const { address, left, remainingMin, started } = plan
  const command = `echo there; read line; ${blast(address, datagramsOfFlood)}; read line`
  const session = appliance.sshSession(hostname, command)
  await session.printed('there', stepMs)
  await started?.()
  left()
  const { used, bytes } = capOf()
  const remaining = bytes - used
  expect(remaining).toBeGreaterThan(remainingMin)
  session.type('go\n')
  await session.printed('blasted', stepMs)
  session.type('bye\n')
  expect(await session.exited).toBe(0)
  expect(capOf()).toEqual({ used: bytes, bytes })
  const packets = left()
  // Some may be under way still.
  await until('what has passed has left', stepMs, () => {
    packets.push(...left())
    return sizeOf(packets) > remaining - undershootBytesMax
  })
  packets.push(...left())
  expect(sizeOf(packets)).toBeLessThanOrEqual(remaining)
  return packets
}
