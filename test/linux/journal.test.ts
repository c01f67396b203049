// Goal: the journal is recognized by systemd's variable and the kernel's confirmation; a redirected stderr is not.

import { expect, test } from 'bun:test'
import { fstatSync } from 'node:fs'
import { isJournal } from '../../src/linux/journal.ts'

test('goal: only the very file that JOURNAL_STREAM names is the journal', () => {
  const { dev, ino } = fstatSync(0)
  expect(isJournal(0, { JOURNAL_STREAM: `${dev}:${ino}` })).toBe(true)
  expect(isJournal(0, { JOURNAL_STREAM: `${dev}:${ino + 1}` })).toBe(false)
  expect(isJournal(0, { JOURNAL_STREAM: `${dev + 1}:${ino}` })).toBe(false)
  for (const odd of ['', '1', 'x:y', `${dev}:${ino}:1`])
    expect([odd, isJournal(0, { JOURNAL_STREAM: odd })]).toEqual([odd, false])
  expect(isJournal(0, {})).toBe(false)
  expect(isJournal(9999, { JOURNAL_STREAM: `${dev}:${ino}` })).toBe(false)
})
