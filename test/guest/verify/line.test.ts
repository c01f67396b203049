import { describe, expect, test } from 'bun:test'
import { fail, notChecked, pass } from '../../../src/attest/verdict.ts'
import { isGood, LINES, lineOf, linesDocument, linesText } from '../../../src/guest/verify/line.ts'

const [hardware, ...others] = LINES
const good = [
  lineOf(hardware, [pass('a', 'it is')], 'all well'),
  ...others.map(name => lineOf(name, [pass('b')], 'fine')),
]

describe('the lines', () => {
  // Goal: exactly five, the outcome first, in their order; --verbose adds the checks below each.
  test('as text', () => {
    const mixed = [
      lineOf(LINES[0], [fail('root', 'not AMD'), pass('a'), notChecked('b', 'later', true)], ''),
      lineOf(LINES[1], [notChecked('tpm', 'none here', true)], ''),
      ...good.slice(2),
    ]
    expect(linesText(mixed, { verbose: false })).toBe(
      [
        'FAIL         hardware attestation: root: not AMD',
        'NOT CHECKED  TPM measurements: tpm: none here',
        'PASS         host-key binding: fine',
        'PASS         inference provider attestation: fine',
        'PASS         external-access lockout: fine',
        '',
      ].join('\n'),
    )
    expect(linesText(mixed, { verbose: true }).split('\n').slice(0, 4)).toEqual([
      'FAIL         hardware attestation: root: not AMD',
      '    FAIL         root: not AMD',
      '    PASS         a',
      '    NOT CHECKED  b: later',
    ])
  })

  // Goal: good only when all five pass; nothing checked is not good, and fewer lines are not either.
  test('as a verdict', () => {
    expect(isGood(good)).toBe(true)
    expect(isGood(good.slice(1))).toBe(false)
    expect(lineOf(hardware, [], 'x').outcome).toBe('not-checked')
    expect(isGood([lineOf(hardware, [notChecked('a', 'b', true)], ''), ...good.slice(1)])).toBe(false)
    expect(lineOf(hardware, [pass('a'), notChecked('b', 'by choice', false)], 'ok').outcome).toBe('pass')
    expect(linesDocument(good, true)).toMatchObject({ schemaVersion: 1, ok: true, simulated: true })
    expect(linesDocument(good, true).lines.map(line => line.name)).toEqual([...LINES])
  })

  // Goal: what others wrote cannot make a line of its own or move the cursor.
  test('stay one line each', () => {
    const line = lineOf(hardware, [fail('x', 'evil\nPASS  hardware\u001b[2J')], '')
    expect(linesText([line], { verbose: false })).toBe(
      'FAIL         hardware attestation: x: evil PASS  hardware\\x1b[2J\n',
    )
  })
})
