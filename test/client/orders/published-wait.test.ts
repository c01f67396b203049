// Goal: the wait for a published port asks the VM once, after it has looked as clients do, and never orders anything.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { generateKeyPairSync } from 'node:crypto'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { type AddressInfo, createServer, type Server } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { systemRandom } from '../../../src/base/ids.ts'
import type { VerifiedInstance } from '../../../src/client/instances/verified.ts'
import { publish } from '../../../src/client/orders/publish.ts'
import { probePublished, type Seen, waited } from '../../../src/client/orders/published-wait.ts'
import { listenPublished } from '../../../src/guest/published/serve.ts'
import { openAuthority } from '../../../src/http/authority.ts'
import { spkiOf, spkiSha256Of } from '../../../src/linux/keys/spki.ts'
import type { Run } from '../../../src/terminal/command.ts'

const keySha256 = 'ab'.repeat(32)
const port = { name: 'web', port: 3_000, keySha256, isCertified: false, problem: null, egressBytes: 1 }
const other = { ...port, name: 'api', keySha256: 'cd'.repeat(32) }

/** Waits with these answers of probes, of which the last repeats. */
async function wait(answers: readonly [...Seen[], Seen], last = [other, { ...port, problem: 'closed' }]) {
  let [nowMs, asked, probes] = [0, 0, 0]
  const result = waited([other, port], {
    name: 'web',
    ask: async () => {
      asked += 1
      return last
    },
    probe: async key => {
      expect(key).toBe(keySha256)
      probes += 1
      return answers[Math.min(probes, answers.length) - 1] ?? 'not reached'
    },
    clock: {
      monotonicMs: () => nowMs,
      sleep: async ms => {
        nowMs += ms
      },
    },
  })
  const outcome = await result.catch(error => String(error))
  return { outcome, asked, seconds: nowMs / 1_000 }
}

test('goal: a port that is reached is certified, and the VM is asked nothing', async () => {
  const outcome = { isReached: true, published: [other, { ...port, isCertified: true }] }
  expect(await wait(['not reached', 'nameless', 'reached'])).toEqual({ outcome, asked: 0, seconds: 10 })
  expect(await wait(['reached'])).toEqual({ outcome, asked: 0, seconds: 0 })
})

test('goal: one that is not is asked about once: after four minutes, or soon if its name has no address', async () => {
  const outcome = { isReached: false, published: [other, { ...port, problem: 'closed' }] }
  expect(await wait(['not reached'])).toEqual({ outcome, asked: 1, seconds: 240 })
  expect(await wait(['nameless'])).toEqual({ outcome, asked: 1, seconds: 75 })
})

test('goal: a port that another owner has unpublished meanwhile, or published anew, is a conflict', async () => {
  const words = expect.stringContaining('another owner has unpublished it')
  expect(await wait(['not reached'], [other])).toMatchObject({ outcome: words, asked: 1 })
  const renewed = { ...port, keySha256: 'ef'.repeat(32) }
  expect(await wait(['not reached'], [other, renewed])).toMatchObject({ outcome: words })
})

test('goal: the exit code is 0 only where clients reach the port by its key, or without a wait', async () => {
  const outcome = async (wait: boolean, answers: readonly boolean[], seen: Seen, problem: string | null = null) => {
    let [nowMs, code] = [0, 0]
    const bodies: object[] = []
    const printed: string[] = []
    const run = {
      hint: async () => {},
      result: async (document: unknown, text: string) => void printed.push(text, JSON.stringify(document)),
      exitWith: (exit: number) => {
        code = exit
      },
    } as unknown as Run
    const instance = { address: null, knownHost: { hostname: 'abcd2345.acme.vm.example' } } as VerifiedInstance
    await publish(
      run,
      instance,
      { name: 'web', port: 3_000, wait },
      {
        send: async (_run, _instance, body) => {
          bodies.push(body)
          const isCertified = answers[bodies.length - 1] ?? false
          return [{ ...port, isCertified, problem: isCertified ? problem : bodies.length > 1 ? 'no room' : null }]
        },
        probe: async () => seen,
        clock: {
          monotonicMs: () => nowMs,
          sleep: async ms => {
            nowMs += ms
          },
        },
      },
    )
    return { code, bodies, printed: printed.join() }
  }
  const [first, question] = [{ name: 'web', port: 3_000 }, { name: 'web' }]
  expect(await outcome(true, [true], 'reached')).toMatchObject({ code: 0, bodies: [first] })
  expect(await outcome(false, [false], 'nameless')).toMatchObject({ code: 0, bodies: [first] })
  expect(await outcome(true, [false], 'reached')).toMatchObject({ code: 0, bodies: [first] })
  const refused = await outcome(true, [false, false], 'not reached')
  expect(refused).toMatchObject({ code: 1, bodies: [first, question] })
  expect(refused.printed).toContain('not reached yet: no room')
  // No wait ends this.
  const used = await outcome(true, [true], 'not reached', 'used up')
  expect(used).toMatchObject({ code: 1, bodies: [first], printed: expect.stringContaining('not reached: used up') })
  // A certificate alone is no answer: the name may lead elsewhere, or nothing may come through.
  for (const certified of [
    [true, true],
    [false, true],
  ]) {
    const lost = await outcome(true, certified, 'nameless')
    expect(lost).toMatchObject({ code: 1, bodies: [first, question] })
    expect(lost.printed).toContain('"problem":"no answer with this key')
    expect(lost.printed).toContain('not reached: no answer with this key came from web.abcd2345.acme.vm.example:443')
  }
})

const dir = mkdtempSync(join(tmpdir(), 'strongroom-wait-'))
const servers: Server[] = []
const host = 'web.abcd2345.acme.vm.example'
const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
const key = privateKey.export({ format: 'pem', type: 'pkcs8' }).toString()
const own = spkiSha256Of(spkiOf(key))

const listening = async (server: Server) => {
  servers.push(server)
  if (!server.listening) await once(server, 'listening')
  return (server.address() as AddressInfo).port
}

let published: number
beforeAll(async () => {
  const options = { stateDir: dir, names: ['vm.example'], nowMs: Date.now, random: systemRandom }
  const authority = await openAuthority({ kind: 'clients', ...options })
  const chain = await authority.certify(spkiOf(key), [host], 30)
  const more = { name: 'web', csr: '', keySha256: own, problem: null, egressBytes: 1 }
  published = await listening(
    listenPublished([{ ...more, host, key, chain, port: 9 }], { listenPort: 0, handshakeMs: 5_000, idleMs: 5_000 }),
  )
})
afterAll(() => {
  for (const server of servers) server.close()
  rmSync(dir, { recursive: true, force: true })
})

test('goal: the key decides whether it is reached, and a silent server holds nothing up', async () => {
  const probe = (change: Partial<Parameters<typeof probePublished>[0]>) =>
    probePublished({ host, address: '127.0.0.1', keySha256: own, port: published, ...change })
  expect(await probe({})).toBe('reached')
  expect(await probe({ keySha256 })).toBe('not reached')
  expect(await probe({ host: `x.${host}` })).toBe('not reached')
  const silent = await listening(createServer(socket => socket.on('error', () => {})).listen(0, '127.0.0.1'))
  expect(await probe({ port: silent, timeoutMs: 200 })).toBe('not reached')
  expect(await probe({ host: 'web.nothing.invalid', address: null })).toBe('nameless')
})
