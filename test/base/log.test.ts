// Goal: a line says how grave it is in the way that the journal reads, and only where the journal reads it.

import { expect, test } from 'bun:test'
import { createLogger } from '../../src/base/log.ts'

function linesOf(priorities: boolean): string[] {
  const lines: string[] = []
  const log = createLogger({ level: 'debug', sink: line => lines.push(line), nowMs: () => 0, priorities })
  log.debug('d')
  log.unit('u').info('i', { text: 'a\nb' })
  log.warn('w')
  log.error('e')
  return lines
}

test('goal: to the journal each line begins with its priority (sd-daemon(3)) and is JSON after it', () => {
  const lines = linesOf(true)
  expect(lines.map(line => line.slice(0, 3))).toEqual(['<7>', '<6>', '<4>', '<3>'])
  for (const line of lines) expect(JSON.parse(line.slice(3))).toMatchObject({ time: '1970-01-01T00:00:00.000Z' })
  expect(lines.join('')).not.toContain('\n')
})

test('goal: elsewhere a line is JSON and nothing else', () => {
  expect(linesOf(false).map(line => JSON.parse(line).level)).toEqual(['debug', 'info', 'warn', 'error'])
})
