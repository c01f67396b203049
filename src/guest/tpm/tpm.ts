// TPM evidence of this VM: measures once per boot, then quotes on request. Effects: the TPM, and the SVSM if any.
//
// Credentials are activated for the agent's own attestation key alone: the TPM refuses those for another name (TPM 2.0
// Library, Part 3).

import { encodeTpmEvidence, GUEST_PCRS, svsmNonceOf } from '../../attest/tpm/evidence.ts'
import { activationProof } from '../../attest/tpm/make-credential.ts'
import type { Clock } from '../../base/clock.ts'
import { messageOf } from '../../base/fault.ts'
import type { Logger } from '../../base/log.ts'
import { createSerial } from '../../base/work/serial.ts'
import {
  activateCredential,
  createEndorsementKey,
  createPrimary,
  flushContext,
  pcrExtend,
  pcrRead,
  policySecret,
  quote,
  readActivated,
  readPcrs,
  readPrimary,
  readQuote,
  readSession,
  responseCode,
  retryCodes,
  startPolicySession,
} from './command.codec.ts'
import type { TpmDevice, Transmit } from './device.ts'
import { encodeEventLog, eventsOf, type Measured } from './event-log.codec.ts'

/** `none`: this VM has no TPM. `failed`: its TPM does not work. */
type TpmAnswer =
  | { readonly kind: 'evidence'; readonly bytes: Uint8Array }
  | { readonly kind: 'none' }
  | { readonly kind: 'failed'; readonly reason: string }

type EndorsementKeyAnswer =
  | { readonly kind: 'endorsement-key'; readonly area: Uint8Array }
  | Exclude<TpmAnswer, { readonly kind: 'evidence' }>

type ActivationAnswer =
  /** `activationProof` of the secret. */
  { readonly kind: 'activated'; readonly proof: Uint8Array } | Exclude<TpmAnswer, { readonly kind: 'evidence' }>

export type Tpm = {
  /** Over a client's 32 bytes or the 64 of a REPORT_DATA; the length keeps them apart. Never rejects. */
  readonly evidence: (nonce: Uint8Array) => Promise<TpmAnswer>
  /** TPMT_PUBLIC. Neither this nor `activate` rejects. */
  readonly endorsementKey: () => Promise<EndorsementKeyAnswer>
  /** Public area of the attestation key that signs the quotes. */
  readonly activate: (credential: Uint8Array) => Promise<ActivationAnswer>
}

export type SvsmService = (nonce: Uint8Array) => Promise<{ readonly report: Uint8Array; readonly manifest: Uint8Array }>

type TpmDeps = {
  readonly device: TpmDevice | null
  readonly measured: Measured
  /** The SVSM's statement about its TPM; null without an SVSM. May still be pending. */
  readonly svsm: Promise<SvsmService | null>
  readonly clock: Pick<Clock, 'sleep'>
  readonly log: Logger
}

const turnsMax = 8
const pcrs = Object.values(GUEST_PCRS)

export function createTpm({ device, measured, svsm, clock, log }: TpmDeps): Tpm {
  const turns = createSerial()
  if (device === null) {
    const none = async () => ({ kind: 'none' }) as const
    return { evidence: none, endorsementKey: none, activate: none }
  }
  const patient = (transmit: Transmit): Transmit => withRetries(transmit, clock)
  const extended = turns.run(() => device.session(transmit => extendOnce(patient(transmit), measured)))
  extended.catch(error => log.error('the TPM could not be extended', { reason: messageOf(error) }))
  const take = async (nonce: Uint8Array): Promise<TpmAnswer> => {
    await extended
    const quoted = await device.session(transmit => quoteOnce(patient(transmit), nonce))
    const service = await svsm
    const said = service === null ? null : await service(svsmNonceOf(nonce))
    return { kind: 'evidence', bytes: encodeTpmEvidence({ ...quoted, log: encodeEventLog(measured), svsm: said }) }
  }
  const inTurn = async <T>(
    work: () => Promise<T>,
  ): Promise<T | { readonly kind: 'failed'; readonly reason: string }> => {
    if (turns.size() >= turnsMax) return { kind: 'failed', reason: 'too many concurrent requests; try again' }
    try {
      return await turns.run(work)
    } catch (error) {
      return { kind: 'failed', reason: messageOf(error) }
    }
  }
  const endorsing = createEndorsing({ device, patient })
  return {
    evidence: nonce => inTurn(() => take(nonce)),
    endorsementKey: () => inTurn(endorsing.endorsementKey),
    activate: credential => inTurn(() => endorsing.activate(credential)),
  }
}

