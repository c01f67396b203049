// Goal: long output is read by lines at a bounded cost, whatever its length, its lines, or a command that never ends.

import { expect, test } from 'bun:test'
import { plainEnv } from '../../src/linux/command.ts'
import { type LinesCommand, runLines } from '../../src/linux/command-lines.ts'

const usual = { timeoutMs: 10_000, lineBytesMax: 100 }

async function linesOf(
  argv: string[],
  { countMax = 1e9, ...command }: Partial<LinesCommand> & { countMax?: number } = {},
) {
  const lines: string[] = []
  const onLine = (line: string) => lines.push(line) < countMax
  return { ...(await runLines(argv, { ...usual, onLine, ...command })), lines }
}

test('goal: every line comes, and one that is too long is passed over', async () => {
  const text = `one\\n${'x'.repeat(101)}\\ntwo\\n`
  expect(await linesOf(['printf', text])).toEqual({ whole: true, lines: ['one', 'two'] })
})

test('goal: whoever wants no more ends the command, however much it has to say', async () => {
  const { whole, lines } = await linesOf(['yes'], { countMax: 3 })
  expect([whole, lines]).toEqual([false, ['y', 'y', 'y']])
})

test('goal: a command that does not end is ended in time, and says so', async () => {
  await expect(linesOf(['sleep', '60'], { timeoutMs: 50 })).rejects.toThrow('sleep: not done within 50 ms')
  await expect(linesOf(['yes'], { timeoutMs: 50 })).rejects.toThrow('yes: not done within 50 ms')
})

test('goal: a failure comes with its code and what the command said, within bounds', async () => {
  await expect(linesOf(['sh', '-c', 'echo no such thing >&2; exit 3'])).rejects.toThrow(
    'sh: exit code 3: no such thing',
  )
  await expect(linesOf(['/nonexistent/x'])).rejects.toThrow('/nonexistent/x: ')
  const long = linesOf(['sh', '-c', 'head --bytes=1000000 /dev/zero | tr "\\0" x >&2; exit 1']).catch(error => error)
  expect(String(await long).length).toBeLessThan(3_000)
})

test('goal: the command sees a plain environment', async () => {
  expect((await linesOf(['env'])).lines.toSorted()).toEqual(
    Object.entries(plainEnv)
      .map(([name, value]) => `${name}=${value}`)
      .toSorted(),
  )
})
