// Ports for servers that are bound later, or stopped and started again. Effects: a listener on loopback, for a moment,
// and a socket whose name reserves the port.

import { randomInt } from 'node:crypto'

/** Below those that the kernel gives to connections, which could have it while its server is down (Linux: 32768 on). */
const [lowest, highest] = [15_000, 32_000]

/**
 * A port of loopback that is free now and that no other rig has until `stop`, of this process or another in its network
 * namespace. The kernel drops the reservation with the process.
 */
export function reservePort(): { readonly port: number; readonly stop: () => void } {
  for (;;) {
    const port = randomInt(lowest, highest)
    try {
      const reservation = Bun.listen({ unix: `\0srt-port-${port}`, socket: { data() {} } })
      try {
        Bun.listen({ hostname: '127.0.0.1', port, socket: { data() {} } }).stop(true)
        return { port, stop: () => reservation.stop() }
      } catch {
        reservation.stop()
      }
    } catch {
      // Another rig has it.
    }
  }
}

/** Reserved as long as this process runs. */
export function lastingPort(): number {
  return reservePort().port
}
