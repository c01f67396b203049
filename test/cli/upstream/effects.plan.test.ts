// Goal: the consequences of a changed upstream are named for instances, clients and a fleet, each only where there are
// any.

import { expect, test } from 'bun:test'
import { afterAdd, afterChange, confirmText, stopsPrompts } from '../../../src/cli/upstream/effects.plan.ts'
import { defaultConfig } from '../../../src/config/load.ts'
import type { Config } from '../../../src/config/schema.ts'

const plain = defaultConfig()
const inference = (changes: object): Config => ({ ...plain, inference: { ...plain.inference, ...changes } as never })
const attested = inference({ worker: { ...plain.inference.worker, model_disk: 'd' } })
const added = {
  ...{ name: 'rack', url: 'https://10.0.0.5/v1', model: 'big', contextTokens: 1024, isFree: false },
  ...{ isEmbedding: false, entry: 'rack=https://10.0.0.5' },
}
const digest = 'ab'.repeat(32)

test('goal: prompts stop where the gateway has evidence, and nowhere else', () => {
  expect(stopsPrompts(attested)).toBe(true)
  const others: Config[] = [
    plain,
    inference({ ...attested.inference, placement: 'host' }),
    { ...attested, listen: { ...plain.listen, inference: '' } },
    { ...attested, instances: { ...plain.instances, inference_base_url: 'https://e.example/v1' } },
  ]
  for (const config of others) expect(stopsPrompts(config)).toBe(false)
})

test('goal: an attested gateway gets the digest, the command of owners and the option of clients', () => {
  const lines = afterAdd(added, attested, { workloadSha256: digest })
  expect(lines[0]).toBe(`publish the new SHA-256 of workload.json: ${digest}`)
  expect(lines[1]).toContain(`strongroom-gateway accept ${digest} rack=https://10.0.0.5`)
  expect(lines[2]).toContain('--allow-outside rack=https://10.0.0.5')
  expect(afterChange(attested, null, [])[1]).toEndWith('strongroom-gateway accept SHA256')
})

test('goal: http, an unknown context, a free model and a fleet are named', () => {
  const url = 'http://10.0.0.5/v1'
  const fleet = { ...plain, fleet: { ...plain.fleet, database: 'postgres://a@b/c' } }
  const lines = afterAdd({ ...added, url, contextTokens: null, isFree: true }, fleet, null).join('\n')
  for (const words of ['its URL is http', 'set context_tokens', 'costs 0', 'each host of the fleet', 'no-worker']) {
    expect([words, lines]).toEqual([words, expect.stringContaining(words)])
  }
  const quiet = afterAdd(added, plain, null).join('\n')
  for (const words of ['http', 'context_tokens', 'costs 0', 'fleet', 'workload.json']) {
    expect([words, quiet.replaceAll('https', '')]).toEqual([words, expect.not.stringContaining(words)])
  }
})

test('goal: many instances are counted, and twenty of them named', () => {
  const names = Array.from({ length: 25 }, (_, at) => `acme/i${at}`)
  const text = confirmText(names, ['a=https://a.example'])
  expect(text).toStartWith('25 instances (acme/i0, ')
  expect(text).toContain('acme/i19, and 5 more)')
  expect(confirmText(['acme/x'], [])).toStartWith('1 instance (acme/x)')
})
