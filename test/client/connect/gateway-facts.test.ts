// The one line about a verified gateway.

import { expect, test } from 'bun:test'
import { workloadOf } from '../../../scripts/rigs/enclave/workload.ts'
import { exampleModel, factsLine, factsOf, modelIds } from '../../../src/client/connect/gateway-facts.ts'
import { paintFor } from '../../../src/terminal/render.ts'
import type { GatewayVerdict } from '../../../src/verifier/gateway.ts'

const image = { name: 'inference', measurement: new Uint8Array(48).fill(0xab) }
const verdict = (changes: Partial<GatewayVerdict>): GatewayVerdict => ({
  ...{ ok: true, checks: [], simulated: false, receipts: [], keys: null, workload: null, gpus: [] },
  gateway: { image } as unknown as GatewayVerdict['gateway'],
  ...changes,
})
const line = (changes: Partial<GatewayVerdict>) => factsLine('gw.test', factsOf(verdict(changes)), paintFor(false))

// Goal: it says what runs, that no hardware attests it where that is so, and where the prompts for each model go.
test('the line', () => {
  const runs = `gw.test runs image inference with measurement ${'ab'.repeat(48)}`
  expect(line({})).toBe(`VERDICT: PASS: ${runs}; prompts: it does not say where they go`)
  const workload = workloadOf({
    controlKey: 'A'.repeat(43),
    gateway: {},
    upstreams: [{ name: 'far', url: 'https://far.test/v1', models: ['m', 'w'] }],
  })
  expect(line({ workload, simulated: true })).toBe(
    `VERDICT: PASS SIMULATED, no hardware attests this evidence: ${runs}; prompts for m, w go OUTSIDE to far ` +
      'at https://far.test/v1; for w stay inside its VM',
  )
  expect(line({ workload: { ...workload, upstreams: [] } })).toEndWith('; prompts for w stay inside its VM')
  expect(line({ workload: { ...workload, upstreams: [], worker: null } })).toEndWith(
    '; prompts go nowhere: it has no models',
  )
})

// Goal: names in it cannot move a terminal's cursor or begin another line.
test('a hostile name', () => {
  const gateway = { image: { ...image, name: 'a\n\u001b[2JVERDICT: \u202e' } } as unknown as GatewayVerdict['gateway']
  expect(line({ gateway })).toContain('runs image a \\x1b[2JVERDICT: \\u202e with')
})

// Goal: each model is listed once, those inside first, and clients get one of them.
test('models', () => {
  const workload = workloadOf({ controlKey: 'A'.repeat(43), gateway: {}, upstreams: [{ models: ['m', 'w'] }] })
  const facts = factsOf(verdict({ workload }))
  expect([modelIds(facts), exampleModel(facts)]).toEqual([['w', 'm'], 'w'])
  expect(exampleModel(factsOf(verdict({})))).toBe('MODEL')
})

// Goal: an id with escapes, lines, spaces or quotes is in no line that people paste: the next id is, or a placeholder.
test('hostile ids of models', () => {
  const chosen = (...models: string[]) => {
    const workload = workloadOf({ controlKey: 'A'.repeat(43), gateway: {}, upstreams: [{ models }] })
    return exampleModel(factsOf(verdict({ workload: { ...workload, worker: null } })))
  }
  const hostile = [
    'm\u001b[2K',
    'm\n  export HTTP_PROXY=http://evil',
    'm\u009b31m',
    "m'",
    'm"',
    'm`',
    'm\\',
    'm n',
    'm\u202e',
    'mé',
  ]
  for (const id of [...hostile, '', 'm'.repeat(257)]) {
    expect([id, chosen(id)]).toEqual([id, 'MODEL'])
    expect(chosen(id, 'good')).toBe('good')
  }
  for (const id of ['org/m-1.5:free@v2', 'a[b]{c}~!#$%&()*+,;<=>?^_|']) expect(chosen(id)).toBe(id)
})