/** A restarted agent finds them extended; other extensions show in the quote. */
async function extendOnce(transmit: Transmit, measured: Measured): Promise<void> {
  const values = readPcrs(await transmit(pcrRead(pcrs)), pcrs)
  for (const { pcr, digest } of eventsOf(measured)) {
    if (values.get(pcr)?.some(byte => byte !== 0)) continue
    expectDone(await transmit(pcrExtend(pcr, digest)), 'TPM2_PCR_Extend')
  }
}

async function quoteOnce(transmit: Transmit, nonce: Uint8Array) {
  const { handle, area } = readPrimary(await transmit(createPrimary()))
  try {
    const quoted = readQuote(await transmit(quote(handle, { nonce, pcrs })))
    return { key: area, ...quoted, pcrs: readPcrs(await transmit(pcrRead(pcrs)), pcrs) }
  } finally {
    await transmit(flushContext(handle)).catch(() => {})
  }
}

function createEndorsing({ device, patient }: { device: TpmDevice; patient: (transmit: Transmit) => Transmit }) {
  return {
    endorsementKey: (): Promise<EndorsementKeyAnswer> =>
      device.session(async given => {
        const transmit = patient(given)
        const { handle, area } = readPrimary(await transmit(createEndorsementKey(), endorsementKeyTimeoutMs))
        await transmit(flushContext(handle)).catch(() => {})
        return { kind: 'endorsement-key', area }
      }),
    activate: (credential: Uint8Array): Promise<ActivationAnswer> =>
      device.session(async given => {
        const secret = await activateOnce(patient(given), credential)
        return { kind: 'activated', proof: activationProof(secret) }
      }),
  }
}

/** The TPM derives the key's primes again each time. */
const endorsementKeyTimeoutMs = 20_000

async function activateOnce(transmit: Transmit, credential: Uint8Array): Promise<Uint8Array> {
  const held: number[] = []
  const hold = (handle: number): number => {
    held.push(handle)
    return handle
  }
  try {
    const key = hold(readPrimary(await transmit(createPrimary())).handle)
    const made = await transmit(createEndorsementKey(), endorsementKeyTimeoutMs)
    const endorsementKey = hold(readPrimary(made).handle)
    const session = hold(readSession(await transmit(startPolicySession())))
    expectDone(await transmit(policySecret(session)), 'TPM2_PolicySecret')
    return readActivated(await transmit(activateCredential({ key, endorsementKey, session }, credential)))
  } finally {
    for (const handle of held) await transmit(flushContext(handle)).catch(() => {})
  }
}

const triesMax = 5
const pauseFirstMs = 20

function withRetries(transmit: Transmit, clock: Pick<Clock, 'sleep'>): Transmit {
  return async (command, timeoutMs) => {
    let pauseMs = pauseFirstMs
    for (let tries = 1; ; tries += 1) {
      const response = await transmit(command, timeoutMs)
      if (!retryCodes.has(responseCode(response)) || tries === triesMax) return response
      await clock.sleep(pauseMs)
      pauseMs *= 2
    }
  }
}

function expectDone(response: Uint8Array, what: string): void {
  const code = responseCode(response)
  if (code !== 0) throw new Error(`${what}: TPM_RC 0x${code.toString(16)}`)
}
