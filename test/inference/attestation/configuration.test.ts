// Goal: the text of the gateway's configuration yields the digest in its statement; every setting that decides who gets
// prompts changes it; it holds no secret.

import { expect, test } from 'bun:test'
import { createHash } from 'node:crypto'
import { fromUtf8, toHex } from '../../../src/base/bytes.ts'
import { parseConfig } from '../../../src/config/parse.ts'
import { gatewayConfiguration } from '../../../src/inference/attestation/configuration.ts'

const toml = `
[listen]
inference = "127.0.0.1:8442"
[inference]
response_receipts = "always"
[inference.worker]
model_file = "/srv/model.gguf"
[[inference.upstreams]]
name = "second"
url = "https://second.example/v1"
key_file = "/secret/path"
ca_file = "/etc/ca.pem"
models = ["b", "a"]
[[inference.upstreams]]
name = "first"
url = "http://first.example/v1"
models = ["strongroom-tiny"]
`

function configurationOf(text: string, authorities: (string | null)[] = ['PEM', null]) {
  const verdict = parseConfig(text, 'test.toml')
  if (!verdict.ok) throw new Error(JSON.stringify(verdict.problems))
  return gatewayConfiguration(
    verdict.config,
    authorities.map(ca => ({ ca })),
  )
}

const digestOf = (text: string, authorities?: (string | null)[]) => toHex(configurationOf(text, authorities).digest)

test('goal: embedding models are in the text where there are any, and the digest is that of before where there are none', () => {
  const [upstream] = JSON.parse(fromUtf8(configurationOf(toml).bytes)).upstreams
  expect(Object.hasOwn(upstream, 'embedding_models')).toBe(false)
  const marked = toml.replace('models = ["b", "a"]', 'models = ["b", "a"]\nembedding_models = ["a"]')
  expect(JSON.parse(fromUtf8(configurationOf(marked).bytes)).upstreams[0].embedding_models).toEqual(['a'])
})

test('goal: the digest is SHA-256 of the text, as sha256sum prints it, and the text is canonical JSON', () => {
  const { bytes, digest } = configurationOf(toml)
  expect(toHex(digest)).toBe(createHash('sha256').update(bytes).digest('hex'))
  const text = fromUtf8(bytes)
  const sorted = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(sorted)
    if (typeof value !== 'object' || value === null) return value
    const entries = Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1))
    return Object.fromEntries(entries.map(([name, inner]) => [name, sorted(inner)]))
  }
  expect(text).toBe(`${JSON.stringify(sorted(JSON.parse(text)))}\n`)
  expect(JSON.parse(text)).toMatchObject({
    schemaVersion: 1,
    listen: '127.0.0.1:8442',
    receipts: { responses: 'always', nonce_retention_minutes: 15, nonces_max: 1_000_000 },
    upstreams: [
      {
        name: 'second',
        url: 'https://second.example/v1',
        models: ['b', 'a'],
        spki_sha256: '',
        ca_sha256: createHash('sha256').update('PEM').digest('hex'),
      },
      { name: 'first', url: 'http://first.example/v1', models: ['strongroom-tiny'], ca_sha256: '' },
    ],
    worker: { name: 'built-in', model: 'strongroom-tiny', context_tokens: 32_768, parallel: 4 },
  })
})

test('goal: neither keys nor paths of this host are in it', () => {
  const text = fromUtf8(configurationOf(toml).bytes)
  for (const secret of ['/secret', 'key_file', '/etc/ca.pem', '/srv', 'PEM']) expect(text).not.toContain(secret)
})

test('goal: whatever decides who gets prompts, or how receipts are made, changes the digest', () => {
  const changes: [from: string, to: string][] = [
    ['127.0.0.1:8442', '127.0.0.1:8443'],
    ['"always"', '"on-request"'],
    ['second.example', 'third.example'],
    ['name = "second"', 'name = "third"'],
    ['models = ["b", "a"]', 'models = ["a"]'],
    ['ca_file = "/etc/ca.pem"', `ca_file = "/etc/ca.pem"\nspki_sha256 = "${'0'.repeat(64)}"`],
    ['response_receipts = "always"', 'response_receipts = "always"\nnonces_max = 20000'],
    ['response_receipts = "always"', 'response_receipts = "always"\nnonce_retention_minutes = 20'],
    ['model_file = "/srv/model.gguf"', ''],
    ['model_file = "/srv/model.gguf"', 'model_file = "/srv/model.gguf"\nmodel = "big"'],
    [toml.slice(toml.lastIndexOf('[[inference')), ''],
  ]
  const digests = changes.map(([from, to]) => {
    expect(toml).toContain(from)
    return digestOf(toml.replace(from, to), to === '' && from.startsWith('[[') ? ['PEM'] : undefined)
  })
  const all = [digestOf(toml), digestOf(toml, ['other PEM', null]), ...digests]
  expect(new Set(all).size).toBe(changes.length + 2)
})

test('goal: comments, the order of fields, shares and where a key or a model lies do not change it', () => {
  for (const [from, to] of [
    ['"/secret/path"', '"/secret/other"'],
    ['"/srv/model.gguf"', '"/srv/copy.gguf"'],
    ['name = "first"', 'weight = 3\n# a comment\nname = "first"'],
  ] as const) {
    expect(digestOf(toml.replace(from, to))).toBe(digestOf(toml))
  }
})
