// Goal: each kind of entry of the transparency log has the spelling that monitors read, and nothing else is an entry.

import { expect, test } from 'bun:test'
import { encodeLogEntry, type LogFact, logEntryBytesMax, readLogEntry } from '../../../src/contract/http/log-entry.ts'

const sha256 = 'ab'.repeat(32)
const sha384 = 'cd'.repeat(48)
const head = '{"format":"strongroom/log/v1",'

const ENTRIES: readonly (readonly [fact: LogFact, spelled: string])[] = [
  [{ kind: 'image', measurement: sha384 }, `${head}"kind":"image","measurement":"${sha384}"}`],
  [{ kind: 'allowlist', sha256 }, `${head}"kind":"allowlist","sha256":"${sha256}"}`],
  [{ kind: 'workload', sha256 }, `${head}"kind":"workload","sha256":"${sha256}"}`],
  [{ kind: 'operator-key', sha384 }, `${head}"kind":"operator-key","sha384":"${sha384}"}`],
  [{ kind: 'verifier-policy', sha256 }, `${head}"kind":"verifier-policy","sha256":"${sha256}"}`],
  [{ kind: 'chip-list', sha256 }, `${head}"kind":"chip-list","sha256":"${sha256}"}`],
  [
    { kind: 'gateway-start', measurement: sha384, workload: sha256, operator_key: sha384, receipt_key: sha256 },
    `${head}"kind":"gateway-start","measurement":"${sha384}","operator_key":"${sha384}",` +
      `"receipt_key":"${sha256}","workload":"${sha256}"}`,
  ],
  [
    { kind: 'build', measurement: sha384, keys: sha256, provenance: sha256 },
    `${head}"keys":"${sha256}","kind":"build","measurement":"${sha384}","provenance":"${sha256}"}`,
  ],
  [{ kind: 'former-log', sha256, size: 7 }, `${head}"kind":"former-log","sha256":"${sha256}","size":7}`],
]
const bytes = (text: string) => new TextEncoder().encode(text)

test('goal: each kind, spelled in one way, is read as it was written', () => {
  for (const [fact, spelled] of ENTRIES) {
    expect(new TextDecoder().decode(encodeLogEntry(fact))).toBe(spelled)
    expect(readLogEntry(bytes(spelled))).toEqual({ format: 'strongroom/log/v1', ...fact })
  }
  expect(logEntryBytesMax).toBe(1_024)
})

test('goal: another spelling, kind, format, field or length is no entry', () => {
  for (const [, spelled] of ENTRIES) {
    const wrong = [
      spelled.replace('{', '{ '),
      `${spelled}\n`,
      spelled.replace('}', ',"more":1}'),
      spelled.replace('/v1', '/v2'),
      spelled.replace(/ab|cd/, 'AB'),
      spelled.replace(/ab|cd/, ''),
      spelled.replace(/"kind":"[a-z-]+"/, '"kind":"toString"'),
      spelled.slice(0, -1),
    ]
    for (const text of wrong) expect([text, readLogEntry(bytes(text))]).toEqual([text, null])
  }
  for (const text of ['', 'null', '[]', '{}', `${head}"kind":7}`, ' '.repeat(1_025)]) {
    expect(readLogEntry(bytes(text))).toBeNull()
  }
  for (const size of ['-1', '1.5', '"7"', '9007199254740992']) {
    expect(readLogEntry(bytes(`${head}"kind":"former-log","sha256":"${sha256}","size":${size}}`))).toBeNull()
  }
})
