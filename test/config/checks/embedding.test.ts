// Embedding models in the configuration: a model has one use, wherever it is served.

import { expect, test } from 'bun:test'
import { parseConfig } from '../../../src/config/parse.ts'

const upstream = (name: string, models: readonly string[], embedding?: readonly string[]) =>
  [
    '[[inference.upstreams]]',
    `name = "${name}"`,
    `url = "http://${name}.example/v1"`,
    `models = ${JSON.stringify(models)}`,
    ...(embedding === undefined ? [] : [`embedding_models = ${JSON.stringify(embedding)}`]),
    '',
  ].join('\n')

function problemsOf(toml: string): string[] {
  const verdict = parseConfig(toml, 'test.toml')
  return verdict.ok ? [] : verdict.problems.map(problem => `${problem.field}: ${problem.message}`)
}

test('goal: models of both kinds beside each other, on one upstream or several, are good', () => {
  expect(problemsOf(upstream('a', ['m', 'e'], ['e']) + upstream('b', ['e'], ['e']) + upstream('c', ['m']))).toEqual([])
})

test('goal: a model with two uses, or of no upstream, is said with its field', () => {
  const rows: [toml: string, problem: RegExp][] = [
    [upstream('a', ['m'], ['e']), /^inference\.upstreams\.0\.embedding_models: "e" is not among the models/],
    [
      upstream('a', ['e'], ['e']) + upstream('b', ['m', 'e']),
      /^inference\.upstreams\.1\.embedding_models: lacks "e", which is an embedding model of another upstream/,
    ],
    [
      `[inference.worker]\nmodel_file = "/m.gguf"\nmodel = "e"\n${upstream('a', ['e'], ['e'])}`,
      /^inference\.worker\.model: "e" is an embedding model of an upstream/,
    ],
    [
      `[instances]\ninference_models = ["m", "e"]\n${upstream('a', ['m', 'e'], ['e'])}`,
      /^instances\.inference_models\.1: is an embedding model/,
    ],
    [upstream('a', ['e'], ['e', 'e']), /embedding_models/],
  ]
  for (const [toml, problem] of rows) expect(problemsOf(toml)).toEqual([expect.stringMatching(problem)])
})

test('goal: text-embeddings-inference has no chats, and is named by its root', () => {
  const tei = (url: string, embedding: readonly string[]) =>
    `${upstream('a', ['e'], embedding).replace('http://a.example/v1', url)}engine = "text-embeddings-inference"\n`
  expect(problemsOf(tei('http://a.example:8080', ['e']))).toEqual([])
  expect(problemsOf(tei('http://a.example/v1', ['e']))).toEqual([
    'inference.upstreams.0.url: must be the root of the server, without /v1',
  ])
  expect(problemsOf(tei('http://a.example', []))).toEqual([
    'inference.upstreams.0.embedding_models: lacks "e": this engine has no chats',
  ])
})
