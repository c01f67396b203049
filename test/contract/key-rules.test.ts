// Goal: what a key means by a name, and what it may use, is one thing wherever it is asked.

import { expect, test } from 'bun:test'
import { Value } from '@sinclair/typebox/value'
import {
  KeyAliases,
  KeyModels,
  modelNames,
  NO_RULES,
  offeredModels,
  resolveModel,
} from '../../src/contract/key-rules.ts'
import { rulesProblem } from '../../src/contract/key-rules-problem.ts'

const offered = offeredModels([{ models: ['big', 'tiny'], isInside: false }])
const alias = (name: string, model: string) => ({ name, model })

test('goal: every kind of name', () => {
  const rules = {
    models: ['tiny', 'gone'],
    aliases: [alias('fast', 'tiny'), alias('old', 'gone'), alias('up', 'fast')],
  }
  const found = ['tiny', 'big', 'gone', 'fast', 'old', 'up', 'constructor', ''].map(name =>
    resolveModel(rules, offered, name),
  )
  expect(found).toEqual(['tiny', null, null, 'tiny', null, null, null, null])
  expect(modelNames(rules, offered)).toEqual(['tiny', 'fast'])
  expect([...offered.served].map(name => resolveModel(NO_RULES, offered, name))).toEqual(['big', 'tiny'])
  expect(modelNames(NO_RULES, offered)).toEqual(['big', 'tiny'])
  expect(modelNames({ models: [], aliases: null }, offered)).toEqual([])
})

test('goal: no alias takes the place of a served model, and none leads further than the key may go', () => {
  const shadowing = { models: null, aliases: [alias('big', 'tiny')] }
  expect(resolveModel(shadowing, offered, 'big')).toBe('big')
  expect(modelNames(shadowing, offered)).toEqual(['big', 'tiny'])
  const beyond = { models: ['tiny'], aliases: [alias('fast', 'big')] }
  expect(resolveModel(beyond, offered, 'fast')).toBeNull()
  expect(rulesProblem(shadowing, offered)?.message).toContain('is the id of a model that the gateway serves')
  expect(rulesProblem(beyond, offered)).toMatchObject({ param: 'aliases' })
  expect(rulesProblem({ models: null, aliases: [alias('a', 'x'), alias('a', 'y')] }, offered)).toMatchObject({
    param: 'aliases',
  })
  expect(rulesProblem({ models: ['tiny'], aliases: [alias('a', 'tiny')] }, offered)).toBeNull()
})

test('goal: an alias never leads out of what the attestation covers, where anything is inside of it', () => {
  const inside = { models: ['private', 'both'], isInside: true }
  const outside = { models: ['far', 'both'], isInside: false }
  const split = offeredModels([inside, outside])
  const rules = { models: null, aliases: [alias('gpt', 'far'), alias('mixed', 'both'), alias('own', 'private')] }
  expect(['gpt', 'mixed', 'own', 'far', 'both', 'private'].map(name => resolveModel(rules, split, name))).toEqual([
    ...[null, null, 'private'],
    ...['far', 'both', 'private'],
  ])
  expect(modelNames(rules, split)).toEqual(['private', 'both', 'far', 'own'])
  for (const model of ['far', 'both']) {
    expect(rulesProblem({ models: null, aliases: [alias('gpt', model)] }, split)?.message).toContain('answered outside')
  }
  // The one model inside is answered outside, too: then there is nothing that an alias may stand for.
  const mixed = offeredModels([{ models: ['both'], isInside: true }, outside])
  expect(['gpt', 'mixed'].map(name => resolveModel(rules, mixed, name))).toEqual([null, null])
  // Nothing is inside, and clients have allowed each upstream by its name.
  expect(resolveModel(rules, offeredModels([outside]), 'gpt')).toBe('far')
})

test('goal: lists have bounds, and names no line breaks', () => {
  const many = (count: number) => Array.from({ length: count }, (_, index) => `m${index}`)
  expect(
    [many(32), many(33), ['a', 'a'], ['a\nb'], [''], ['x'.repeat(257)]].map(item => Value.Check(KeyModels, item)),
  ).toEqual([true, false, false, false, false, false])
  const aliases = (count: number) => many(count).map(name => alias(name, 'tiny'))
  expect([aliases(32), aliases(33), [alias('a', '')]].map(item => Value.Check(KeyAliases, item))).toEqual([
    true,
    false,
    false,
  ])
})
