// Goal: every remedy is something that its reader can do. It is read at the command line: by the operator, who has nobody else to ask.

import { expect, test } from 'bun:test'
import { FAULTS, Fault, type FaultCode } from '../../src/base/fault.ts'
import { remedyOf } from '../../src/cli/exit.ts'
import { createProgram } from '../../src/cli/index.ts'

const codes = Object.keys(FAULTS) as FaultCode[]
const remedies = [
  ...codes.map(code => [code, FAULTS[code].remedy] as const),
  ...codes.map(code => [`${code}, at the command line`, remedyOf(new Fault(code, 'm'))] as const),
]

// Goal: every remedy is something that its reader can do.
test.each(remedies)(
  'goal: %s: sends nobody to the operator, nor to a request id that no command prints',
  (_, remedy) => {
    expect(remedy).not.toMatch(/\boperator\b|request id|\bask\b/i)
    expect(remedy).toMatch(/^[a-z][^.]*/)
  },
)

const program = createProgram(
  {
    io: {
      stdout: async () => {},
      stderr: async () => {},
      stdoutIsTerminal: false,
      stderrIsTerminal: false,
      env: {},
      onSignal: () => {},
    },
    exitWith: () => {},
  },
  { asJson: false, written: [] },
)

test('goal: a command that a remedy names is one that there is', () => {
  const named = remedies.flatMap(([code, remedy]) =>
    [...remedy.matchAll(/`strongroom ([a-z ]+)/g)].map(([, words = '']) => ({ code, words })),
  )
  expect(named.length).toBeGreaterThan(5)
  for (const { code, words } of named) {
    let command = program
    for (const word of words.trim().split(' ')) {
      const next = command.commands.find(candidate => candidate.name() === word)
      expect([code, words, next !== undefined]).toEqual([code, words, true])
      if (next !== undefined) command = next
    }
  }
})
