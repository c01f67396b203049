import { describe, expect, test } from 'bun:test'
import { readTree, type Tree } from './tree.ts'
import {
  commentColumnsMax,
  commentFaults,
  nameFaults,
  plainFaults,
  plainFiles,
  plainIgnored,
  wordFaults,
} from './words.ts'

const treeOf = (text: string): Tree => new Map([['src/a.ts', text]])

// Goal: no comment of the project reads as a riddle or runs out of the window, and no value is called `one`.
test('words of the sources', () => {
  const tree = readTree('src/**/*.{ts,tsx}', 'scripts/**/*.ts', 'test/**/*.ts', 'examples/**/*.ts')
  expect(tree.size).toBeGreaterThan(1_000)
  expect(wordFaults(tree)).toEqual([])
})

// Goal: comments of the product are in plain words, name their subject, and begin with a verb before their Faults.
test('comments of the product', () => {
  const tree = new Map([...readTree('src/**/*.{ts,tsx}')].filter(([path]) => !plainIgnored.test(path)))
  expect(tree.size).toBeGreaterThan(1_000)
  expect(commentFaults(tree)).toEqual([])
})

describe('commentFaults', () => {
  const faultsIn = (path: string, text: string) => commentFaults(new Map([[path, text]]), [])

  // Goal: each word is found in each form of comment, also where a sentence wraps.
  test.each([
    '// Nobody reads it.',
    '/** For whoever has\n * a key. */',
    'const a = 1 // Made anew.',
    '/** A copy in the\n * place of the file. */',
    '/** Likewise, for tokens. */',
    '/** As above; with a name. */',
    '/** Null: not known. */',
    '/** The last row; null: none. */',
    '/** Sets it. False: it has moved. */',
  ])('%s', text => expect(faultsIn('src/store/a.ts', text).length).toBe(1))

  // Goal: a comment begins with its subject or a verb, no program says, knows or wants, and conditions are in words.
  test.each([
    '/** It listens. */',
    '// As the wire allows.',
    '// The host says why.',
    '// Clients are told why.',
    '/** Fault conflict: it is taken. */',
    '/** Faults: conflict. */',
    '/** The row; null where there is none. */',
    '/** The number of rows. Left out: none. */',
    '/** The one of the file,\n * else the default. */',
    '// Pure but for the clock.',
  ])('%s', text => expect(faultsIn('src/fleet/a.ts', text).length).toBe(1))

  // Goal: names in backticks, later sentences and code are no faults, nor is a condition in words.
  test.each([
    '/** Runs as `nobody`. */',
    '/** Listens. It never rejects. */',
    '/** Opens it. Fault conflict if it is taken. Faults: internal. */',
    '// Faults of clients. Use something else.',
    "fail('nobody knows')",
    '/** Null if it is not known. */',
    'const a = { Null: 1 }',
  ])('%s', text => expect(faultsIn('src/builds/a.ts', text)).toEqual([]))

  // Goal: an exception covers its own comment alone, and one that nothing needs is a fault.
  test('exceptions', () => {
    const exception = { path: 'src/a.ts', text: 'nobody else', reason: 'a test' }
    expect(commentFaults(treeOf('// For nobody else.'), [exception])).toEqual([])
    expect(commentFaults(treeOf('// For nobody.'), [exception])).toHaveLength(2)
  })
})

// Goal: names that have misled readers do not come back, and no two folders beside each other look alike.
test('names of the sources', () => {
  const tree = readTree('src/**/*.{ts,tsx}')
  expect(tree.size).toBeGreaterThan(1_000)
  expect(nameFaults(tree)).toEqual([])
})

describe('nameFaults', () => {
  // Goal: a type that is a participle and a retired word are found with their line, as declarations alone.
  test.each([
    ['run()\ntype Asked = string', ['src/a.ts:2: `type Asked` as a name']],
    ['export class Wishes {}', ['src/a.ts:1: `class Wishes` as a name']],
    ['function lookAtHost() {}', ['src/a.ts:1: `function lookAtHost` as a name']],
    ['function listGateways() {}', ['src/a.ts:1: `function listGateways` as a name']],
    ["// type Asked\nconst asked = 'type Held'\ntype AskedShare = PlaceOfVm", []],
  ])('%s', (text, faults) => expect(nameFaults(treeOf(text), [], [])).toEqual(faults))

  // Goal: sibling folders that differ by one letter are found; others, and folders of other parents, are not.
  test.each([
    [['src/share/a.ts', 'src/shares/a.ts'], 1],
    [['src/verify/a.ts', 'src/verity/a.ts'], 1],
    [['src/share/a.ts', 'src/shards/a.ts'], 0],
    [['src/a/share/a.ts', 'src/bc/shares/a.ts'], 0],
  ])('%p', (paths, count) => expect(nameFaults(new Map(paths.map(path => [path, ''])), [], []).length).toBe(count))

  // Goal: an exception covers its own place alone, and one that nothing needs is a fault.
  test('exceptions', () => {
    const exception = { path: 'src/a.ts', text: 'type Asked', reason: 'a test' }
    expect(nameFaults(treeOf('type Asked = 1'), [exception], [])).toEqual([])
    expect(nameFaults(treeOf('type Held = 1'), [exception], [])).toHaveLength(2)
  })
})

