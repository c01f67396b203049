import { describe, expect, test } from 'bun:test'
import { readTree, type Tree } from './tree.ts'
import { commentColumnsMax, wordFaults } from './words.ts'

const treeOf = (text: string): Tree => new Map([['src/a.ts', text]])

// Goal: no comment of the project reads as a riddle or runs out of the window, and no value is called `one`.
test('words of the sources', () => {
  const tree = readTree('src/**/*.{ts,tsx}', 'scripts/**/*.ts', 'test/**/*.ts', 'examples/**/*.ts')
  expect(tree.size).toBeGreaterThan(1_000)
  expect(wordFaults(tree)).toEqual([])
})

describe('wordFaults', () => {
  // Goal: each rule finds what it is for, in each form of comment.
  test.each([
    '// Of a budget.',
    '/** What the host says. */',
    '// A row. Who reads it waits.',
    '/**\n * Those that wait.\n */',
    'const a = 1 // Whatever it is.',
    '// The client is told of it.',
    '// They were told.',
    `// ${'x '.repeat(commentColumnsMax / 2)}`,
    'for (const one of many) run(one)',
  ])('%#', text => expect(wordFaults(treeOf(text)).length).toBeGreaterThan(0))

  // Goal: a sentence that wraps, a string and a property are none.
  test.each([
    '// The part\n// What follows is the same sentence.',
    "const text = 'What is this? Who is told?'",
    'const a = { one: 1 }\nuse(a.one)',
    '// One of many, and what it holds.',
    `// ${'x'.repeat(commentColumnsMax - 3)}`,
  ])('%#', text => expect(wordFaults(treeOf(text))).toEqual([]))
})
