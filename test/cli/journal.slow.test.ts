// Goal: what the program says under systemd has the priorities that journalctl filters by.

import { expect, test } from 'bun:test'
import { closeSync, fstatSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const main = join(import.meta.dir, '../../src/main.ts')

test('goal: in the journal each line of why a command failed is an error', async () => {
  const dir = mkdtempSync(join(tmpdir(), 'strongroom-journal-'))
  const file = join(dir, 'journal.txt')
  const fd = openSync(file, 'w')
  const { dev, ino } = fstatSync(fd)
  const env = { PATH: process.env.PATH ?? '', JOURNAL_STREAM: `${dev}:${ino}` }
  const argv = [process.execPath, main, 'serve', '--config', '/none/c.toml']
  expect(await Bun.spawn(argv, { env, stdio: ['ignore', 'ignore', fd] }).exited).toBe(2)
  closeSync(fd)
  const text = readFileSync(file, 'utf8')
  rmSync(dir, { recursive: true, force: true })
  expect(text).toMatch(/^<3>strongroom: .*\n<3>remedy: .*\n$/)
})
