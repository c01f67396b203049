import { expect, test } from 'bun:test'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { runCommand } from '../../../scripts/lib/command.ts'

const root = join(import.meta.dir, '../../..')
const path = 'src/base/ipv4.ts'

// Goal: the tests of a file run against each mutant and find most; the file on disk does not change.
test('mutants of one file', async () => {
  const before = readFileSync(join(root, path), 'utf8')
  const argv = [process.execPath, 'scripts/mutate/main.ts', '--file', path, '--sample', '8', '--lanes', '1']
  const { output } = await runCommand(argv, { cwd: root, timeoutMs: 110_000 })
  expect(output).toMatch(/^── src\/base\/ipv4\.ts: 8 mutants$/m)
  expect(Number(/ (\d) of +8 found/.exec(output)?.[1])).toBeGreaterThanOrEqual(6)
  expect(readFileSync(join(root, path), 'utf8')).toBe(before)
})
