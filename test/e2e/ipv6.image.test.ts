// An instance with IPv6, beside IPv4 and alone: a real VM, in a network namespace without a way to the world.

import { expect, test } from 'bun:test'
import { createAppliance } from '../../scripts/rigs/appliance.ts'
import { createCustomer } from '../../scripts/rigs/instances/instances-client.ts'
import { holdings, NOTHING } from '../../scripts/rigs/leftovers.ts'
import { inOwnNetns } from '../../scripts/rigs/netns.ts'

const timeoutMs = 600_000
const poolV6 = 'pool_v6 = "2001:db8:88::/64"'
const services = { listen: 'inference = "[::]:8442"', inference: 'placement = "host"' }
const both = { ...services, network: `${poolV6}\nresolvers = ["9.9.9.9", "2620:fe::9"]` }
const alone = { ...services, network: `pool_v4 = ""\n${poolV6}\nresolvers = ["2620:fe::9"]` }
const gatewayName = 'inference.strongroom.internal'
const gatewayV6 = 'fd73:7472:6f6e:67::1'
/**
 * The gateway on the path of programs in the VM, which is IPv6 where there is no other; and its IPv6 address itself.
 */
const health = `curl --silent --show-error --max-time 30 --output /dev/null --write-out 'status %{http_code}' http://127.0.0.1:18442/health; \
  curl --silent --max-time 10 --insecure --output /dev/null --write-out ' and %{http_code} of %{remote_ip}' \
  --resolve '${gatewayName}:8442:[${gatewayV6}]' https://${gatewayName}:8442/health 2>&1`
const script = `ip -json address show scope global; cat /etc/resolv.conf /etc/hosts; ${health}`

inOwnNetns(
  import.meta.path,
  () => {
    for (const [how, lines, families] of [
      ['both families', both, ['inet', 'inet6']],
      ['IPv6 alone', alone, ['inet6']],
    ] as const) {
      test(
        `goal: an instance with ${how} becomes ready, is named and logged in to by IPv6, and gives everything back`,
        async () => {
          await using appliance = await createAppliance('', 'vm', undefined, '', lines)
          await appliance.start()
          const acme = await createCustomer(appliance, 'acme')
          const { name, hostname } = (await acme.create('v6-1')).body.data
          await acme.reached(name, 'ready', 300_000)
          const address = await appliance.resolveV6(hostname)
          expect(address).toBe('2001:db8:88::1')
          expect((await appliance.resolve(hostname))?.includes(':')).toBe(families.length === 1)

          const options = ['-6', '-o', `HostName=${address}`]
          const { exitCode, stdout } = await appliance.sshWith(options, hostname, [script])
          expect(exitCode).toBe(0)
          const [interfaces = '', ...rest] = stdout.split('\n')
          const found = (
            JSON.parse(interfaces) as { addr_info: { family: string; local: string; prefixlen: number }[] }[]
          )
            .flatMap(({ addr_info }) => addr_info)
            .filter(({ local }) => local !== undefined)
          expect(found.map(({ family }) => family)).toEqual([...families])
          expect(found.at(-1)).toMatchObject({ local: address, prefixlen: 128 })
          const text = rest.join('\n')
          expect(text).toContain('nameserver 2620:fe::9\n')
          expect(text).toContain(`${families.length === 1 ? gatewayV6 : '169.254.88.1'} ${gatewayName}\n`)
          expect(text).toContain(`status 200 and 200 of ${gatewayV6}`)
          expect(appliance.log()).not.toContain('"level":"error"')
          expect(await appliance.admin('doctor', '--leaks')).toMatchObject({ leaks: [] })

          await acme.remove(name)
          await acme.reached(name, 'terminated', 60_000)
          expect([await appliance.resolveV6(hostname), await appliance.resolve(hostname)]).toEqual([null, null])
          expect(holdings(appliance.stateDir)).toEqual(NOTHING)
          expect(await appliance.stop()).toBe(0)
        },
        timeoutMs,
      )
    }
  },
  { timeoutMs },
)
