// Goal: what Intel's PCS signs about a platform is read member by member, and a member that is missing or of another
// form is refused by name. Members that Intel adds later are let be.

import { describe, expect, test } from 'bun:test'
import { Malformed } from '../../../src/attest/malformed.ts'
import { parseQeIdentity, parseTcbInfo, TCB_STATUSES } from '../../../src/attest/tdx/tcb-info.ts'

const components = (first: number) => [{ svn: first, category: 'BIOS' }, ...new Array(15).fill({ svn: 0 })]
const level = { tcbDate: '2024-03-13T00:00:00Z', tcbStatus: 'UpToDate', advisoryIDs: ['INTEL-SA-01036'] }
const dates = { issueDate: '2025-01-02T03:04:05Z', nextUpdate: '2025-02-01T03:04:05Z', tcbEvaluationDataNumber: 17 }
const signer = { mrsigner: '0A'.repeat(48), attributes: '0b'.repeat(8), attributesMask: 'FF'.repeat(8) }

/** Intel SGX and TDX Provisioning Certification Service, API version 4: Get TDX TCB Info. */
const INFO = {
  ...dates,
  id: 'TDX',
  version: 3,
  fmspc: '00806F050000',
  pceId: '0001',
  tcbType: 0,
  tdxModule: signer,
  tdxModuleIdentities: [{ ...signer, id: 'TDX_03', tcbLevels: [{ ...level, tcb: { isvsvn: 3 } }] }],
  tcbLevels: [
    { ...level, tcb: { sgxtcbcomponents: components(7), pcesvn: 11, tdxtcbcomponents: components(5) } },
    {
      tcbDate: level.tcbDate,
      tcbStatus: 'Revoked',
      tcb: { sgxtcbcomponents: components(255), pcesvn: 65_535, tdxtcbcomponents: components(0) },
    },
  ],
  added: 'later',
}

/** The same: Get TD Quoting Enclave Identity. */
const IDENTITY = {
  ...dates,
  id: 'TD_QE',
  version: 2,
  miscselect: '00000001',
  miscselectMask: 'FFFFFFFF',
  attributes: '11'.repeat(16),
  attributesMask: 'FB'.repeat(16),
  mrsigner: 'DC'.repeat(32),
  isvprodid: 2,
  tcbLevels: [{ ...level, tcb: { isvsvn: 65_535 } }],
}

const filled = (sizeBytes: number, byte: number) => new Uint8Array(sizeBytes).fill(byte)
const times = { issueDate: Date.UTC(2025, 0, 2, 3, 4, 5), nextUpdate: Date.UTC(2025, 1, 1, 3, 4, 5) }
const readLevel = { tcbDate: Date.UTC(2024, 2, 13), tcbStatus: 'UpToDate', advisoryIDs: ['INTEL-SA-01036'] }
const readSigner = { mrsigner: filled(48, 0x0a), attributes: filled(8, 0x0b), attributesMask: filled(8, 0xff) }
const svns = (first: number) => [{ svn: first }, ...new Array(15).fill({ svn: 0 })]

test('goal: every member comes out', () => {
  expect(parseTcbInfo(JSON.stringify(INFO)) as unknown).toEqual({
    ...times,
    tcbEvaluationDataNumber: 17,
    id: 'TDX',
    version: 3,
    fmspc: Uint8Array.of(0, 0x80, 0x6f, 5, 0, 0),
    pceId: Uint8Array.of(0, 1),
    tcbType: 0,
    tdxModule: readSigner,
    tdxModuleIdentities: [{ ...readSigner, id: 'TDX_03', tcbLevels: [{ ...readLevel, tcb: { isvsvn: 3 } }] }],
    tcbLevels: [
      { ...readLevel, tcb: { sgxtcbcomponents: svns(7), pcesvn: 11, tdxtcbcomponents: svns(5) } },
      {
        tcbDate: readLevel.tcbDate,
        tcbStatus: 'Revoked',
        tcb: { sgxtcbcomponents: svns(255), pcesvn: 65_535, tdxtcbcomponents: svns(0) },
      },
    ],
  })
  expect(parseQeIdentity(JSON.stringify(IDENTITY)) as unknown).toEqual({
    ...times,
    tcbEvaluationDataNumber: 17,
    id: 'TD_QE',
    version: 2,
    miscselect: Uint8Array.of(0, 0, 0, 1),
    miscselectMask: filled(4, 0xff),
    attributes: filled(16, 0x11),
    attributesMask: filled(16, 0xfb),
    mrsigner: filled(32, 0xdc),
    isvprodid: 2,
    tcbLevels: [{ ...readLevel, tcb: { isvsvn: 65_535 } }],
  })
  const { tdxModuleIdentities: _, ...without } = INFO
  expect(parseTcbInfo(JSON.stringify(without)).tdxModuleIdentities).toBeUndefined()
})

