// Options of the command line as the expectations of attestedFetch.

import { afterAll, expect, test } from 'bun:test'
import { workloadOf } from '../../../scripts/rigs/enclave/workload.ts'
import { readAttestedOptions } from '../../../src/client/connect/attested-options.ts'
import { workloadText } from '../../../src/contract/vm/workload.ts'
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
  const options = await readAttestedOptions(url, {
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
  const options = await readAttestedOptions(url, { measurement, idKeyDigest })
  expect(Object.keys(options).toSorted()).toEqual(['allow', 'outside', 'pins', 'policy', 'url'])
  expect(new Set(Object.values(options.pins ?? {}))).toEqual(new Set(['required']))
  attestedFetch(options).close()
})
