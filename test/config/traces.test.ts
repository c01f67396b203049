// Goal: errors in the traces' configuration name their field; without an endpoint workload.json stays the same to the
// byte.

import { expect, test } from 'bun:test'
import { gatewaySettings } from '../../src/appliance/inference.ts'
import { parseConfig } from '../../src/config/parse.ts'

const problemsOf = (lines: string) => {
  const verdict = parseConfig(`[inference.traces]\n${lines}\n`, 'f')
  return verdict.ok ? [] : verdict.problems.map(({ field, message }) => `${field}: ${message}`)
}
const settingsOf = (lines: string) => {
  const verdict = parseConfig(`[inference.traces]\n${lines}\n`, 'f')
  if (!verdict.ok) throw new Error(JSON.stringify(verdict.problems))
  return gatewaySettings(verdict.config)
}
const local = 'endpoint = "http://127.0.0.1:4318/v1/traces"'

test('goal: good ones are good', () => {
  const good = [
    '',
    local,
    'endpoint = "http://[::1]:4318/v1/traces"\nheaders_file = "/h"',
    'endpoint = "https://otlp.example/otlp/v1/traces"\nheaders_file = "/h"\nca_file = "/c"\nsample_ratio = 0.125',
    'endpoint = "http://collector.example:4318/v1/traces"\nsample_ratio = 0\nbatch_max = 10\nqueue_max = 10',
  ]
  expect(good.flatMap(problemsOf)).toEqual([])
})

test('goal: what contradicts itself, or would lead spans or a key astray, is refused by its field', () => {
  const of = (name: string, lines: string, words: string) => {
    const found = problemsOf(lines)
    expect(found.length).toBe(1)
    expect(found[0]).toStartWith(`inference.traces.${name}: `)
    expect(found[0]).toContain(words)
  }
  of('endpoint', 'endpoint = "collector:4318"', 'allowed: "" or an http or https URL')
  of('endpoint', 'endpoint = "https://user:pass@collector/v1/traces"', 'without credentials')
  of('endpoint', 'endpoint = "https://collector/v1/traces?key=x"', 'allowed:')
  of('endpoint', 'endpoint = "https://collector:99999/v1/traces"', 'is not a URL')
  of('endpoint', 'endpoint = "http://127.0.0.1:4318"', 'listen at /v1/traces')
  of('endpoint', 'endpoint = "http://127.0.0.1:4318/"', 'listen at /v1/traces')
  of('headers_file', 'endpoint = "http://127.0.0.1.example/v1/traces"\nheaders_file = "/h"', 'needs an https endpoint')
  of('ca_file', `${local}\nca_file = "/c"`, 'needs an https endpoint')
  of('batch_max', `${local}\nqueue_max = 10`, '128 is more than may wait (queue_max, 10)')
  of('sample_ratio', `${local}\nsample_ratio = 1.5`, 'a number from 0 to 1')
  of('sample_ratio', `${local}\nsample_ratio = nan`, 'a number from 0 to 1')
})

test('goal: the gateway is told of traces only where there are any, and never where they go', () => {
  expect(Object.keys(settingsOf('sample_ratio = 0.5\nforward_parent = true'))).not.toContain('traces')
  expect(JSON.stringify(settingsOf(''))).toBe(JSON.stringify(settingsOf('timeout_ms = 500')))
  const settings = settingsOf(`${local}\nsample_ratio = 0.5\nforward_parent = true\nheaders_file = "/secret"`)
  expect(settings.traces).toEqual({ sampleRatio: 0.5, followParent: false, forwardParent: true })
  expect(JSON.stringify(settings)).not.toMatch(/4318|secret/)
})