/** A copy with one member, given by its path, set; `undefined` takes it away. */
function changed(document: object, path: string, value: unknown): string {
  const copy = structuredClone(document)
  const names = path.split('.')
  const last = names.pop() ?? ''
  let at = copy as Record<string, never>
  for (const name of names) at = at[name] ?? ({} as never)
  Object.assign(at, { [last]: value })
  return JSON.stringify(copy)
}

const INFO_MEMBERS = [
  ...['issueDate', 'nextUpdate', 'tcbEvaluationDataNumber', 'id', 'version', 'fmspc', 'pceId', 'tcbType', 'tdxModule'],
  ...['tcbLevels', 'tdxModule.mrsigner', 'tdxModule.attributes', 'tdxModule.attributesMask'],
  ...['mrsigner', 'attributes', 'attributesMask', 'id', 'tcbLevels'].map(name => `tdxModuleIdentities.0.${name}`),
  ...['tcbDate', 'tcbStatus', 'tcb', 'tcb.isvsvn'].map(name => `tdxModuleIdentities.0.tcbLevels.0.${name}`),
  ...['tcbDate', 'tcbStatus', 'tcb'].map(name => `tcbLevels.0.${name}`),
  ...['sgxtcbcomponents', 'pcesvn', 'tdxtcbcomponents', 'sgxtcbcomponents.3.svn'].map(
    name => `tcbLevels.0.tcb.${name}`,
  ),
]
const IDENTITY_MEMBERS = [
  ...['issueDate', 'nextUpdate', 'tcbEvaluationDataNumber', 'id', 'version', 'miscselect', 'miscselectMask'],
  ...['attributes', 'attributesMask', 'mrsigner', 'isvprodid', 'tcbLevels', 'tcbLevels.0.tcb.isvsvn'],
]

