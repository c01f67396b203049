// Goal: every remedy names something that its reader, an operator at the command line, can do.

import { expect, test } from 'bun:test'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { silentProgram } from '../../scripts/package/command-tree.ts'
import { FAULTS, Fault, type FaultCode } from '../../src/base/fault.ts'
import { REMEDIES } from '../../src/base/remedies.ts'
import { EXIT, EXIT_HELP, exitCodeOf, remedyOf } from '../../src/terminal/exit.ts'

const codes = Object.keys(FAULTS) as FaultCode[]
const remedies = [
  ...codes.map(code => [code, REMEDIES[code]] as const),
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

const program = silentProgram()

test('goal: a command that a remedy names is one that there is', () => {
  const named = remedies.flatMap(([code, remedy]) =>
    [...remedy.matchAll(/`strongroom ([a-z ]+)/g)].map(([, words = '']) => ({ code, words })),
  )
  expect(named.length).toBeGreaterThan(5)
  for (const { code, words } of named) {
    let command: Pick<typeof program, 'commands'> = program
    for (const word of words.trim().split(' ')) {
      const next = command.commands.find(candidate => candidate.name() === word)
      expect([code, words, next !== undefined]).toEqual([code, words, true])
      if (next !== undefined) command = next
    }
  }
})

test('goal: the exit codes, which scripts match on, written out, each explained in the help', () => {
  expect(EXIT).toEqual({ ok: 0, failed: 1, usage: 2, unreachable: 3, notFound: 4, conflict: 5, refused: 6 })
  expect(EXIT_HELP.match(/^ {2}\d/gm)?.map(Number)).toEqual([0, 1, 2, 3, 4, 5, 6])
  const ends = [
    ['invalid_request', 2],
    ['unauthenticated', 1],
    ['forbidden', 1],
    ['not_found', 4],
    ['conflict', 5],
    ['internal', 1],
    ['admin.unreachable', 3],
    ['api.unreachable', 3],
    ['config.invalid', 2],
  ] as const
  for (const [code, end] of ends) expect([code, exitCodeOf(new Fault(code, 'm'))]).toEqual([code, end])
  expect(exitCodeOf(new TypeError('a fault of ours'))).toBe(1)
})

test('goal: systemd gives up on a configuration that only an edit mends, and on nothing else that keeps the daemon from starting', () => {
  const unit = readFileSync(join(import.meta.dir, '../../scripts/systemd/strongroom.service'), 'utf8')
  const [, prevented] = /^RestartPreventExitStatus=(.*)$/m.exec(unit) ?? []
  expect(prevented).toBe(String(EXIT.usage))
  expect(exitCodeOf(new Fault('config.invalid', 'm'))).toBe(EXIT.usage)
  const passing: FaultCode[] = [
    'config.file',
    'host.listen_failed',
    'host.unsupported',
    'image.invalid',
    'conflict',
    'store.corrupt',
  ]
  for (const code of passing) expect([code, exitCodeOf(new Fault(code, 'm'))]).not.toEqual([code, EXIT.usage])
})
