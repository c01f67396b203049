// Options of the command line as the expectations of attestedFetch.

import { afterAll, expect, test } from 'bun:test'
import { workloadOf } from '../../../scripts/rigs/enclave/workload.ts'
import { failure } from '../../../scripts/rigs/until.ts'
import { readAttestedOptions, sendWhileListed } from '../../../src/client/connect/attested-options.ts'
import { workloadText } from '../../../src/contract/vm/workload.ts'
import { VerificationError } from '../../../src/verifier/fetch/errors.ts'
import { attestedFetch } from '../../../src/verifier/fetch/node.ts'
import { policyFiles } from '../../rigs/connect/process.ts'

const files = policyFiles()
afterAll(() => files[Symbol.dispose]())
const url = new URL('https://gateway.example:8442')
const measurement = [new Uint8Array(48).fill(0xab)]
const idKeyDigest = [new Uint8Array(48).fill(0xcd)]

// Goal: every option of the command line reaches the library, which takes it as it is.
test('all options', async () => {
  const workload = workloadText(workloadOf({ controlKey: 'A'.repeat(43), gateway: {}, upstreams: [] }))
  const { attested: options } = await readAttestedOptions(url, {
    ...{ measurement, idKeyDigest, allow: ['traces'], allowOutside: ['far=https://far.example'], timeoutMs: 1_234 },
    ...{ anyCrl: true, waiveFloor: { microcode: 'it is updated in December' } },
    workload: files.file('workload.json', workload),
    configuration: files.file('configuration.json', '{}'),
    ca: files.file('ca.pem', 'a certificate'),
  })
  const text = (bytes: unknown) => new TextDecoder().decode(bytes as Uint8Array)
  expect(options).toMatchObject({
    url,
    policy: {
      measurements: ['ab'.repeat(48)],
      idKeyDigest: ['cd'.repeat(48)],
      hostData: new Bun.CryptoHasher('sha256').update(workload).digest('hex'),
    },
    outside: ['far=https://far.example'],
    allow: ['traces'],
    pins: {
      ...{ measurement: 'required', allowlist: 'required', vmpl: 'required', crl: 'any' },
      tcb: { microcode: 'it is updated in December' },
    },
    ca: 'a certificate',
    evidenceTimeoutMs: 1_234,
  })
  expect([text(options.workload), text(options.configuration)]).toEqual([workload, '{}'])
  attestedFetch(options).close()
})

// Goal: options that are not given leave the library its own defaults: everything is required.
test('no more than needed', async () => {
  const { attested: options } = await readAttestedOptions(url, { measurement, idKeyDigest })
  expect(Object.keys(options).toSorted()).toEqual(['allow', 'outside', 'pins', 'policy', 'url'])
  expect(new Set(Object.values(options.pins ?? {}))).toEqual(new Set(['required']))
  attestedFetch(options).close()
})

// Goal: the age of a list, which is read once, is compared with each request: none goes out when the list has ended.
test('a list of chips that ends while it serves', async () => {
  const sender = { send: async (_to: URL, _init: RequestInit) => new Response('sent'), other: 1 }
  let nowMs = Date.parse('2026-11-30T12:00:00Z')
  const list = { path: '/chips.json', endsAtMs: nowMs }
  const { send, other } = sendWhileListed(sender, list, () => nowMs)
  const to = new URL('https://gateway.example/v1/models')
  expect([other, await (await send(to, {})).text()]).toEqual([1, 'sent'])
  nowMs += 1
  const refusal = await failure(send(to, {}))
  expect(refusal).toBeInstanceOf(VerificationError)
  expect(String(refusal)).toContain('/chips.json: maxAgeDays ended at 2026-11-30T12:00:00.000Z: get a new list')
  const endless = sendWhileListed(sender, { ...list, endsAtMs: Number.POSITIVE_INFINITY }, () => nowMs)
  expect((await endless.send(to, {})).status).toBe(200)
  expect(sendWhileListed(sender, null)).toBe(sender)
})
