// The suite's input: reads test/vectors, and simulates once what all runtimes then verify. Reads files.

import { resolve } from 'node:path'
import { PRODUCTS, type Product } from '../../../src/attest/amd/product.ts'
import { issueSimulatedCrl } from '../../../src/attest/simulator/certificates.ts'
import { decodeCertificate } from '../../../src/attest/x509/certificate.ts'
import { toBase64 } from '../../../src/base/bytes.ts'
import { kinds, sampleReceipt } from '../receipt-samples.ts'
import { simulatedPlatform } from '../simulated-platform.ts'
import type { SimulatedVectors, SuiteInput } from './input.ts'

const folder = resolve(import.meta.dir, '../../vectors')
const patterns = ['reports/*', 'roots/*', 'launch-digest/*', 'ovmf/*', 'igvm/*', 'id-block/*', 'tpm/*']

/** JSON for `runSuite`. */
export async function suiteInput(): Promise<string> {
  const paths = patterns.flatMap(pattern => [...new Bun.Glob(pattern).scanSync({ cwd: folder })]).sort()
  const files = paths.map(async path => [path, toBase64(await Bun.file(resolve(folder, path)).bytes())])
  const authorities = PRODUCTS.map(async product => [product, await simulatedVectors(product)])
  const receipts = kinds.map(async kind => [kind, JSON.stringify(await sampleReceipt(kind))])
  const input: SuiteInput = {
    files: Object.fromEntries(await Promise.all(files)),
    simulated: {
      authorities: Object.fromEntries(await Promise.all(authorities)),
      receipts: Object.fromEntries(await Promise.all(receipts)),
    },
  }
  return JSON.stringify(input)
}

async function simulatedVectors(product: Product): Promise<SimulatedVectors> {
  const { authority, vcek, vlek, report } = await simulatedPlatform(product)
  const { ark, ask, asvk } = authority.root
  const crl = async (revoked: readonly Uint8Array[], month = 11) => {
    const at = new Date(Date.UTC(2026, month - 1, 1))
    const entries = revoked.map(der => ({ serial: decodeCertificate(der).serial, at }))
    const nextUpdate = new Date(Date.UTC(2026, month, 1))
    return toBase64(await issueSimulatedCrl(authority, { thisUpdate: at, nextUpdate, revoked: entries }))
  }
  return {
    ark: toBase64(ark),
    ask: toBase64(ask),
    asvk: toBase64(asvk),
    vcek: toBase64(vcek),
    vlek: toBase64(vlek),
    vcekReport: toBase64(await report()),
    vlekReport: toBase64(await report({ signer: 'vlek' })),
    crls: {
      good: await crl([]),
      revokesAsk: await crl([ask]),
      revokesAsvk: await crl([asvk]),
      old: await crl([], 9),
    },
  }
}
