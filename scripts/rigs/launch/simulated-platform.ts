// A simulated platform for tests, with an authority for each product. All of them have the same keys, of 2048 bits, out
// of a file (simulated-keys.ts).

import { PRODUCTS, type Product } from '../../../src/attest/amd/product.ts'
import type { Tcb } from '../../../src/attest/amd/tcb.ts'
import type { ReportVersion } from '../../../src/attest/report/report.ts'
import {
  createSimulatedAuthority,
  issueSimulatedVcek,
  issueSimulatedVlek,
  type SimulatedAuthority,
} from '../../../src/attest/simulator/certificates.ts'
import { SIMULATED_VEK_ALGORITHM } from '../../../src/attest/simulator/keys.ts'
import { type SimulatedReport, simulateReport } from '../../../src/attest/simulator/report.ts'
import { simulatedKeys } from './simulated-keys.ts'

export const authorityValidity = {
  notBefore: new Date('2026-01-01T00:00:00Z'),
  notAfter: new Date('2051-01-01T00:00:00Z'),
}
export const vekValidity = {
  notBefore: new Date('2026-06-01T00:00:00Z'),
  notAfter: new Date('2027-06-01T00:00:00Z'),
}
/** A time at which all of it is valid. */
export const simulatedAsOf = new Date('2026-11-20T12:00:00Z')

export const SIMULATED_TCBS = {
  milan: { fmc: null, bootloader: 4, tee: 0, snp: 24, microcode: 219 },
  genoa: { fmc: null, bootloader: 10, tee: 0, snp: 27, microcode: 88 },
  turin: { fmc: 1, bootloader: 2, tee: 3, snp: 4, microcode: 200 },
} as const satisfies Record<Product, Tcb>

const turinChipBytes = 8

/** 64 bytes; Turin's has 8 that say something. */
export function chipIdOf(product: Product): Uint8Array {
  return Uint8Array.from({ length: 64 }, (_, at) => (product === 'turin' && at >= turinChipBytes ? 0 : at + 1))
}

export type SimulatedPlatform = {
  readonly authority: SimulatedAuthority
  readonly vcek: Uint8Array
  readonly vlek: Uint8Array
  /** A report that this platform's VCEK, or VLEK, has signed. */
  readonly report: (wanted?: Partial<SimulatedReport>) => Promise<Uint8Array>
}

const platforms = new Map<Product, Promise<SimulatedPlatform>>()

export function simulatedPlatform(product: Product): Promise<SimulatedPlatform> {
  const made = platforms.get(product) ?? makePlatform(product)
  platforms.set(product, made)
  return made
}

export async function simulatedPlatforms(): Promise<SimulatedPlatform[]> {
  return await Promise.all(PRODUCTS.map(simulatedPlatform))
}

export async function makeVekKey(): Promise<CryptoKeyPair> {
  return await crypto.subtle.generateKey(SIMULATED_VEK_ALGORITHM, true, ['sign', 'verify'])
}

async function makePlatform(product: Product): Promise<SimulatedPlatform> {
  const authority = await createSimulatedAuthority(product, await simulatedKeys(), authorityValidity)
  const tcb = SIMULATED_TCBS[product]
  const chipId = chipIdOf(product)
  return {
    authority,
    vcek: await issueSimulatedVcek(authority, { tcb, chipId, validity: vekValidity }),
    vlek: await issueSimulatedVlek(authority, { tcb, cspId: 'CN=simulated.invalid', validity: vekValidity }),
    report: async (wanted = {}) => {
      const version: ReportVersion = product === 'turin' ? 5 : 3
      const report: SimulatedReport = {
        product,
        version,
        tcb,
        signer: 'vcek',
        chipId,
        reportData: new Uint8Array(64).fill(7),
        measurement: new Uint8Array(48).fill(9),
        ...wanted,
      }
      return await simulateReport(report, authority.keys[report.signer].privateKey)
    },
  }
}
