// The guest's few TPM 2.0 commands and their responses, byte for byte. Pure. TCG TPM 2.0 Library: Part 3 (commands),
// Part 1 section 18 (command structure), Part 2 section 6 (constants). Big-endian.

import { reader } from '../../attest/encoding/reader.ts'
import { Malformed, wellFormed } from '../../attest/malformed.ts'
import { ALGORITHM, BANKS, CURVES } from '../../attest/tpm/algorithm.ts'
import { ATTRIBUTES } from '../../attest/tpm/public-area.ts'
import { concat, fromHex } from '../../base/bytes.ts'

/** Part 2, section 6.5.2. */
const COMMANDS = {
  startup: 0x144,
  createPrimary: 0x131,
  activateCredential: 0x147,
  policySecret: 0x151,
  quote: 0x158,
  flushContext: 0x165,
  startAuthSession: 0x176,
  pcrRead: 0x17e,
  pcrExtend: 0x182,
} as const
const TAG = { sessions: 0x8002, noSessions: 0x8001 } as const
const HANDLE = { endorsement: 0x4000000b, null: 0x40000007, password: 0x40000009 } as const

/** The largest command or response of a PC client's TPM. */
export const tpmMessageBytesMax = 4096
const headBytes = 10

/** Transient codes (Part 2, section 6.6.3): TPM_RC_YIELDED, TESTING, RETRY. */
export const retryCodes: ReadonlySet<number> = new Set([0x908, 0x90a, 0x922])

/** An attestation key from the TPM's seed, always the same: P-256, signs only the TPM's own structures. */
export function createPrimary(): Uint8Array {
  const set = ['fixedTPM', 'fixedParent', 'sensitiveDataOrigin', 'userWithAuth', 'noDA', 'restricted', 'sign'] as const
  const area = concat(
    ...[u16(ALGORITHM.ecc), u16(BANKS['SHA-256'].id), u32(set.reduce((sum, kind) => sum + 2 ** ATTRIBUTES[kind], 0))],
    ...[sized(new Uint8Array(0)), u16(ALGORITHM.null), u16(ALGORITHM.ecdsa), u16(BANKS['SHA-256'].id)],
    ...[u16(CURVES['P-256'].id), u16(ALGORITHM.null), u16(0), u16(0)],
  )
  return createOf(area)
}

/** TPM2_PolicySecret of the endorsement hierarchy: EK Credential Profile 2.5, section B.6.2, PolicyA with SHA-256. */
const policyA = fromHex('837197674484b3f81a90cc8d46a5d724fd52d76e06520b64f2a1da1b331469aa') ?? new Uint8Array(0)

/** The endorsement key of template L-1 (EK Credential Profile 2.5, B.3.3): always the same, also for an SVSM. */
export function createEndorsementKey(): Uint8Array {
  const bound = ['fixedTPM', 'fixedParent', 'sensitiveDataOrigin', 'adminWithPolicy', 'restricted'] as const
  const set = [...bound, 'decrypt'] as const
  const area = concat(
    ...[u16(ALGORITHM.rsa), u16(BANKS['SHA-256'].id), u32(set.reduce((sum, kind) => sum + 2 ** ATTRIBUTES[kind], 0))],
    ...[sized(policyA), u16(ALGORITHM.aes), u16(128), u16(ALGORITHM.cfb), u16(ALGORITHM.null)],
    ...[u16(2048), u32(0), sized(new Uint8Array(256))],
  )
  return createOf(area)
}

/** In the endorsement hierarchy, without a secret of ours. */
function createOf(area: Uint8Array): Uint8Array {
  const noSensitive = sized(concat(u16(0), u16(0)))
  const parameters = concat(noSensitive, sized(area), u16(0), u32(0))
  return command(COMMANDS.createPrimary, { handle: HANDLE.endorsement, parameters })
}

/** A policy session with SHA-256. It keys and encrypts nothing, so any nonce is valid. */
export function startPolicySession(): Uint8Array {
  const nonce = sized(new Uint8Array(16))
  const kind = concat(Uint8Array.of(1), u16(ALGORITHM.null), u16(BANKS['SHA-256'].id))
  const parameters = concat(u32(HANDLE.null), u32(HANDLE.null), nonce, u16(0), kind)
  return command(COMMANDS.startAuthSession, { parameters })
}

export function readSession(response: Uint8Array): number {
  return bodyOf(response, 'TPM2_StartAuthSession').u32()
}

/** Satisfies an endorsement key's policy: the empty password of the endorsement hierarchy. */
export function policySecret(session: number): Uint8Array {
  const parameters = concat(u16(0), u16(0), u16(0), u32(0))
  return command(COMMANDS.policySecret, { handles: [HANDLE.endorsement, session], parameters })
}

type ActivationHandles = { readonly key: number; readonly endorsementKey: number; readonly session: number }

/** `credential`: TPM2B_ID_OBJECT and TPM2B_ENCRYPTED_SECRET. */
export function activateCredential(handles: ActivationHandles, credential: Uint8Array): Uint8Array {
  return command(COMMANDS.activateCredential, {
    handles: [handles.key, handles.endorsementKey],
    sessions: [HANDLE.password, handles.session],
    parameters: credential,
  })
}

export function readActivated(response: Uint8Array): Uint8Array {
  const read = bodyOf(response, 'TPM2_ActivateCredential')
  read.u32() // size of the parameters
  return read.sized(64)
}

