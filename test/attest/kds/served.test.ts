// The requests that belong to genuine reports. AMD's own service is never asked.

import { expect, test } from 'bun:test'
import { AMD_ROOTS } from '../../../src/attest/amd/roots.ts'
import { decodeVekExtensions } from '../../../src/attest/amd/vek-extensions.ts'
import { derBlocks } from '../../../src/attest/encoding/pem.ts'
import { servedRequests, vcekOfReport } from '../../../src/attest/kds/served.ts'
import { decodeReport } from '../../../src/attest/report/report.ts'
import { decodeCertificate } from '../../../src/attest/x509/certificate.ts'
import { present } from '../../../src/base/assert.ts'
import { toHex } from '../../../src/base/bytes.ts'
import { expectedReports, readReport } from '../../rigs/attest/report-vectors.ts'

const vcekReports = expectedReports.filter(({ signer }) => signer === 'VCEK')

// Goal: the address is of the chip and the TCB that the genuine certificate beside the report certifies, product by
// product.
test.each([...vcekReports])('$report', async ({ report, vek, product, reported_tcb: tcb }) => {
  const bytes = await readReport(report)
  const served = servedRequests(decodeReport(bytes), product)
  const chipId = toHex(bytes.subarray(0x1a0, 0x1a0 + (product === 'turin' ? 8 : 64)))
  const fmc = product === 'turin' ? `fmcSPL=${tcb.fmc}&` : ''
  const name = { milan: 'Milan', genoa: 'Genoa', turin: 'Turin' }[product]
  const levels = `blSPL=${tcb.bl}&teeSPL=${tcb.tee}&snpSPL=${tcb.snp}&ucodeSPL=${tcb.ucode}`
  expect(served).toMatchObject({
    vcek: { path: `/vcek/v1/${name}/${chipId}?${fmc}${levels}` },
    chain: { path: `/vcek/v1/${name}/cert_chain` },
    crl: { path: `/vcek/v1/${name}/crl` },
  })
  const [der] = derBlocks(await readReport(vek), 'CERTIFICATE', vek)
  const { holder, spl } = decodeVekExtensions(decodeCertificate(present(der, vek)).extensions)
  if (holder.kind !== 'vcek') throw new Error('not a VCEK')
  expect([toHex(holder.hwId), spl]).toEqual([chipId, vcekOfReport(decodeReport(bytes), product).tcb])
})

// Goal: each product is among the vectors, and the address of its CRL is the one that AMD's own root names.
test('the products', async () => {
  expect(new Set(vcekReports.map(({ product }) => product))).toEqual(new Set(['milan', 'genoa', 'turin']))
  for (const { product, ark } of AMD_ROOTS) {
    const [der] = derBlocks(ark, 'CERTIFICATE', 'ARK')
    const { report } = present(
      vcekReports.find(item => item.product === product),
      product,
    )
    const { crl } = servedRequests(decodeReport(await readReport(report)), product)
    expect(Buffer.from(present(der, 'ARK')).toString('latin1')).toContain(`https://kdsintf.amd.com${crl.path}`)
  }
})

// Goal: a VLEK has chain and CRL of its own tree and no certificate there; a masked chip has none either.
test('no VCEK', async () => {
  const vlek = servedRequests(decodeReport(await readReport('milan-v3-vlek.bin')), null)
  expect(vlek).toMatchObject({
    vcek: 'the report is not signed by a VCEK (vlek)',
    chain: { path: '/vlek/v1/Milan/cert_chain' },
    crl: { path: '/vlek/v1/Milan/crl' },
  })
  const masked = { ...decodeReport(await readReport('milan-v3.bin')), chipId: new Uint8Array(64) }
  expect(servedRequests(masked, null).vcek).toBe('the report does not name its chip: CHIP_ID is masked')
  expect(() => vcekOfReport(masked, null)).toThrow('CHIP_ID is masked')
})

// Goal: without a product, with another one, or with a TCB of another layout there is no address.
test('no product', async () => {
  const old = decodeReport(await readReport('milan-v2.bin'))
  expect(() => servedRequests(old, null)).toThrow('the product has to be named')
  expect(() => servedRequests(old, 'turin')).toThrow('is reserved on turin')
  const milan = decodeReport(await readReport('milan-v3.bin'))
  expect(() => servedRequests(milan, 'genoa')).toThrow('genoa was named')
})
