// A port that is free now. Effects: a listener on loopback, for a moment.

import { randomInt } from 'node:crypto'
import { systemErrorCode } from '../../src/base/fault.ts'

/** Below those that the kernel gives to connections, which could have it while its server is down (Linux: 32768 on). */
const [lowest, highest] = [15_000, 32_000]

/** One that waits for its server is free, and not to be drawn again. */
const given = new Set<number>()

/** For a server that is bound later, or stopped and started again. */
export async function lastingPort(): Promise<number> {
  for (;;) {
    const drawn = randomInt(lowest, highest)
    if (given.has(drawn)) continue
    try {
      const port = await bound(drawn)
      given.add(port)
      return port
    } catch (error) {
      if (systemErrorCode(error) !== 'EADDRINUSE') throw error
    }
  }
}

async function bound(wanted: number): Promise<number> {
  const server = Bun.serve({ hostname: '127.0.0.1', port: wanted, fetch: () => new Response() })
  const port = server.port ?? 0
  await server.stop(true)
  return port
}
