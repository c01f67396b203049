// Goal: a host knows the chip of its verified reports, chooses none among several, and has none before the first.

import { afterEach, beforeEach, expect, test } from 'bun:test'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { chipIdOf, SIMULATED_TCBS, simulatedPlatform } from '../../scripts/rigs/launch/simulated-platform.ts'
import { vcekRequest } from '../../src/attest/kds/request.ts'
import { decodeReport } from '../../src/attest/report/report.ts'
import { toHex } from '../../src/base/bytes.ts'
import { systemRandom } from '../../src/base/ids.ts'
import { hostChipId, keepReportedChip, nameChip, reportedChips } from '../../src/host/chip-id.ts'
import { openSimulatedHost } from '../../src/host/simulated-host.ts'

let dir: string
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'srt-chip-id-'))
})
afterEach(() => rmSync(dir, { recursive: true }))

const first = toHex(chipIdOf('turin'))

// Goal: certificates in the cache, which anyone's report may have asked for, name no chip.
test('snp: the chip of a report that was kept, and none from the cache', async () => {
  const wanted = { product: 'genoa', chipId: chipIdOf('genoa'), tcb: SIMULATED_TCBS.genoa } as const
  mkdirSync(join(dir, 'kds'))
  writeFileSync(join(dir, 'kds', vcekRequest(wanted).file), '')
  expect([hostChipId(dir, 'snp'), reportedChips(dir, 'snp')]).toEqual([null, []])
  keepReportedChip(dir, await (await simulatedPlatform('turin')).report())
  expect(hostChipId(dir, 'snp')).toBe(first)
})

// Goal: a second chip makes neither the host's until the operator names one; their number is bounded.
test('snp: several chips', async () => {
  const { report } = await simulatedPlatform('turin')
  const chips = Array.from({ length: 10 }, (_, at) => chipIdOf('turin').map((byte, i) => (i === 0 ? at + 1 : byte)))
  for (const chipId of [...chips, ...chips]) keepReportedChip(dir, await report({ chipId }))
  expect(reportedChips(dir, 'snp')).toEqual(chips.slice(0, 8).map(toHex))
  expect(hostChipId(dir, 'snp')).toBeNull()
  const named = toHex(chips[1] as Uint8Array)
  nameChip(dir, named)
  expect([hostChipId(dir, 'snp'), reportedChips(dir, 'snp')]).toEqual([named, [named]])
})

// Goal: the simulated chip is that of the reports.
test('simulated: the chip of its reports', async () => {
  expect(hostChipId(dir, 'kvm')).toBeNull()
  const host = await openSimulatedHost({ stateDir: dir, nowMs: Date.now, random: systemRandom, modulusBits: 2048 })
  const launch = { measurement: new Uint8Array(48), reportData: new Uint8Array(64), hostData: new Uint8Array(32) }
  const { report } = await host.evidence(launch)
  expect(hostChipId(dir, 'tcg')).toBe(toHex(decodeReport(report).chipId))
})
