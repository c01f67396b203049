// Checks of the network as an instance sees it, and the gateway on the path of programs in it, over an IPv6 login.

import { expect } from 'bun:test'
import type { Appliance } from '../../../scripts/rigs/appliance.ts'

const gatewayName = 'inference.strongroom.internal'
const gatewayV6 = 'fd73:7472:6f6e:67::1'
/** The gateway by the endpoint in the VM, which is IPv6 where there is no other; and its IPv6 address itself. */
const health = `curl --silent --show-error --max-time 60 --output /dev/null --write-out 'status %{http_code}' http://127.0.0.1:18442/health; \
  curl --silent --max-time 60 --insecure --output /dev/null --write-out ' and %{http_code} of %{remote_ip}' \
  --resolve '${gatewayName}:8442:[${gatewayV6}]' https://${gatewayName}:8442/health 2>&1`
const script = `ip -json address show scope global; cat /etc/resolv.conf /etc/hosts; ${health}`

export type ExpectedNetwork = {
  /** IPv6 address of the instance. */
  readonly address: string
  readonly families: readonly ('inet' | 'inet6')[]
  /** Lines of resolv.conf or of hosts. */
  readonly holds: readonly string[]
}

export async function expectNetwork(appliance: Appliance, hostname: string, expected: ExpectedNetwork): Promise<void> {
  const { address, families, holds } = expected
  const { exitCode, stdout } = await appliance.sshWith(['-6', '-o', `HostName=${address}`], hostname, [script])
  expect(exitCode).toBe(0)
  const [interfaces = '', ...rest] = stdout.split('\n')
  const found = (JSON.parse(interfaces) as { addr_info: { family: string; local: string; prefixlen: number }[] }[])
    .flatMap(({ addr_info }) => addr_info)
    .filter(({ local }) => local !== undefined)
  expect(found.map(({ family }) => family)).toEqual([...families])
  expect(found.at(-1)).toMatchObject({ local: address, prefixlen: 128 })
  const text = rest.join('\n')
  for (const line of holds) expect(text).toContain(line)
  expect(text).toContain(`status 200 and 200 of ${gatewayV6}`)
}
