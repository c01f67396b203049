// Evidence as protobuf messages of go-sev-guest (proto/sevsnp.proto: Attestation, or its Report alone). Pure; throws
// Malformed. Reassembles the report from its fields; its signature proves that it is the same.

import { Malformed, wellFormed } from '../../attest/malformed.ts'
import type { FieldName } from '../../attest/report/report.ts'
import { bareReport, type ReportEvidence } from './evidence.ts'
import { type FieldValues, reportOf } from './report-fields.ts'

/** Reads a message. Null if the bytes are neither message. Throws Malformed if they are, but a field is invalid. */
export function protobufEvidence(bytes: Uint8Array): ReportEvidence | null {
  if (bytes[0] === tag(1, 'bytes')) return attestationOf(bytes)
  if (bytes[0] === tag(1, 'varint')) return bareReport(reportOfMessage(bytes), 'a Report message of go-sev-guest')
  return null
}

function attestationOf(bytes: Uint8Array): ReportEvidence {
  const message = readMessage(bytes)
  const report = message.get(ATTESTATION.report)
  wellFormed(report instanceof Uint8Array, 'go-sev-guest attestation: no report')
  const certificates = message.get(ATTESTATION.certificateChain)
  const chain = certificates instanceof Uint8Array ? readMessage(certificates) : new Map<number, bigint | Uint8Array>()
  const certificate = (field: number): Uint8Array[] => {
    const value = chain.get(field)
    return value instanceof Uint8Array && value.length > 0 ? [value] : []
  }
  return {
    ...bareReport(reportOfMessage(report), 'an Attestation message of go-sev-guest'),
    vek: [...certificate(CHAIN.vcek), ...certificate(CHAIN.vlek)][0] ?? null,
    chain: [...certificate(CHAIN.ask), ...certificate(CHAIN.ark)],
  }
}

const ATTESTATION = { report: 1, certificateChain: 2 } as const
const CHAIN = { vcek: 1, vlek: 6, ask: 2, ark: 3 } as const

/** Numbers of the message's fields. `signature` and `cpuid1eax_fms` are decoded below. */
const FIELD_NUMBERS = {
  version: 1,
  guestSvn: 2,
  policy: 3,
  familyId: 4,
  imageId: 5,
  vmpl: 6,
  signatureAlgo: 7,
  currentTcb: 8,
  platformInfo: 9,
  keyInfo: 10,
  reportData: 11,
  measurement: 12,
  hostData: 13,
  idKeyDigest: 14,
  authorKeyDigest: 15,
  reportId: 16,
  reportIdMa: 17,
  reportedTcb: 18,
  chipId: 19,
  committedTcb: 20,
  currentBuild: 21,
  currentMinor: 22,
  currentMajor: 23,
  committedBuild: 24,
  committedMinor: 25,
  committedMajor: 26,
  launchTcb: 27,
  launchMitigation: 30,
  currentMitigation: 31,
} as const satisfies Partial<Record<FieldName, number>>
const SPLIT = { signature: 28, cpuid: 29 } as const

function reportOfMessage(bytes: Uint8Array): Uint8Array {
  const message = readMessage(bytes)
  const values: FieldValues = {}
  for (const [field, number] of Object.entries(FIELD_NUMBERS)) values[field as FieldName] = message.get(number)
  const signature = message.get(SPLIT.signature)
  const cpuid = message.get(SPLIT.cpuid)
  return reportOf({ ...values, ...cpuidFields(typeof cpuid === 'bigint' ? Number(cpuid) : 0) }, signatureOf(signature))
}

const signatureBytes = 512

function signatureOf(value: bigint | Uint8Array | undefined): Uint8Array {
  wellFormed(value instanceof Uint8Array && value.length === signatureBytes, 'go-sev-guest report: no signature')
  return value
}

/** Splits CPUID leaf 1, EAX (AMD 24594), into base and extended values; the report already contains their sum. */
function cpuidFields(eax: number): FieldValues {
  const bits = (from: number, count: number) => BigInt((eax >>> from) & ((1 << count) - 1))
  return {
    cpuidFamily: bits(8, 4) + bits(20, 8),
    cpuidModel: bits(16, 4) * 16n + bits(4, 4),
    cpuidStepping: bits(0, 4),
  }
}

type WireType = 'varint' | 'bytes'
const WIRE: Readonly<Record<WireType, number>> = { varint: 0, bytes: 2 }

function tag(field: number, type: WireType): number {
  return field * 8 + WIRE[type]
}

const fieldsMax = 256

/** Returns the last value of each field. Throws Malformed for wire types that these messages do not use. */
function readMessage(bytes: Uint8Array): ReadonlyMap<number, bigint | Uint8Array> {
  const found = new Map<number, bigint | Uint8Array>()
  let at = 0
  const varint = (): bigint => {
    let value = 0n
    for (let shift = 0n; shift < 70n; shift += 7n) {
      const byte = bytes[at]
      wellFormed(byte !== undefined, 'protobuf: it ends within a number')
      at += 1
      value |= BigInt(byte & 0x7f) << shift
      if (byte < 0x80) return BigInt.asUintN(64, value)
    }
    throw new Malformed('protobuf: a number of more than ten bytes')
  }
  for (let count = 0; at < bytes.length; count += 1) {
    wellFormed(count < fieldsMax, `protobuf: more than ${fieldsMax} fields`)
    const key = varint()
    const [field, type] = [Number(key >> 3n), Number(key & 7n)]
    if (type === WIRE.varint) found.set(field, varint())
    else {
      wellFormed(type === WIRE.bytes, `protobuf: field ${field} has the wire type ${type}`)
      const length = Number(varint())
      wellFormed(length <= bytes.length - at, `protobuf: field ${field} ends after the message`)
      found.set(field, bytes.slice(at, at + length))
      at += length
    }
  }
  return found
}
