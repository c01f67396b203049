// Goal: after FAIL a person pastes a whole command into a shell, and the words that reach the program are exactly the
// words that the verdict means, whatever a host has put into them.

import { describe, expect, test } from 'bun:test'
import { commandCharsMax, commandText, hasOption, nextCommands } from '../../../src/client/verdict/next-commands.ts'
import { pastedWords } from '../../rigs/program.ts'

const argv = ['verify', 'gateway', 'https://g.example']

describe('the words', () => {
  // Goal: no name ends its word, runs a program or becomes an option of the shell.
  test.each([
    'mock=http://21.0.0.1:8000',
    "it's=http://x",
    '$(echo no)=http://x',
    '`echo no`;false|cat>/dev/null&',
    '"quoted" \\ back',
    '~/x *?[a] {a,b} #no !1',
    '--any-measurement',
    'ärger=http://x',
    "'''",
  ])('%s', name => {
    const [command = ''] = nextCommands({ argv, expected: ['--allow-outside', name] }, 'policy')
    expect(command).toStartWith('strongroom verify gateway https://g.example --allow-outside ')
    expect(pastedWords(command)).toEqual([...argv, '--allow-outside', name])
  })

  // Goal: what a terminal does not show as it is, is not there to be pasted; the command that shows all checks is.
  test.each(['a\nfalse', 'a\u001b[2Jb', 'a\u202eb', `a${' '.repeat(80)}VERDICT: PASS`, 'x'.repeat(commandCharsMax)])(
    '%j',
    name => {
      expect(nextCommands({ argv, expected: ['--allow-outside', name] }, 'policy')).toEqual([
        'strongroom verify gateway https://g.example --verbose',
      ])
    },
  )

  test('goal: a command of thousands of characters is whole', () => {
    const names = Array.from({ length: 64 }, (_, at) => `upstream-${at}=https://host-${at}.example:8000`)
    const expected = names.flatMap(name => ['--allow-outside', name])
    const [command = ''] = nextCommands({ argv, expected }, 'policy')
    expect(command.length).toBeGreaterThan(3_000)
    expect(pastedWords(command)).toEqual([...argv, ...expected])
  })
})

test('goal: options stand before what is for another program, and --json and --verbose are left out there alone', () => {
  const given = ['ssh', 'a.b.c', '--json', '--', 'tool', '--json', '--verbose']
  const [command = ''] = nextCommands({ argv: given, expected: ['--allow', 'traces'] }, 'policy')
  expect(pastedWords(command)).toEqual(['ssh', 'a.b.c', '--allow', 'traces', '--', 'tool', '--json', '--verbose'])
})

test('goal: with evidence that is not genuine nothing is accepted, and the document for the operator is kept', () => {
  const next = {
    argv,
    missing: ['--ca', 'ca.pem'],
    prepared: ['strongroom verify policy-example > policy.json'],
    expected: ['--policy', 'policy.json'],
  }
  const [plain, verbose] = ['strongroom verify gateway https://g.example', '--verbose']
  expect(nextCommands(next, 'evidence')).toEqual([
    `${plain} --ca ca.pem`,
    `${plain} --json > verdict.json`,
    `${plain} ${verbose}`,
  ])
  expect(nextCommands(next, 'policy')).toEqual([
    'strongroom verify policy-example > policy.json',
    `${plain} --ca ca.pem --policy policy.json`,
    `${plain} ${verbose}`,
  ])
  expect(nextCommands({ argv }, 'connection')).toEqual([plain, `${plain} ${verbose}`])
  expect(nextCommands({ argv }, 'input')).toEqual([`${plain} ${verbose}`])
})

test('goal: a file name is quoted as a word is', () => {
  expect(commandText(['strongroom', 'x'], "it's.json")).toBe("strongroom x > 'it'\\''s.json'")
})

test('goal: an option is found with its value in either form, and not behind --', () => {
  expect(hasOption(['a', '--policy', 'x'], '--policy')).toBe(true)
  expect(hasOption(['a', '--policy=x'], '--policy')).toBe(true)
  expect(hasOption(['a', '--policy-x'], '--policy')).toBe(false)
  expect(hasOption(['a', '--', '--policy', 'x'], '--policy')).toBe(false)
})