/** The key's handle and its TPMT_PUBLIC. */
export function readPrimary(response: Uint8Array): { readonly handle: number; readonly area: Uint8Array } {
  const read = bodyOf(response, 'TPM2_CreatePrimary')
  const handle = read.u32()
  read.u32() // size of the parameters
  return { handle, area: read.sized(1024) }
}

/** Over these PCRs of the SHA-256 bank. */
export function quote(handle: number, { nonce, pcrs }: { nonce: Uint8Array; pcrs: readonly number[] }): Uint8Array {
  const parameters = concat(sized(nonce), u16(ALGORITHM.null), selection(pcrs))
  return command(COMMANDS.quote, { handle, parameters })
}

/** TPMS_ATTEST and TPMT_SIGNATURE. */
export function readQuote(response: Uint8Array): { readonly quote: Uint8Array; readonly signature: Uint8Array } {
  const read = bodyOf(response, 'TPM2_Quote')
  const sizeBytes = read.u32()
  const before = read.left()
  const attested = read.sized(1024)
  const used = before - read.left()
  wellFormed(sizeBytes >= used && sizeBytes <= before, 'TPM2_Quote: size of the parameters')
  return { quote: attested, signature: read.bytes(sizeBytes - used) }
}

export function pcrRead(pcrs: readonly number[]): Uint8Array {
  return command(COMMANDS.pcrRead, { parameters: selection(pcrs) })
}

/** The values in ascending order of the PCRs, all of which must be there. */
export function readPcrs(response: Uint8Array, pcrs: readonly number[]): ReadonlyMap<number, Uint8Array> {
  const what = 'TPM2_PCR_Read'
  const read = bodyOf(response, what)
  read.u32() // update counter
  const asked = selection(pcrs)
  const given = read.bytes(asked.length)
  wellFormed(
    given.every((byte, at) => byte === asked[at]),
    `${what}: other PCRs than the requested ones`,
  )
  wellFormed(read.u32() === pcrs.length, `${what}: number of values`)
  const ascending = [...pcrs].sort((a, b) => a - b)
  const values = ascending.map((pcr): [number, Uint8Array] => {
    const value = read.sized(BANKS['SHA-256'].sizeBytes)
    wellFormed(value.length === BANKS['SHA-256'].sizeBytes, `${what}: a value of ${value.length} bytes`)
    return [pcr, value]
  })
  read.end()
  return new Map(values)
}

/** In the SHA-256 bank. */
export function pcrExtend(pcr: number, digest: Uint8Array): Uint8Array {
  const parameters = concat(u32(1), u16(BANKS['SHA-256'].id), digest)
  return command(COMMANDS.pcrExtend, { handle: pcr, parameters })
}

export function flushContext(handle: number): Uint8Array {
  return command(COMMANDS.flushContext, { parameters: u32(handle) })
}

/** TPM_SU_CLEAR, for tests on a TPM without a kernel, which would have sent it. */
export function startup(): Uint8Array {
  return command(COMMANDS.startup, { parameters: u16(0) })
}

/** TPM_RC; 0 is success. Throws Malformed if the response or its length is wrong. */
export function responseCode(response: Uint8Array): number {
  const read = reader(response, 'tpm response')
  const tag = read.u16()
  wellFormed(tag === TAG.sessions || tag === TAG.noSessions || tag === 0x00c4, 'tpm response: tag')
  wellFormed(read.u32() === response.length, 'tpm response: length')
  return read.u32()
}

function bodyOf(response: Uint8Array, what: string) {
  const code = responseCode(response)
  if (code !== 0) throw new Malformed(`${what}: TPM_RC 0x${code.toString(16)}`)
  return reader(response.subarray(headBytes), what)
}

type CommandParts = {
  readonly handle?: number
  readonly handles?: readonly number[]
  /** Without secrets: the empty password, or a satisfied policy session (Part 1, sections 19.4 and 19.7). */
  readonly sessions?: readonly number[]
  readonly parameters: Uint8Array
}

/** The empty password authorizes the handle, unless sessions are given. */
function command(code: number, parts: CommandParts): Uint8Array {
  const { handle, handles = handle === undefined ? [] : [handle], sessions = [HANDLE.password], parameters } = parts
  // continueSession: the session stays open for its creator to end.
  const authorization = concat(
    ...sessions.map(session => concat(u32(session), u16(0), Uint8Array.of(flagsOf(session)), u16(0))),
  )
  const rest =
    handles.length === 0
      ? parameters
      : concat(...handles.map(u32), u32(authorization.length), authorization, parameters)
  const tag = handles.length === 0 ? TAG.noSessions : TAG.sessions
  return concat(u16(tag), u32(headBytes + rest.length), u32(code), rest)
}

function flagsOf(session: number): number {
  return session === HANDLE.password ? 0 : 1
}

/** TPML_PCR_SELECTION of one bank, 24 PCRs. */
function selection(pcrs: readonly number[]): Uint8Array {
  const bitmap = new Uint8Array(3)
  for (const pcr of pcrs) bitmap[pcr >> 3] = (bitmap[pcr >> 3] ?? 0) | (1 << (pcr & 7))
  return concat(u32(1), u16(BANKS['SHA-256'].id), Uint8Array.of(bitmap.length), bitmap)
}

function u16(value: number): Uint8Array {
  return Uint8Array.of(value >> 8, value & 0xff)
}

function u32(value: number): Uint8Array {
  return concat(u16(value >>> 16), u16(value & 0xffff))
}

function sized(bytes: Uint8Array): Uint8Array {
  return concat(u16(bytes.length), bytes)
}
