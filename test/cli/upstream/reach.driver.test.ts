// Goal: a URL that the gateway's VM cannot reach is refused with an address that it can reach; a gateway on the host
// may use any.

import { expect, test } from 'bun:test'
import { failure } from '../../../scripts/rigs/until.ts'
import { checkReach } from '../../../src/cli/upstream/reach.driver.ts'
import { defaultConfig } from '../../../src/config/load.ts'

const { network, inference } = defaultConfig()
const names: Readonly<Record<string, string[]>> = {
  'llm.example': ['10.0.0.5', 'fd00::5'],
  'six.example': ['fd00::5'],
  'self.example': ['192.0.2.7'],
}
const reach = {
  own: ['192.0.2.7', 'fd00::7'],
  resolve: async (host: string) => names[host] ?? Promise.reject(new Error('ENOTFOUND')),
}

test('goal: for a VM an IPv4 address that is not this host, or the gateway address of instances', async () => {
  const there = { network, inference }
  for (const url of ['https://llm.example/v1', 'http://10.0.0.5:8000/v1', 'http://169.254.88.1:8000/v1']) {
    await checkReach(there, url, reach)
  }
  for (const url of ['http://127.0.0.1:8000/v1', 'http://192.0.2.7:8000/v1', 'http://self.example:8000/v1']) {
    expect([url, await failure(checkReach(there, url, reach))]).toEqual([
      url,
      expect.objectContaining({ param: 'url', remedy: expect.stringContaining('http://169.254.88.1:8000/v1') }),
    ])
  }
  for (const url of ['https://six.example/v1', 'http://[fd00::5]:8000/v1']) {
    expect((await failure(checkReach(there, url, reach))).message).toContain('no IPv4 address')
  }
  expect((await failure(checkReach(there, 'https://none.example/v1', reach))).message).toContain('has no address')
})

test('goal: a gateway on the host reaches what the host reaches, but a name must have an address', async () => {
  const there = { network, inference: { ...inference, placement: 'host' as const } }
  for (const url of ['http://127.0.0.1:8000/v1', 'http://self.example/v1', 'https://six.example/v1']) {
    await checkReach(there, url, reach)
  }
  expect((await failure(checkReach(there, 'https://none.example/v1', reach))).message).toContain('has no address')
})