describe('refused', () => {
  // Goal: no member may be left out.
  test.each(INFO_MEMBERS)('TCB info without %s', path => {
    const name = path.split('.').at(-1)
    expect(() => parseTcbInfo(changed(INFO, path, undefined))).toThrow(`: no ${name}`)
  })

  // Goal: no member may be left out.
  test.each(IDENTITY_MEMBERS)('a QE identity without %s', path => {
    const name = path.split('.').at(-1)
    expect(() => parseQeIdentity(changed(IDENTITY, path, undefined))).toThrow(`: no ${name}`)
  })

  // Goal: each value of another form, one beyond its end among them.
  const sgx = 'tcbLevels.0.tcb.sgxtcbcomponents'
  // Goal: a member of another form is refused by its name.
  test.each<[string, unknown, string]>([
    ['id', 'SGX', 'TCB info.id is "SGX", not TDX'],
    ['version', 2, 'TCB info.version: not 3'],
    ['version', 4, 'TCB info.version: not 3'],
    ['tcbType', 1, 'TCB info.tcbType: not 0'],
    ['fmspc', '00806F0500', 'TCB info.fmspc: not 6 bytes in hexadecimal'],
    ['fmspc', '00806F05000000', 'TCB info.fmspc: not 6 bytes in hexadecimal'],
    ['fmspc', '00806F05000g', 'TCB info.fmspc: not 6 bytes in hexadecimal'],
    ['pceId', '000001', 'TCB info.pceId: not 2 bytes in hexadecimal'],
    ['tdxModule.mrsigner', 'aa'.repeat(47), 'TCB info.tdxModule.mrsigner: not 48 bytes'],
    ['tdxModule.attributes', 'aa'.repeat(9), 'TCB info.tdxModule.attributes: not 8 bytes'],
    ['tdxModule.attributesMask', 'aa'.repeat(9), 'TCB info.tdxModule.attributesMask: not 8 bytes'],
    ['issueDate', 1_735_787_045_000, 'TCB info.issueDate: not a time in UTC'],
    ['issueDate', '2025-01-02T03:04:05+00:00', 'TCB info.issueDate: not a time in UTC'],
    ['nextUpdate', '2025-13-02T03:04:05Z', 'TCB info.nextUpdate: not a time in UTC'],
    ['tcbEvaluationDataNumber', -1, 'TCB info.tcbEvaluationDataNumber: no count'],
    ['tcbLevels', [], 'TCB info.tcbLevels: not a list of 1 to 256'],
    ['tcbLevels', {}, 'TCB info.tcbLevels: not a list of 1 to 256'],
    ['tcbLevels', new Array(257).fill(INFO.tcbLevels[0]), 'TCB info.tcbLevels: not a list of 1 to 256'],
    ['tcbLevels.0.tcbStatus', 'Unknown', 'TCB info.tcbLevels[0].tcbStatus: not a known TCB status'],
    ['tcbLevels.0.advisoryIDs', ['intel'], 'TCB info.tcbLevels[0].advisoryIDs[0]: not an advisory id'],
    ['tcbLevels.0.advisoryIDs', ['A'.repeat(65)], 'advisoryIDs[0]: not an advisory id'],
    ['tcbLevels.0.advisoryIDs', new Array(513).fill('A'), 'advisoryIDs: not a list of 0 to 512'],
    ['tcbLevels.0.tcb.pcesvn', 65_536, 'tcb.pcesvn: more than 65535'],
    [sgx, components(0).slice(1), 'sgxtcbcomponents: not a list of 16 to 16'],
    [sgx, [...components(0), { svn: 0 }], 'sgxtcbcomponents: not a list of 16 to 16'],
    [`${sgx}.0.svn`, 256, 'sgxtcbcomponents[0].svn: more than 255'],
    [`${sgx}.0.svn`, -1, 'sgxtcbcomponents[0].svn: no count'],
    ['tcbLevels.0.tcb.tdxtcbcomponents.1.svn', 256, 'tdxtcbcomponents[1].svn: more than 255'],
    ['tdxModuleIdentities', new Array(65).fill(INFO.tdxModuleIdentities[0]), 'not a list of 0 to 64'],
    ['tdxModuleIdentities.0.tcbLevels', [], 'tcbLevels: not a list of 1 to 256'],
    ['tdxModuleIdentities.0.tcbLevels.0.tcb.isvsvn', 65_536, 'isvsvn: more than 65535'],
  ])('TCB info with %s %j', (path, value, message) => {
    expect(() => parseTcbInfo(changed(INFO, path, value))).toThrow(message)
    expect(() => parseTcbInfo(changed(INFO, path, value))).toThrow(Malformed)
  })

  // Goal: a member of another form is refused by its name.
  test.each<[string, unknown, string]>([
    ['id', 'QE', 'QE identity.id is "QE", not TD_QE'],
    ['version', 3, 'QE identity.version: not 2'],
    ['miscselect', '0000000001', 'QE identity.miscselect: not 4 bytes'],
    ['miscselectMask', 'ffffff', 'QE identity.miscselectMask: not 4 bytes'],
    ['attributes', '11'.repeat(15), 'QE identity.attributes: not 16 bytes'],
    ['attributesMask', '11'.repeat(17), 'QE identity.attributesMask: not 16 bytes'],
    ['mrsigner', 'dc'.repeat(48), 'QE identity.mrsigner: not 32 bytes'],
    ['isvprodid', 65_536, 'QE identity.isvprodid: more than 65535'],
    ['tcbLevels.0.tcb.isvsvn', 65_536, 'isvsvn: more than 65535'],
  ])('a QE identity with %s %j', (path, value, message) => {
    expect(() => parseQeIdentity(changed(IDENTITY, path, value))).toThrow(message)
  })
})

test('goal: the ends of what is allowed', () => {
  const read = (path: string, value: unknown) => parseTcbInfo(changed(INFO, path, value))
  expect(read('tcbLevels', new Array(256).fill(INFO.tcbLevels[0])).tcbLevels.length).toBe(256)
  expect(read('tcbLevels', [INFO.tcbLevels[1]]).tcbLevels.length).toBe(1)
  expect(read('tcbLevels.0.advisoryIDs', new Array(512).fill('A'.repeat(64))).tcbLevels[0]?.advisoryIDs?.length).toBe(
    512,
  )
  expect(read('tcbLevels.0.advisoryIDs', []).tcbLevels[0]?.advisoryIDs).toEqual([])
  expect(read('tdxModuleIdentities', []).tdxModuleIdentities).toEqual([])
  expect(read('tdxModuleIdentities', new Array(64).fill(INFO.tdxModuleIdentities[0])).tdxModuleIdentities?.length).toBe(
    64,
  )
  expect(parseQeIdentity(changed(IDENTITY, 'isvprodid', 65_535)).isvprodid).toBe(65_535)
})

test('goal: every status of the PCS, best first', () => {
  expect([...TCB_STATUSES]).toEqual([
    ...(['UpToDate', 'SWHardeningNeeded', 'ConfigurationNeeded', 'ConfigurationAndSWHardeningNeeded'] as const),
    ...(['OutOfDate', 'OutOfDateConfigurationNeeded', 'Revoked'] as const),
  ])
  for (const status of TCB_STATUSES)
    expect(parseTcbInfo(changed(INFO, 'tcbLevels.0.tcbStatus', status)).tcbLevels[0]?.tcbStatus).toBe(status)
})
