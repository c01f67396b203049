// Goal: a host names the chip of its newest certificate, as reports do, and none before its first report.

import { afterEach, beforeEach, expect, test } from 'bun:test'
import { mkdirSync, mkdtempSync, rmSync, utimesSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { vcekRequest } from '../../src/attest/kds/request.ts'
import { decodeReport } from '../../src/attest/report/report.ts'
import { toHex } from '../../src/base/bytes.ts'
import { systemRandom } from '../../src/base/ids.ts'
import { hostChipId } from '../../src/host/chip-id.ts'
import { openSimulatedHost } from '../../src/host/simulated-host.ts'

let dir: string
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'srt-chip-id-'))
})
afterEach(() => rmSync(dir, { recursive: true }))

const levels = { bootloader: 4, tee: 0, snp: 27, microcode: 88 }

/** Stores an empty file under the name that the certificate of this chip has. */
function stored(chipId: Uint8Array, product: 'genoa' | 'turin', seconds: number) {
  const tcb = { ...levels, fmc: product === 'turin' ? 1 : null }
  const path = join(dir, 'kds', vcekRequest({ product, chipId, tcb }).file)
  mkdirSync(join(dir, 'kds'), { recursive: true })
  writeFileSync(path, '')
  utimesSync(path, seconds, seconds)
}

// Goal: a replaced board counts, and no stray file does.
test('snp: the newest certificate counts; Turin pads its 8 bytes', () => {
  expect(hostChipId(dir, 'snp')).toBeNull()
  stored(new Uint8Array(64).fill(0xab), 'genoa', 1_000)
  writeFileSync(join(dir, 'kds', 'vcek-genoa-zz-1.2.3.4.der'), '')
  expect(hostChipId(dir, 'snp')).toBe('ab'.repeat(64))
  const turin = new Uint8Array(64)
  turin.fill(0xcd, 0, 8)
  stored(turin, 'turin', 2_000)
  expect(hostChipId(dir, 'snp')).toBe(`${'cd'.repeat(8)}${'00'.repeat(56)}`)
})

// Goal: the simulated chip is that of the reports.
test('simulated: the chip of its reports', async () => {
  expect(hostChipId(dir, 'kvm')).toBeNull()
  const host = await openSimulatedHost({ stateDir: dir, nowMs: Date.now, random: systemRandom, modulusBits: 2048 })
  const launch = { measurement: new Uint8Array(48), reportData: new Uint8Array(64), hostData: new Uint8Array(32) }
  const { report } = await host.evidence(launch)
  expect(hostChipId(dir, 'tcg')).toBe(toHex(decodeReport(report).chipId))
})
