// The five attested workloads: what each of them is, and whether the allowlist admits it. Effects: reads the executable and the allowlist.

import { createReadStream, readFileSync } from 'node:fs'
import { toHex, utf8 } from '../../base/bytes.ts'
import { Fault, wrapFault } from '../../base/fault.ts'
import type { Logger } from '../../base/log.ts'
import { type Admission, Allowlist, admits, encodeAllowlist, type WorkloadCandidate } from '../../contract/allowlist.ts'
import { ATTESTED_WORKLOADS, type AttestedWorkload } from '../../contract/attestation.ts'
import { checkedJson } from '../../contract/shape.ts'
import type { AdmittedWorkload, AdmittedWorkloads } from './attester.ts'

/** An allowlist that admits exactly these. Pure. */
export function allowlistOf(candidates: readonly WorkloadCandidate[]): Allowlist {
  return {
    schemaVersion: 1,
    workloads: candidates.map(({ workload, imageDigest, command }) => ({
      workload,
      imageDigests: [toHex(imageDigest)],
      commands: [[...command]],
    })),
  }
}

export type WorkloadsDeps = {
  /** The running executable: gateway, router and the two metrics workloads are parts of it. */
  readonly executable: string
  /** The process's own argv. */
  readonly command: readonly string[]
  /** Whether the configuration has a built-in worker. */
  readonly hasWorker: boolean
  /**
   * Written by the operator. When it is not there, what the configuration says is what is allowed. Of the worker that is known when it asks,
   * its model read. Once it has served or has been described, that alone is allowed: the keys of this process vouch for no other.
   */
  readonly allowlistFile: string
  readonly log: Logger
}

export type Workloads = {
  /** SHA-256 of the executable that runs. */
  readonly executableDigest: Uint8Array
  /** The worker is not in it yet when it comes from the configuration and the worker has not asked. */
  readonly inForce: () => AllowlistInForce
  /** The worker serves: what is in force stays so. Idempotent. */
  readonly bind: () => void
  /** Decides, and keeps the latest admission of each workload for `describe`. */
  readonly admit: (candidate: WorkloadCandidate) => Admission
  /** All five in the contract's order. Fault attestation_unavailable: one of them was not admitted. */
  readonly describe: () => AdmittedWorkloads
}

export type AllowlistInForce = {
  readonly allowlist: Allowlist
  /** SHA-256 of the allowlist's bytes. */
  readonly digest: Uint8Array
}

/** Reads or derives the allowlist and admits what is part of this process. Fault config.invalid for an allowlist that is none. */
export async function createWorkloads(deps: WorkloadsDeps): Promise<Workloads> {
  const executableDigest = await sha256File(deps.executable)
  const own = ATTESTED_WORKLOADS.filter(workload => workload !== 'inference-worker').map(
    (workload): WorkloadCandidate => ({ workload, imageDigest: executableDigest, command: deps.command }),
  )
  const file = readAllowlistFile(deps.allowlistFile)
  const derive = (candidates: readonly WorkloadCandidate[]) => encodeAllowlist(allowlistOf(inOrder(candidates)))
  let inForce = readAllowlist(file ?? derive(own), deps.allowlistFile)
  let isOpen = file === null && deps.hasWorker
  const tell = () => {
    const source = file === null ? 'configuration' : deps.allowlistFile
    deps.log.info('allowlist in force', { sha256: toHex(inForce.digest), source })
  }
  if (!isOpen) tell()

  const admissions = new Map<AttestedWorkload, { candidate: WorkloadCandidate; admission: Admission }>()
  const admit = (candidate: WorkloadCandidate) => {
    if (isOpen && candidate.workload === 'inference-worker') {
      inForce = readAllowlist(derive([...own, candidate]), deps.allowlistFile)
      tell()
    }
    const admission = admits(inForce.allowlist, candidate)
    admissions.set(candidate.workload, { candidate, admission })
    if (!admission.ok) deps.log.error('workload refused', { workload: candidate.workload, error: admission.fault })
    return admission
  }
  for (const candidate of own) admit(candidate)
  const bind = () => {
    isOpen = false
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

const allowlistBytesMax = 1_048_576

function readAllowlistFile(path: string): string | null {
  try {
    const bytes = readFileSync(path)
    if (bytes.length > allowlistBytesMax) throw new Fault('config.invalid', `more than ${allowlistBytesMax} bytes`)
    return bytes.toString('utf8')
  } catch (error) {
    if (Reflect.get(Object(error), 'code') === 'ENOENT') return null
    throw wrapFault(error, `read the allowlist ${path}`, 'config.invalid')
  }
}

function readAllowlist(text: string, path: string): AllowlistInForce {
  return {
    allowlist: parseAllowlist(text, path),
    digest: new Uint8Array(Bun.CryptoHasher.hash('sha256', text)),
  }
}

function parseAllowlist(text: string, path: string): Allowlist {
  return checkedJson(Allowlist, utf8(text), { what: `the allowlist ${path}`, code: 'config.invalid' })
}

async function sha256File(path: string): Promise<Uint8Array> {
  const hasher = new Bun.CryptoHasher('sha256')
  for await (const chunk of createReadStream(path, { highWaterMark: 1 << 20 })) hasher.update(chunk)
  return new Uint8Array(hasher.digest())
}
