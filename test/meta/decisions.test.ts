// Goal: the decisions of a room stay a page that a reader finishes: one short file for each room, found from the index.

import { expect, test } from 'bun:test'
import { basename } from 'node:path'
import { APART, LAYERS } from './layers.ts'
import { readTree } from './tree.ts'

const linesMax = 40
const columnsMax = 100
/** Subjects that concern more than one room. */
const shared = ['guest-image', 'libraries', 'release', 'tests']

const index = readTree('src/DECISIONS.md')
const files = readTree('src/decisions/*.md')
const linesOf = (text: string) => text.trimEnd().split('\n')

function formFaults(text: string): string[] {
  const lines = linesOf(text)
  const long = lines.filter(line => [...line].length > columnsMax)
  // A title and a blank line; then bullets that begin with a date, and their further lines.
  const odd = lines.slice(2).filter(line => !/^(?:- 20\d\d-\d\d-\d\d \S| {2}\S)/.test(line))
  return [...(lines.length > linesMax ? [`${lines.length} lines`] : []), ...long, ...odd]
}

test('goal: a file of decisions has at most 40 lines of 100 columns, and each decision has a date', () => {
  expect(files.size).toBeGreaterThan(20)
  const faults = [...files].flatMap(([path, text]) => formFaults(text).map(fault => `${path}: ${fault}`))
  expect(faults).toEqual([])
  expect(linesOf([...index.values()].join('')).length).toBeLessThanOrEqual(linesMax)
})

test('goal: a file is named after a room or a subject of several rooms, and the index has a link to it', () => {
  const rooms = [...Object.keys(LAYERS), ...Object.keys(APART)].map(path => basename(path))
  const names = [...files.keys()].map(path => basename(path, '.md'))
  expect(names.filter(name => !rooms.includes(name) && !shared.includes(name))).toEqual([])
  const linked = [...[...index.values()].join('').matchAll(/\(decisions\/([a-z-]+)\.md\)/g)].map(([, name]) => name)
  expect(linked.toSorted()).toEqual(names.toSorted())
})

test('goal: a long file, a long line and a decision without a date are found', () => {
  const page = (...bullets: string[]) => ['# Decisions', '', ...bullets].join('\n')
  expect(formFaults(page('- 2026-11-29 A reason.', '  Its second line.'))).toEqual([])
  expect(formFaults(page('- A reason.'))).toEqual(['- A reason.'])
  const long = `- 2026-11-29 ${'a'.repeat(88)}`
  expect(formFaults(page(long))).toEqual([long])
  expect(formFaults(page(...Array.from({ length: 39 }, () => '- 2026-11-29 A reason.')))).toEqual(['41 lines'])
})
