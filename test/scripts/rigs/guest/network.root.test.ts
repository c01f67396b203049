// Attempts between namespaces on a machine that is busy. Needs root.

import { expect, setDefaultTimeout, test } from 'bun:test'
import { createGuestNetwork, hostAddress, worldAddress } from '../../../../scripts/rigs/guest/network.ts'
import { needsRoot } from '../../../../scripts/rigs/netns.ts'

setDefaultTimeout(60_000)

/** As those of `listen`, and says its number. */
const serverCode = `Bun.listen({ hostname: '0.0.0.0', port: 80, socket: { open(s) { s.write(s.remoteAddress + '\\n') }, data() {} } })
  console.log('up'); console.log('pid ' + process.pid)`

if (needsRoot('the test of attempts')) {
  test('goal: a server that has no processor for a second is reached, and what drops packets is not', async () => {
    using network = await createGuestNetwork()
    const [guest] = network.guests
    const server = await network.program(network.world, serverCode)
    const pid = Number((await server.says('pid ')).slice(4))
    const attempts = [
      () => network.reach(guest, worldAddress, 80),
      async () => ((await network.reachAny(guest, [[worldAddress, 80]])).length === 1 ? hostAddress : null),
    ]
    for (const attempt of attempts) {
      process.kill(pid, 'SIGSTOP')
      const reached = attempt()
      await Bun.sleep(2_000)
      process.kill(pid, 'SIGCONT')
      expect(await reached).toBe(hostAddress)
    }
    await network.host.run(['nft', 'add', 'table', 'inet', 'drops'])
    await network.host.run([
      ...['nft', 'add', 'chain', 'inet', 'drops', 'f', '{ type filter hook forward priority 0; policy drop; }'],
    ])
    for (const attempt of attempts) expect(await attempt()).toBeNull()
  })
}
