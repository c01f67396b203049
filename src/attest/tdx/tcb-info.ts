// TCB info and QE identity: the signed JSON of Intel's PCS, API version 4. Pure; throws Malformed. tcb-level.ts decides
// whether a platform meets them. Unknown members are ignored, because Intel adds some.

import { fromHex, utf8 } from '../../base/bytes.ts'
import { parsedJson } from '../encoding/json.ts'
import { wellFormed } from '../malformed.ts'
import { count, exactly, listOf, optional, partly, type ReadBy, type Reader, text } from '../provenance/fields.ts'
import { sgxComponentCount } from './pck-extension.ts'

/** Statuses, best first. */
export const TCB_STATUSES = [
  'UpToDate',
  'SWHardeningNeeded',
  'ConfigurationNeeded',
  'ConfigurationAndSWHardeningNeeded',
  'OutOfDate',
  'OutOfDateConfigurationNeeded',
  'Revoked',
] as const

export type TcbStatus = (typeof TCB_STATUSES)[number]

const levelsMax = 256
const advisoriesMax = 512

const status: Reader<TcbStatus> = (value, what) => {
  const found = TCB_STATUSES.find(known => known === value)
  wellFormed(found !== undefined, `${what}: not a known TCB status`)
  return found
}

const time: Reader<number> = (value, what) => {
  const isTime = typeof value === 'string' && /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z$/.test(value)
  const ms = isTime ? Date.parse(value) : Number.NaN
  wellFormed(Number.isFinite(ms), `${what}: not a time in UTC`)
  return ms
}

const advisory: Reader<string> = (value, what) => {
  const id = text(value, what)
  wellFormed(/^[A-Z0-9-]{1,64}$/.test(id), `${what}: not an advisory id`)
  return id
}

function hex(sizeBytes: number): Reader<Uint8Array> {
  return (value, what) => {
    const bytes = fromHex(text(value, what).toLowerCase())
    wellFormed(bytes?.length === sizeBytes, `${what}: not ${sizeBytes} bytes in hexadecimal`)
    return bytes
  }
}

function atMost<T>(max: number, read: Reader<T>, least = 0): Reader<readonly T[]> {
  return (value, what) => {
    const fits = Array.isArray(value) && value.length >= least && value.length <= max
    wellFormed(fits, `${what}: not a list of ${least} to ${max}`)
    return listOf(read)(value, what)
  }
}

function upTo(max: number): Reader<number> {
  return (value, what) => {
    const number = count(value, what)
    wellFormed(number <= max, `${what}: more than ${max}`)
    return number
  }
}

const component = partly({ svn: upTo(255) })
const components = atMost(sgxComponentCount, component, sgxComponentCount)
const level = { tcbDate: time, tcbStatus: status, advisoryIDs: optional(atMost(advisoriesMax, advisory)) }
const svnLevel = partly({ ...level, tcb: partly({ isvsvn: upTo(0xffff) }) })
const levels = atMost(levelsMax, svnLevel, 1)
const moduleSigner = { mrsigner: hex(48), attributes: hex(8), attributesMask: hex(8) }
const dated = { issueDate: time, nextUpdate: time, tcbEvaluationDataNumber: count }

const readTcbInfo = partly({
  ...dated,
  id: exactly('TDX'),
  version: only(3),
  fmspc: hex(6),
  pceId: hex(2),
  tcbType: only(0),
  tdxModule: partly(moduleSigner),
  tdxModuleIdentities: optional(atMost(64, partly({ ...moduleSigner, id: text, tcbLevels: levels }))),
  tcbLevels: atMost(
    levelsMax,
    partly({
      ...level,
      tcb: partly({ sgxtcbcomponents: components, pcesvn: upTo(0xffff), tdxtcbcomponents: components }),
    }),
    1,
  ),
})

const readQeIdentity = partly({
  ...dated,
  id: exactly('TD_QE'),
  version: only(2),
  miscselect: hex(4),
  miscselectMask: hex(4),
  attributes: hex(16),
  attributesMask: hex(16),
  mrsigner: hex(32),
  isvprodid: upTo(0xffff),
  tcbLevels: levels,
})

export type TcbInfo = ReadBy<typeof readTcbInfo>
export type QeIdentity = ReadBy<typeof readQeIdentity>
/** Level of a TDX module or of the quoting enclave. */
export type SvnLevel = ReadBy<typeof svnLevel>

export function parseTcbInfo(json: string): TcbInfo {
  return readTcbInfo(parsedJson('TCB info', utf8(json)), 'TCB info')
}

export function parseQeIdentity(json: string): QeIdentity {
  return readQeIdentity(parsedJson('QE identity', utf8(json)), 'QE identity')
}

function only(expected: number): Reader<number> {
  return (value, what) => {
    wellFormed(value === expected, `${what}: not ${expected}`)
    return expected
  }
}
