// The GPUs of this VM: their evidence through NVIDIA's own programs, checked before the worker starts. Effects: runs
// programs of the image.
//
// The driver belongs to the measured guest. Its answer counts for facts that no report contains: confidential mode
// on, DevTools mode off.

import { DEVTOOLS, type Devtools, gpuEvidenceBytesMax, gpuEvidenceFormat } from '../attest/nvidia/bound.ts'
import { judgeBoundGpus } from '../attest/nvidia/bound-judge.ts'
import { noFiles } from '../attest/nvidia/judge.ts'
import { type GpuPolicy, parseGpuPolicy } from '../attest/nvidia/policy.ts'
import type { NvidiaRoots } from '../attest/nvidia/roots.ts'
import { isBroken } from '../attest/verdict.ts'
import { toHex, utf8 } from '../base/bytes.ts'
import { canonicalJson, type Plain } from '../base/canonical-json.ts'
import type { Clock } from '../base/clock.ts'
import { Fault, messageOf, wrapFault } from '../base/fault.ts'
import type { RandomBytes } from '../base/ids.ts'
import { parseJson } from '../base/json.ts'
import type { WorkloadGpus } from '../contract/vm/workload.ts'
import type { run } from '../linux/command.ts'
import { nativeP384 } from '../linux/keys/native-p384.ts'

/** All queries of this VM to its GPUs. */
export type GpuDriver = {
  /** Output of `nvattest collect-evidence`. Faults: host.*. */
  readonly evidence: (nonce: Uint8Array) => Promise<string>
  /** Whether confidential mode is on, and DevTools mode. Faults: host.*. */
  readonly modes: () => Promise<{ readonly isConfidential: boolean; readonly devtools: Devtools }>
  /** Lets the GPUs take work, which they refuse in confidential mode until then. Faults: host.*. */
  readonly admit: () => Promise<void>
}

const limits = { timeoutMs: 20_000, outputBytesMax: 1_048_576 } as const

/** NVIDIA's programs, where an image has them. */
export function nvidiaPrograms(runProgram: typeof run): GpuDriver {
  const smi = async (...options: readonly string[]) =>
    (await runProgram(['nvidia-smi', 'conf-compute', ...options], limits)).stdout
  return {
    evidence: async nonce => {
      const argv = ['nvattest', 'collect-evidence', '--device', 'gpu', '--nonce', toHex(nonce), '--format', 'json']
      return (await runProgram(argv, limits)).stdout
    },
    modes: async () => {
      const [confidential, devtools] = [await smi('-f'), await smi('-d')]
      return {
        isConfidential: switchOf(confidential, 'CC status') === 'on',
        devtools: switchOf(devtools, 'DevTools Mode'),
      }
    },
    admit: async () => void (await smi('-srs', '1')),
  }
}

/** Returns the value of the lines with this label, if all are equal. */
function switchOf(text: string, label: string): Devtools {
  const lines = text.split('\n').filter(line => line.startsWith(`${label}:`))
  const [word, ...more] = new Set(
    lines.map(line =>
      line
        .slice(label.length + 1)
        .trim()
        .toLowerCase(),
    ),
  )
  return more.length > 0 ? 'unknown' : (DEVTOOLS.find(known => known === word) ?? 'unknown')
}

export type GpusDeps = {
  readonly driver: GpuDriver
  readonly roots: readonly NvidiaRoots[]
  readonly clock: Pick<Clock, 'nowMs'>
  readonly random: RandomBytes
}

const nonceBytes = 32

/** The GPUs that workload.json requires. Faults of all: attest.unavailable. */
export class EnclaveGpus {
  readonly #deps: GpusDeps
  readonly #required: WorkloadGpus
  readonly #policy: GpuPolicy

  constructor(required: WorkloadGpus, deps: GpusDeps) {
    this.#deps = deps
    this.#required = required
    try {
      this.#policy = parseGpuPolicy(required.policy)
    } catch (error) {
      throw wrapFault(error, 'workload.json: the policy for GPUs', 'attest.unavailable')
    }
  }

  /** Before each start of the worker: they meet the policy, and then they may work. */
  async prepare(): Promise<void> {
    const nonce = this.#deps.random(nonceBytes)
    const bytes = await this.evidence(nonce)
    const { count } = this.#required
    const { roots, clock } = this.#deps
    const asked = { bytes, count, nonce, roots, policy: this.#policy, asOfMs: clock.nowMs(), verify: nativeP384 }
    const { checks } = judgeBoundGpus(asked, noFiles)
    const bad = checks.find(isBroken)
    if (bad !== undefined) throw new Fault('attest.unavailable', `GPUs: ${bad.name}: ${bad.reason}`)
    await this.#asked(this.#deps.driver.admit())
  }

  /** The bytes that a receipt names: the evidence for this nonce, and the driver's word on DevTools mode. */
  async evidence(nonce: Uint8Array): Promise<Uint8Array> {
    const { driver } = this.#deps
    const { isConfidential, devtools } = await this.#asked(driver.modes())
    if (!isConfidential) throw new Fault('attest.unavailable', 'GPUs: confidential mode is off')
    // Checked here as well: clients without a GPU check rely on the receipt.
    if (devtools !== 'off' && this.#policy.devtools === 'refuse') {
      throw new Fault('attest.unavailable', `GPUs: DevTools mode: ${devtools}, and the policy refuses it`)
    }
    const { evidences } = this.#read(await this.#asked(driver.evidence(nonce)))
    const bytes = utf8(canonicalJson({ format: gpuEvidenceFormat, devtools, evidences } as Plain))
    if (bytes.length <= gpuEvidenceBytesMax) return bytes
    throw new Fault('attest.unavailable', `GPUs: evidence of ${bytes.length} bytes, at most ${gpuEvidenceBytesMax}`)
  }

  async #asked<Answer>(asking: Promise<Answer>): Promise<Answer> {
    try {
      return await asking
    } catch (error) {
      throw new Fault('attest.unavailable', `GPUs: ${wrapFault(error, 'ask the driver').message}`, { cause: error })
    }
  }

  #read(text: string): { readonly evidences: unknown } {
    try {
      const document = parseJson(utf8(text), { depthMax: 6 })
      if (typeof document === 'object' && document !== null && 'evidences' in document) return document
    } catch (error) {
      throw new Fault('attest.unavailable', `GPUs: evidence of nvattest: ${messageOf(error)}`, { cause: error })
    }
    throw new Fault('attest.unavailable', 'GPUs: nvattest wrote no evidences')
  }
}
