// Goal: what a VM names at a poll becomes one order at a time for the whole name and its owner, and the VM gets what is
// new; a VM that floods, or a server that fails, holds nothing up.

import { expect, test } from 'bun:test'
import { createHash } from 'node:crypto'
import { until } from '../../../scripts/rigs/until.ts'
import { silentLogger } from '../../../src/base/log.ts'
import type { IssuedCertificate } from '../../../src/contract/vm/agent.ts'
import type { CertificateRequest } from '../../../src/contract/vm/agent-responses.ts'
import { createPublishedPorts } from '../../../src/http/acme/published-ports.ts'

const instance = { id: 'i1', vmId: 'vm1', hostname: 'abcd2345.acme.vm.example', organizationId: 'o1' }
const request = (change: Partial<CertificateRequest> = {}) => ({
  name: 'web',
  csr: 'AAAA',
  chainSha256: null,
  egressBytes: 100,
  ...change,
})

function setUp(answer: () => Promise<Omit<IssuedCertificate, 'name'>>, isUsedUp = async () => false) {
  const [asked, handed]: [string[], IssuedCertificate[]] = [[], []]
  let answered = 0
  const opened: number[] = []
  let rows: string[] = []
  const ports = createPublishedPorts({
    certificateFor: async ({ name, organizationId }) => {
      asked.push(`${organizationId} ${name}`)
      return await answer().finally(() => {
        answered += 1
      })
    },
    open: async (vmId, egressBytes) => {
      expect(vmId).toBe('vm1')
      opened.push(egressBytes)
      return await isUsedUp()
    },
    forget: isGone => {
      rows = rows.filter(name => !isGone(name))
    },
    handCertificate: async (vmId, certificate) => {
      expect(vmId).toBe('vm1')
      handed.push(certificate)
    },
    log: silentLogger,
  })
  const keep = (names: readonly string[]) => {
    rows = [...names]
    return () => rows
  }
  return { asked, handed, opened, follow: ports.note, noteLiving: ports.noteLiving, keep, answered: () => answered }
}

test('goal: one order for a name at a time, and the chain is handed in once', async () => {
  const gate = Promise.withResolvers<Omit<IssuedCertificate, 'name'>>()
  const { asked, handed, follow } = setUp(() => gate.promise)
  for (let polls = 0; polls < 5; polls += 1) follow(instance, [request(), request()])
  expect(asked).toEqual(['o1 web.abcd2345.acme.vm.example'])
  gate.resolve({ chain: 'PEM', problem: null })
  await until('it is handed in', 5_000, () => handed.length === 1)
  expect(handed).toEqual([{ name: 'web', chain: 'PEM', problem: null }])
  await until('the next is asked', 5_000, () => {
    follow(instance, [request({ chainSha256: createHash('sha256').update('PEM').digest('hex') })])
    return asked.length >= 2
  })
  expect(handed).toHaveLength(1)
})

test('goal: a problem is told to a VM without a chain; one with a chain keeps it', async () => {
  const { handed, follow, answered } = setUp(async () => ({ chain: null, problem: 'no room' }))
  follow(instance, [request()])
  await until('it is told', 5_000, () => handed.length === 1)
  follow(instance, [request({ name: 'api', chainSha256: 'ab'.repeat(32) })])
  await until('it is asked', 5_000, () => answered() === 2)
  expect(handed).toEqual([{ name: 'web', chain: null, problem: 'no room' }])
})

test('goal: after a failure the next poll asks again', async () => {
  const { asked, follow } = setUp(() => Promise.reject(new Error('the server is away')))
  await until('it is asked again', 5_000, () => {
    follow(instance, [request()])
    return asked.length === 2
  })
})

test('goal: the port of a VM is open for the sum of its parts, and closed once nothing is published', async () => {
  const { opened, follow } = setUp(() => Promise.reject(new Error('the server is away')))
  for (const asked of [[request(), request({ name: 'api', egressBytes: 11 })], []]) {
    const before = opened.length
    await until('it is set', 5_000, () => {
      follow(instance, asked)
      return opened.length > before
    })
  }
  expect([opened[0], opened.at(-1)]).toEqual([111, 0])
})

test('goal: a VM is told at each poll that its part is used up, and its certificate stays', async () => {
  const chain = 'PEM'
  const { handed, follow } = setUp(
    async () => ({ chain, problem: null }),
    async () => true,
  )
  follow(instance, [request({ chainSha256: createHash('sha256').update(chain).digest('hex') })])
  await until('it is told', 5_000, () => handed.length === 1)
  expect(handed).toEqual([{ name: 'web', chain: null, problem: expect.stringContaining('--egress') }])
})

test('goal: a VM that was told so by an outdated poll, or before a restart, is told once that it is so no more', async () => {
  const known = { chainSha256: createHash('sha256').update('PEM').digest('hex') }
  let isUsedUp = true
  const { handed, opened, follow, noteLiving } = setUp(
    async () => ({ chain: 'PEM', problem: null }),
    async () => isUsedUp,
  )
  const poll = async (asked: CertificateRequest[], vmId = 'vm1') => {
    const before = opened.length
    await until('it is judged', 5_000, () => {
      follow({ ...instance, vmId }, asked)
      return opened.length > before
    })
    // The next poll is judged once this one has told all.
    const after = opened.length
    await until('it is told', 5_000, () => {
      follow({ ...instance, vmId }, asked)
      return opened.length > after
    })
    return handed.splice(0).map(({ problem }) => problem?.slice(0, 20) ?? null)
  }
  const told = await poll([request(known)])
  expect(new Set(told)).toEqual(new Set(['answers have used up']))
  isUsedUp = false
  expect(await poll([request(known)])).toEqual([null])
  expect(await poll([request(known)])).toEqual([])
  // No longer known of an instance that has ended.
  noteLiving(new Set())
  expect(await poll([request(known)])).toEqual([null])
})

test('goal: certificates of unpublished names and of ended instances are forgotten at once, and no others', () => {
  const { follow, noteLiving, keep } = setUp(() => Promise.reject(new Error('the server is away')))
  const other = 'web.bcde3456.acme.vm.example'
  const rows = keep(['web.abcd2345.acme.vm.example', 'api.abcd2345.acme.vm.example', other])
  follow(instance, [request()])
  expect(rows()).toEqual(['web.abcd2345.acme.vm.example', other])
  noteLiving(new Set([instance.hostname]))
  expect(rows()).toEqual(['web.abcd2345.acme.vm.example'])
  follow(instance, [])
  expect(rows()).toEqual([])
})
