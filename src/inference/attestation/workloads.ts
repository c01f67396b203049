// The five attested workloads: their descriptions, and whether the allowlist admits them. Effects: reads the
// executable.

import { createReadStream } from 'node:fs'
import { toHex, utf8 } from '../../base/bytes.ts'
import { Fault } from '../../base/fault.ts'
import type { Logger } from '../../base/log.ts'
import { ATTESTED_WORKLOADS, type AttestedWorkload } from '../../contract/http/attestation.ts'
import {
  type Admission,
  type Allowlist,
  admits,
  encodeAllowlist,
  parseAllowlist,
  type WorkloadCandidate,
} from '../../contract/vm/allowlist.ts'
import type { AdmittedWorkload, AdmittedWorkloads } from './attester.ts'

/** Returns an allowlist that admits exactly these workloads. Pure. */
export function allowlistOf(candidates: readonly WorkloadCandidate[]): Allowlist {
  return {
    schemaVersion: 2,
    workloads: candidates.map(({ workload, imageDigest, command }) => ({
      workload,
      images: [{ digest: toHex(imageDigest), commands: [[...command]] }],
    })),
  }
}

export type WorkloadsDeps = {
  /** SHA-256 of the running executable: gateway, router and the two metrics workloads are parts of it. */
  readonly executableDigest: Uint8Array
  /** The process's own argv. */
  readonly command: readonly string[]
  /** Whether the configuration has a built-in worker. */
  readonly hasWorker: boolean
  /**
   * Bytes and origin of the allowlist in force. Null if it is derived from the configuration: the worker is added
   * when it requests admission, after its model was read. Once the worker has served or was described, the allowlist
   * never changes, because the keys of this process attest no other.
   */
  readonly allowlist: { readonly bytes: Uint8Array; readonly source: string } | null
  readonly log: Logger
}

export type Workloads = {
  /** SHA-256 of the executable that runs. */
  readonly executableDigest: Uint8Array
  /** Returns the allowlist in force. A derived one lacks the worker until the worker has requested admission. */
  readonly inForce: () => AllowlistInForce
  /** Freezes the allowlist, because the worker serves. Idempotent. */
  readonly bind: () => void
  /** Decides. The latest decision for each workload is kept for `describe`. */
  readonly admit: (candidate: WorkloadCandidate) => Admission
  /** Returns all five in the contract's order. Fault attestation_unavailable if one was not admitted. */
  readonly describe: () => AdmittedWorkloads
}

export type AllowlistInForce = {
  readonly allowlist: Allowlist
  /** SHA-256 of the allowlist's bytes. */
  readonly digest: Uint8Array
}

/** Takes or derives the allowlist and admits this process's workloads. Fault config.file for an invalid allowlist. */
export function createWorkloads(deps: WorkloadsDeps): Workloads {
  const { executableDigest } = deps
  const own = ATTESTED_WORKLOADS.filter(workload => workload !== 'inference-worker').map(
    (workload): WorkloadCandidate => ({ workload, imageDigest: executableDigest, command: deps.command }),
  )
  const given = deps.allowlist
  const derive = (candidates: readonly WorkloadCandidate[]) => utf8(encodeAllowlist(allowlistOf(inOrder(candidates))))
  let inForce = inForceOf(given?.bytes ?? derive(own), given?.source ?? derived)
  /** Whether the allowlist is derived and the worker may still change it. */
  let isProvisional = given === null && deps.hasWorker
  const logInForce = () => {
    deps.log.info('allowlist in force', { sha256: toHex(inForce.digest), source: given?.source ?? derived })
  }
  if (!isProvisional) logInForce()

  const admissions = new Map<AttestedWorkload, { candidate: WorkloadCandidate; admission: Admission }>()
  const admit = (candidate: WorkloadCandidate) => {
    if (isProvisional && candidate.workload === 'inference-worker') {
      inForce = inForceOf(derive([...own, candidate]), derived)
      logInForce()
    }
    const admission = admits(inForce.allowlist, candidate)
    admissions.set(candidate.workload, { candidate, admission })
    if (!admission.ok) deps.log.error('workload refused', { workload: candidate.workload, error: admission.fault })
    return admission
  }
  for (const candidate of own) admit(candidate)
  const bind = () => {
    isProvisional = false
  }
  const admitted = (workload: AttestedWorkload): AdmittedWorkload => {
    const found = admissions.get(workload)
    if (found === undefined) throw new Fault('attestation_unavailable', `${workload} has not been admitted yet`)
    if (!found.admission.ok) throw wrapUnavailable(found.admission.fault)
    const { imageDigest, command } = found.candidate
    return { target: workload, workload, imageDigest, command }
  }
  return {
    executableDigest,
    inForce: () => inForce,
    bind,
    admit,
    describe: () => {
      const workloads = ATTESTED_WORKLOADS.map(admitted)
      bind()
      return { workloads, allowlistDigest: inForce.digest }
    },
  }
}

function wrapUnavailable(fault: Fault): Fault {
  return new Fault('attestation_unavailable', fault.message, { cause: fault })
}

function inOrder(candidates: readonly WorkloadCandidate[]): WorkloadCandidate[] {
  const place = ({ workload }: WorkloadCandidate) => ATTESTED_WORKLOADS.indexOf(workload)
  return candidates.toSorted((a, b) => place(a) - place(b))
}

const derived = 'configuration'
function inForceOf(bytes: Uint8Array, source: string): AllowlistInForce {
  const shape = parseAllowlist(bytes)
  if (!shape.ok) throw new Fault('config.file', `the allowlist ${source}: ${shape.problem}`)
  return { allowlist: shape.value, digest: new Uint8Array(Bun.CryptoHasher.hash('sha256', bytes)) }
}

/** Hashes the file in pieces, between other work. */
export async function sha256File(path: string): Promise<Uint8Array> {
  const hasher = new Bun.CryptoHasher('sha256')
  for await (const chunk of createReadStream(path, { highWaterMark: 1 << 20 })) hasher.update(chunk)
  return new Uint8Array(hasher.digest())
}
