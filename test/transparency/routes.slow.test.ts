// Goal: everybody can read the log from the address of service A and of service C alike, without a key: whole tiles for
// good, at one spelling each, within a rate.

import { expect, test } from 'bun:test'
import { startBuilds } from '../../scripts/rigs/build/builds-service.ts'
import { startAppliance } from '../../scripts/rigs/instances/instances-service.ts'
import { openLogBench } from '../../scripts/rigs/transparency.ts'
import { leafHash } from '../../src/attest/log/merkle.ts'
import { decodeNote, decodeNoteKey } from '../../src/attest/log/note.ts'
import { decodeLogProof } from '../../src/attest/log/proof.ts'
import { toHex, utf8 } from '../../src/base/bytes.ts'
import { encodeLogEntry, type LogFact } from '../../src/contract/http/log-entry.ts'
import { LimitedFault } from '../../src/http/limited.ts'
import { logRoutes } from '../../src/transparency/routes.ts'

const policy = (n: number): LogFact => ({ kind: 'verifier-policy', sha256: n.toString(16).padStart(64, '0') })

async function ask(url: string, method = 'GET') {
  const response = await fetch(url, { method })
  return { status: response.status, headers: response.headers, text: await response.text() }
}

test('goal: both services serve it, and nothing beside it', async () => {
  using bench = openLogBench()
  bench.log.append(...Array.from({ length: 258 }, (_, n) => policy(n)))
  const seen: string[] = []
  const others = logRoutes({ log: bench.log, admit: address => void seen.push(address) })
  await using instances = await startAppliance({ others })
  await using builds = await startBuilds({ starts: false, others })
  for (const url of [`http://127.0.0.1:${instances.port}`, builds.url()]) {
    const get = async (path: string) => {
      const { status, headers, ...response } = await ask(`${url}/log/${path}`)
      return {
        status,
        text: response.text,
        cache: headers.get('cache-control'),
        cors: headers.get('access-control-allow-origin'),
      }
    }
    const checkpoint = await get('checkpoint')
    expect(decodeNote(utf8(checkpoint.text))).toEqual(bench.log.checkpoint() as never)
    expect([checkpoint.cache, checkpoint.cors]).toEqual(['no-store', '*'])
    expect(decodeNoteKey((await get('key')).text.trim())).toEqual(bench.log.key() as never)
    const leaf = toHex(leafHash(encodeLogEntry(policy(7))))
    expect(decodeLogProof(utf8((await get(`proof/${leaf}`)).text)).index).toBe(7)
    const tile = await get('tile/0/000')
    expect([tile.status, tile.cache, tile.cors]).toEqual([200, 'public, max-age=31536000, immutable', '*'])
    for (const path of ['tile/0/001.p/2', 'tile/entries/000', 'tile/entries/001.p/2', 'tile/1/000.p/1'])
      expect([path, (await get(path)).status]).toEqual([path, 200])
    for (const path of [
      ...['tile/0/1', 'tile/0/001', 'tile/0/000.p/256', 'tile/0/x000/000', 'tile/7/000', 'tile/0/x999/x999/999'],
      ...['tile/entries/000.p/0', 'tile/0/000.p/x', 'proof/00', `proof/${'0'.repeat(64)}`, 'tile', 'checkpoint/'],
    ])
      expect([path, (await get(path)).status]).toEqual([path, 404])
    expect((await ask(`${url}/log/checkpoint`, 'POST')).status).toBe(405)
  }
  expect(new Set(seen)).toEqual(new Set(['127.0.0.1']))
})

test('goal: a log that has not begun serves nothing, and a rate that is spent is a 429', async () => {
  using bench = openLogBench({ begins: false })
  let isSpent = false
  const admit = () => {
    if (isSpent) throw new LimitedFault('too many', 5_000)
  }
  await using instances = await startAppliance({ others: logRoutes({ log: bench.log, admit }) })
  const status = async (path: string) => (await instances.send('GET', `/log/${path}`, { key: null })).status
  for (const path of ['checkpoint', 'key', 'tile/0/000.p/1']) expect([path, await status(path)]).toEqual([path, 404])
  isSpent = true
  expect(await status('checkpoint')).toBe(429)
})
