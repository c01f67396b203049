// Goal: a configuration yields an exporter that knows its models and upstreams, or none; a missing file stops the
// start with its field.

import { expect, test } from 'bun:test'
import { target } from '../../scripts/rigs/gateway/server.ts'
import { until } from '../../scripts/rigs/until.ts'
import { composeTraces } from '../../src/appliance/traces.ts'
import { systemClock } from '../../src/base/clock.ts'
import { systemRandom } from '../../src/base/ids.ts'
import { silentLogger } from '../../src/base/log.ts'
import { parseConfig } from '../../src/config/parse.ts'
import { startOtlpReceiver } from '../rigs/gateway/otlp-receiver.ts'
import { attemptSpan } from '../rigs/gateway/trace-spans.ts'

function compose(toml: string) {
  const verdict = parseConfig(toml, 'f')
  if (!verdict.ok) throw new Error(JSON.stringify(verdict.problems))
  const upstreams = [target('https://far.example/v1', { name: 'far', engine: 'sglang', models: ['m'] })]
  return composeTraces({
    config: verdict.config,
    upstreams,
    clock: systemClock,
    random: systemRandom,
    log: silentLogger,
  })
}

test('goal: names of the configuration, the built-in worker among them, go out with their servers; others do not', async () => {
  const receiver = await startOtlpReceiver()
  const exporter = compose(
    `[inference.worker]\nmodel_file = "/m.gguf"\nmodel = "w"\n[inference.traces]\nendpoint = "${receiver.url}"\ninterval_ms = 100\n`,
  )
  exporter?.start()
  exporter?.offer(attemptSpan())
  exporter?.offer(attemptSpan({ model: 'w', upstream: 'built-in' }))
  exporter?.offer(attemptSpan({ model: 'x', upstream: 'y' }))
  await until('they are there', 15_000, () => receiver.spans.length === 3)
  const keys = ['gen_ai.provider.name', 'gen_ai.request.model', 'strongroom.upstream', 'server.address', 'server.port']
  expect(receiver.spans.map(span => keys.map(key => span.attributes[key] ?? null))).toEqual([
    ['sglang', 'm', 'far', 'far.example', 443],
    ['llama-server', 'w', 'built-in', null, null],
    ['other', 'other', 'other', null, null],
  ])
  await exporter?.stop()
  await receiver.stop()
})

test('goal: without an endpoint there is none, and no file is read', () => {
  expect(compose('[inference.traces]\nheaders_file = "/none"\nca_file = "/none"\n')).toBeNull()
  const missing = '[inference.traces]\nendpoint = "https://otlp.test/v1/traces"\nheaders_file = "/none"\n'
  expect(() => compose(missing)).toThrow('inference.traces: headers_file: ENOENT')
})
