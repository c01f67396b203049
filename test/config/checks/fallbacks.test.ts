// Fallbacks between models that cannot be.

import { expect, test } from 'bun:test'
import { parseConfig } from '../../../src/config/parse.ts'

const upstream = (name: string, models: string[], more = '') =>
  `[[inference.upstreams]]\nname = "${name}"\nurl = "https://x.example/v1"\nmodels = ${JSON.stringify(models)}\n${more}\n`
const row = (model: string, fallback: string) =>
  `[[inference.fallbacks]]\nmodel = "${model}"\nfallback = "${fallback}"\n`
const worker = '[inference.worker]\nmodel_disk = "disk"\nmodel = "inside"\n'
const all = upstream('a', ['large', 'small', 'vectors'], 'embedding_models = ["vectors"]')

// Goal: what the gateway would leave out is a mistake that the operator sees, with the row and the reason.
test.each([
  ['a model of nobody', row('large', 'none'), '"none" is no model of this gateway'],
  ['embeddings', row('large', 'vectors'), '"vectors" makes embeddings'],
  ['itself', row('large', 'large'), '"large" is its own fallback'],
  ['two', row('large', 'small') + row('large', 'inside'), '"large" has a fallback already'],
  ['out of the VM', row('inside', 'large'), '"inside" is answered in the measured VM; its fallback is not'],
])('%s', (_, rows, message) => {
  const verdict = parseConfig(worker + all + rows, 'test.toml')
  expect(verdict.ok ? '' : JSON.stringify(verdict)).toContain(JSON.stringify(message).slice(1, -1))
  expect(verdict.ok ? '' : JSON.stringify(verdict)).toContain('inference.fallbacks.')
})

test('goal: into the VM, and among models outside, is allowed', () => {
  expect(parseConfig(worker + all + row('large', 'small') + row('small', 'inside'), 'test.toml').ok).toBe(true)
})
