// Goal: any lines of a report fit into one line of the channel beside the metrics, and none is left out.

import { expect, test } from 'bun:test'
import { agentLineBytesMax } from '../../src/contract/vm/agent.ts'
import { metricsPieceCharsMax } from '../../src/contract/vm/enclave.ts'
import { LogLines } from '../../src/enclave/log-lines.ts'
import { encodeResponse } from '../../src/guest/wire.codec.ts'

/** Everything from that number on, report by report. */
function allFrom(lines: LogLines, seq: number): { seq: number; line: string }[] {
  const found: { seq: number; line: string }[] = []
  for (let from = seq; ; from = (found.at(-1)?.seq ?? 0) + 1) {
    const some = lines.from(from)
    if (some.length === 0) return found
    found.push(...some)
  }
}

test('goal: however long and awkward the lines, a report with the longest metrics is within the limit, and every line is told once', () => {
  for (const character of ['x', '"', '\\', '\u0001', 'ä', '漢', '\ud800']) {
    const lines = new LogLines()
    const said = Array.from({ length: 100 }, (_, at) => `${at} ${character.repeat(2_000)}`.slice(0, 1_024))
    for (const line of said) lines.add(line)
    const told = allFrom(lines, 0)
    expect(told.map(({ seq }) => seq)).toEqual(said.map((_, at) => at))
    expect(told.map(({ line }) => line)).toEqual(said)
    const metrics = '漢'.repeat(metricsPieceCharsMax)
    const report = { metrics, metricsChars: Number.MAX_SAFE_INTEGER, log: lines.from(0) }
    const response = { id: 'x'.repeat(64), ok: true, report } as unknown as Parameters<typeof encodeResponse>[0]
    expect(encodeResponse(response).length).toBeLessThanOrEqual(agentLineBytesMax)
  }
})

test('goal: whoever asks for lines that are forgotten gets the first that is kept, and so the number that is missing', () => {
  const lines = new LogLines()
  for (let at = 0; at < 1_000; at += 1) lines.add(`line ${at}`)
  const [first] = lines.from(0)
  expect(first).toEqual({ seq: 488, line: 'line 488' })
  expect(allFrom(lines, 0).length).toBe(512)
  expect(lines.from(999)).toEqual([{ seq: 999, line: 'line 999' }])
  expect(lines.from(Number.MAX_SAFE_INTEGER)).toEqual([])
})
