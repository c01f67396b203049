// The chip of this host, as CHIP_ID in its reports: from reports that AMD's certificate of the chip has verified, or
// that of the simulated platform. Effects: one file of the state directory. Fault internal if it cannot be written.

import { join } from 'node:path'
import { decodeReport } from '../attest/report/report.ts'
import { toHex } from '../base/bytes.ts'
import { resultOr } from '../base/result-or.ts'
import type { Platform } from '../config/schema.ts'
import { readTextOrNull, writeFileAtomic } from '../linux/files.ts'
import { simulatedChipId } from './simulated-host.ts'

/** In no backup: another machine has another chip. One CHIP_ID a line, the earliest first. */
const fileOf = (stateDir: string) => join(stateDir, 'chip-ids.txt')
/** No share: a host has one chip. More than one make it ambiguous already, so further ones add nothing. */
const chipsMax = 8

/**
 * Returns the chips of verified reports, in hexadecimal: none before the first report, and more than one if the board
 * was replaced or a VM has a report of another machine. Never throws.
 */
export function reportedChips(stateDir: string, platform: Platform): readonly string[] {
  if (platform === 'snp') return resultOr(() => readChips(stateDir), [])
  const simulated = resultOr(() => simulatedChipId(stateDir), null)
  return simulated === null ? [] : [simulated]
}

function readChips(stateDir: string): readonly string[] {
  const lines = readTextOrNull(fileOf(stateDir))?.split('\n') ?? []
  return lines.filter(line => /^(?!0+$)[0-9a-f]{128}$/.test(line))
}

/** Returns the only chip; null if there is none, or more than one. Never throws. */
export function hostChipId(stateDir: string, platform: Platform): string | null {
  const [chip, ...others] = reportedChips(stateDir, platform)
  return chip === undefined || others.length > 0 ? null : chip
}

/**
 * Adds the chip of a report. The caller has verified its signature, and that it is of a launch of this host. Throws if
 * the file cannot be read, because it would be replaced.
 */
export function keepReportedChip(stateDir: string, report: Uint8Array): void {
  const chips = readChips(stateDir)
  const chip = toHex(decodeReport(report).chipId)
  if (!chips.includes(chip) && chips.length < chipsMax) write(stateDir, [...chips, chip])
}

/** Leaves this chip alone, which the operator has named. */
export function nameChip(stateDir: string, chip: string): void {
  write(stateDir, [chip])
}

function write(stateDir: string, chips: readonly string[]): void {
  writeFileAtomic(fileOf(stateDir), `${chips.join('\n')}\n`, { mode: 0o644 })
}
