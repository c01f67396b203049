// Goal: what a key means by a name, and what it may use, is one thing wherever it is asked.

import { expect, test } from 'bun:test'
import { Value } from '@sinclair/typebox/value'
import {
  KeyAliases,
  KeyModels,
  modelNames,
  NO_RULES,
  resolveModel,
  rulesProblem,
} from '../../src/contract/key-rules.ts'

const served = new Set(['big', 'tiny'])
const alias = (name: string, model: string) => ({ name, model })

test('goal: every kind of name', () => {
  const rules = {
    models: ['tiny', 'gone'],
    aliases: [alias('fast', 'tiny'), alias('old', 'gone'), alias('up', 'fast')],
  }
  const found = ['tiny', 'big', 'gone', 'fast', 'old', 'up', 'constructor', ''].map(name =>
    resolveModel(rules, served, name),
  )
  expect(found).toEqual(['tiny', null, null, 'tiny', null, null, null, null])
  expect(modelNames(rules, served)).toEqual(['tiny', 'fast'])
  expect([...served].map(name => resolveModel(NO_RULES, served, name))).toEqual(['big', 'tiny'])
  expect(modelNames(NO_RULES, served)).toEqual(['big', 'tiny'])
  expect(modelNames({ models: [], aliases: null }, served)).toEqual([])
})

test('goal: a name of the key goes before a model of that id, and leads no further than the key may go', () => {
  const shadowing = { models: null, aliases: [alias('big', 'tiny')] }
  expect(resolveModel(shadowing, served, 'big')).toBe('tiny')
  expect(modelNames(shadowing, served)).toEqual(['big', 'tiny'])
  const beyond = { models: ['tiny'], aliases: [alias('fast', 'big')] }
  expect(resolveModel(beyond, served, 'fast')).toBeNull()
  expect(rulesProblem(beyond)).toMatchObject({ param: 'aliases' })
  expect(rulesProblem({ models: null, aliases: [alias('a', 'x'), alias('a', 'y')] })).toMatchObject({
    param: 'aliases',
  })
  expect(rulesProblem({ models: ['tiny'], aliases: [alias('a', 'tiny')] })).toBeNull()
})

test('goal: lists have bounds, and names no line breaks', () => {
  const many = (count: number) => Array.from({ length: count }, (_, index) => `m${index}`)
  expect(
    [many(32), many(33), ['a', 'a'], ['a\nb'], [''], ['x'.repeat(257)]].map(one => Value.Check(KeyModels, one)),
  ).toEqual([true, false, false, false, false, false])
  const aliases = (count: number) => many(count).map(name => alias(name, 'tiny'))
  expect([aliases(32), aliases(33), [alias('a', '')]].map(one => Value.Check(KeyAliases, one))).toEqual([
    true,
    false,
    false,
  ])
})
