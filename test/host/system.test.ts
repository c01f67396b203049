// What the daemon reads of the machine it runs on.

import { expect, test } from 'bun:test'
import { isHostStopping } from '../../src/host/system.ts'

test('a host is stopping when systemd says so, and not when it says anything else or nothing', async () => {
  // Goal: systemctl ends with a failure for most states; only its word counts. A missing or silent systemctl is no shutdown.
  const saying = (text: string, exitCode: number) => ['sh', '-c', `echo ${text}; exit ${exitCode}`]
  expect(await isHostStopping(saying('stopping', 1))).toBe(true)
  expect(await isHostStopping(saying('running', 0))).toBe(false)
  expect(await isHostStopping(saying('degraded', 1))).toBe(false)
  expect(await isHostStopping(saying('offline', 1))).toBe(false)
  expect(await isHostStopping(['/nowhere/systemctl'])).toBe(false)
})