// Goal: no text that users read is in the project's old dialect, in the rooms that are on the list.
test('texts for users', () => {
  const tree = new Map([...readTree(...plainFiles)].filter(([path]) => !plainIgnored.test(path)))
  expect(tree.size).toBeGreaterThan(500)
  for (const path of ['src/cli/help/gateway.md', 'src/cli/index.ts', 'src/console/web/main.tsx', 'README.md']) {
    expect([path, tree.has(path)]).toEqual([path, true])
  }
  expect(plainFaults(tree)).toEqual([])
})

describe('plainFaults', () => {
  const faultsIn = (path: string, text: string) => plainFaults(new Map([[path, text]]), [])

  // Goal: a planted sentence is found in each place that users read: literals, templates, pages and Markdown.
  test.each([
    ['src/a.ts', "fail('the log says why')"],
    ['src/a.ts', 'fail("nobody can read it")'],
    ['src/a.ts', `fail(\`whoever has \${key} can read it\`)`],
    ['src/a.ts', `fail(\`\${key} is kept, and the daemon believes it\`)`],
    ['src/a.ts', "fail('x') // fine\nfail('news are read')"],
    ['src/a.ts', "const a = /'/\nfail('the host is asked again')"],
    ['src/a.ts', "fail('pack it anew')"],
    ['src/a.ts', "fail('a report in the place of this one')"],
    ['src/a.tsx', '<p>Without one, nobody sees it.</p>'],
    ['src/a.md', 'The daemon knows\nits clock.'],
    ['src/a.md', '| a | it tells the host |'],
    ['src/a.md', '# What the host wants'],
  ])('%s %#', (path, text) => expect(faultsIn(path, text).length).toBe(1))

  // Goal: comments, patterns, names, code in Markdown, and words about people are no faults.
  test.each([
    ['src/a.ts', '// The log says why, and nobody knows.\nrun()'],
    ['src/a.ts', '/* Whoever asks. */ run()'],
    ['src/a.ts', 'const says = /it says so/'],
    ['src/a.ts', "import { asks } from './news.ts'\nconst asks = news.says"],
    ['src/a.ts', "ask('tell the operator what you want')"],
    ['src/a.md', '```sh\necho says it\n```\nRun `git says it`.'],
  ])('%s %#', (path, text) => expect(faultsIn(path, text)).toEqual([]))

  // Goal: the fault names file, line, word and text.
  test('names the place', () => {
    expect(faultsIn('src/a.ts', "run()\nfail('the log says why')")).toEqual([
      'src/a.ts:2: "says" in "the log says why"',
    ])
  })

  // Goal: Markdown is narrow: lines of 100 columns, cells of 80, paragraphs of five lines.
  test('layout of Markdown', () => {
    const lineOf = (length: number) => 'x'.repeat(length)
    expect(faultsIn('a.md', lineOf(100))).toEqual([])
    expect(faultsIn('a.md', lineOf(101))).toEqual(['a.md:1: a line of 101 columns'])
    expect(faultsIn('a.md', `| ${lineOf(80)} |`)).toEqual([])
    expect(faultsIn('a.md', `| ${lineOf(81)} |`)).toEqual(['a.md:1: a cell of 81 columns'])
    expect(faultsIn('a.md', Array(5).fill('x').join('\n'))).toEqual([])
    expect(faultsIn('a.md', Array(6).fill('x').join('\n'))).toEqual(['a.md:1: a paragraph of 6 lines'])
    expect(faultsIn('a.md', Array(6).fill('- x').join('\n'))).toEqual([])
  })

  // Goal: an exception covers its own text in its own file, and one that nothing uses is a fault.
  test('exceptions', () => {
    const tree = new Map([['src/a.ts', "fail('the log says why')"]])
    const exception = { path: 'src/a.ts', text: 'log says', reason: 'on the wire' }
    expect(plainFaults(tree, [exception])).toEqual([])
    expect(plainFaults(tree, [{ ...exception, path: 'src/b.ts' }])).toEqual([
      'src/a.ts:1: "says" in "the log says why"',
      'src/b.ts: no text has the exception "log says"',
    ])
  })
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
