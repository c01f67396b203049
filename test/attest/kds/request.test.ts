// The requests to the key distribution service, and the names under which its responses are kept.

import { expect, test } from 'bun:test'
import { chipIdOf, SIMULATED_TCBS } from '../../../scripts/rigs/launch/simulated-platform.ts'
import { chainRequest, crlRequest, retryAfterMs, vcekRequest } from '../../../src/attest/kds/request.ts'

const product = 'genoa'
const wanted = { product, chipId: chipIdOf(product), tcb: SIMULATED_TCBS[product] } as const
const newer = { ...wanted, tcb: { ...wanted.tcb, microcode: 90 } }

test('addresses', () => {
  // Goal: path, parameters and their order are AMD's; Turin adds the FMC and takes 8 bytes of the chip's ID.
  const hwId = Array.from({ length: 64 }, (_, at) => (at + 1).toString(16).padStart(2, '0')).join('')
  expect(vcekRequest(wanted).path).toBe(`/vcek/v1/Genoa/${hwId}?blSPL=10&teeSPL=0&snpSPL=27&ucodeSPL=88`)
  const turin = { product: 'turin', chipId: chipIdOf('turin'), tcb: SIMULATED_TCBS.turin } as const
  expect(vcekRequest(turin)).toEqual({
    path: '/vcek/v1/Turin/0102030405060708?fmcSPL=1&blSPL=2&teeSPL=3&snpSPL=4&ucodeSPL=200',
    file: 'vcek-turin-0102030405060708-1.2.3.4.200.der',
    bodyBytesMax: 16 * 1024,
  })
  expect(chainRequest('milan', 'vcek').path).toBe('/vcek/v1/Milan/cert_chain')
  expect(chainRequest('milan', 'vlek').path).toBe('/vlek/v1/Milan/cert_chain')
  expect(crlRequest('turin', 'vlek').path).toBe('/vlek/v1/Turin/crl')
  expect(() => vcekRequest({ ...wanted, chipId: new Uint8Array(8) })).toThrow('invariant')
  expect(() => vcekRequest({ ...wanted, tcb: SIMULATED_TCBS.turin })).toThrow('invariant')
})

test('names of kept files', () => {
  // Goal: no two chips, levels or trees share a file, and none leaves the directory.
  const other = { ...wanted, chipId: wanted.chipId.with(0, 0xff) }
  const requests = [vcekRequest(wanted), vcekRequest(other), vcekRequest(newer)]
  const more = (['vcek', 'vlek'] as const).flatMap(kind => [chainRequest(product, kind), crlRequest(product, kind)])
  const files = [...requests, ...more].map(request => request.file)
  expect(new Set(files).size).toBe(files.length)
  for (const file of files) expect(file).toMatch(/^[a-z0-9.-]{1,200}$/)
})

test('Retry-After', () => {
  // Goal: seconds and dates are understood, anything else is not.
  const nowMs = Date.UTC(2026, 10, 20, 12)
  expect(retryAfterMs('7', nowMs)).toBe(7000)
  expect(retryAfterMs('Fri, 20 Nov 2026 12:00:30 GMT', nowMs)).toBe(30_000)
  expect(retryAfterMs('Fri, 20 Nov 2026 11:00:00 GMT', nowMs)).toBe(0)
  for (const text of [null, '', 'soon', '-1x']) expect(retryAfterMs(text, nowMs)).toBeNull()
})
