// Files with a GPU's evidence, and the relying party's policy. Effects: reads files. Throws InputFault.

import { parsedJson } from '../../../attest/encoding/json.ts'
import { BUNDLE_LIMITS } from '../../../attest/encoding/pem.ts'
import { Malformed } from '../../../attest/malformed.ts'
import { evidenceBytesMax, type GpuEvidence, readGpuEvidence } from '../../../attest/nvidia/evidence.ts'
import { defaultGpuPolicy, gpuPolicySchema, type HgxPolicy, parseHgxPolicy } from '../../../attest/nvidia/hgx/policy.ts'
import { switchArch } from '../../../attest/nvidia/hgx/switch.ts'
import { ocspBytesMax } from '../../../attest/nvidia/ocsp.ts'
import { rimBytesMax } from '../../../attest/nvidia/rim.ts'
import { NVIDIA_ROOTS, type NvidiaRoots } from '../../../attest/nvidia/roots.ts'
import { readSimulatedRoots } from '../../../attest/nvidia/simulated-roots.ts'
import { type Check, fail, notChecked } from '../../../attest/verdict.ts'
import { fromBase64 } from '../../../base/bytes.ts'
import { InputFault } from '../../../terminal/exit.ts'
import { readInput, readingInput } from '../../../terminal/input-file.ts'
import type { FetchOptions } from '../../collateral/fetch-options.ts'
import { explainingPolicy } from '../../trust/policy-errors.ts'
import { requireFormat } from '../../trust/policy-format.ts'
import { readPolicyJson } from '../../trust/trust-options.ts'
import { gpuDevtoolsPinName, gpuOcspPinName, gpuPinName } from '../../verdict/summary.ts'

export type GpuOptions = FetchOptions & {
  rimUrl?: string
  ocspUrl?: string
  nonce: Uint8Array
  rim?: readonly string[]
  ocsp?: readonly string[]
  policy?: string
  switches?: string
  asOf?: number
  trustSimulatedRoot?: string
  anyGpu?: boolean
  anyOcsp?: boolean
  anyDevtools?: boolean
  verbose?: boolean
}

/** Limit on files for one option. */
const filesMax = 64

/** Reads the evidence of GPUs, and that of switches if it has a file of its own, in which nothing else may stand. */
export async function readEvidence(path: string, { switches }: GpuOptions): Promise<readonly GpuEvidence[]> {
  if (switches === '-' && path === '-') throw switchesFault('standard input can be read once, and it is the evidence')
  const evidence = await readEvidenceFile({ path, param: 'evidence', shown: `evidence ${path}` })
  if (switches === undefined) return evidence
  const shown = `--switches ${switches}`
  const found = await readEvidenceFile({ path: switches, param: 'switches', shown })
  const at = found.findIndex(({ arch }) => arch !== switchArch)
  if (at < 0) return [...evidence, ...found]
  throw switchesFault(`${switches}: device ${at} has arch ${found[at]?.arch}, and that of a switch is ${switchArch}`)
}

function switchesFault(reason: string): InputFault {
  const remedy = 'name a file of `nvattest collect-evidence --device switch`'
  return new InputFault(`--switches ${reason}`, { param: 'switches', remedy })
}

async function readEvidenceFile(from: { readonly path: string; readonly param: string; readonly shown: string }) {
  const bytes = readInput({ ...from, bytesMax: evidenceBytesMax })
  return await readingInput(from.shown, () => readGpuEvidence(bytes))
}

/** Files of an option, and the option's name for messages. */
type NamedFiles = { readonly paths: readonly string[] | undefined; readonly param: string }

/** Reads manifests, unchanged or in the JSON of NVIDIA's RIM service, which has them in base64. */
export async function readRimFiles({ paths, param }: NamedFiles): Promise<readonly Uint8Array[]> {
  return await Promise.all(
    limited(param, paths).map(async path => {
      const bytes = readInput({ path, param, bytesMax: 2 * rimBytesMax })
      return bytes[0] === 0x7b ? await readingInput(`--${param} ${path}`, () => rimOf(bytes)) : bytes
    }),
  )
}

/** Returns the manifest in a response of NVIDIA's RIM service. Throws Malformed. */
export function rimOf(bytes: Uint8Array): Uint8Array {
  const document = parsedJson('manifest', bytes)
  const rim = typeof document === 'object' && document !== null && 'rim' in document ? document.rim : null
  const found = typeof rim === 'string' ? fromBase64(rim) : null
  if (found === null) throw new Malformed('JSON without a manifest in base64 as `rim`')
  return found
}

export function readOcspFiles({ paths, param }: NamedFiles): readonly Uint8Array[] {
  return limited(param, paths).map(path => readInput({ path, param, bytesMax: ocspBytesMax }))
}

function limited(param: string, paths: readonly string[] = []): readonly string[] {
  if (paths.length <= filesMax) return paths
  throw new InputFault(`--${param}: ${paths.length} files, at most ${filesMax}`, { param, remedy: 'name fewer files' })
}

/** Returns NVIDIA's own roots, and the simulated ones in the file. */
export async function readGpuRoots(path: string | undefined, param: string): Promise<readonly NvidiaRoots[]> {
  if (path === undefined) return [NVIDIA_ROOTS]
  const pem = readInput({ path, param, bytesMax: BUNDLE_LIMITS.bytesMax })
  return [NVIDIA_ROOTS, await readingInput(`--${param} ${path}`, () => readSimulatedRoots(pem))]
}

/** Flags that waive a requirement of the default policy, which the verdict reports. */
const WAIVERS = {
  anyGpu: { flag: 'any-gpu', pin: gpuPinName, accepted: 'any genuine GPU or switch, driver, VBIOS and BIOS' },
  anyOcsp: { flag: 'any-ocsp', pin: gpuOcspPinName, accepted: 'certificates without an OCSP response' },
  anyDevtools: { flag: 'any-devtools', pin: gpuDevtoolsPinName, accepted: 'a GPU in DevTools mode' },
} as const satisfies Partial<Record<keyof GpuOptions, { flag: string; pin: string; accepted: string }>>

const waiverNames = Object.keys(WAIVERS) as (keyof typeof WAIVERS)[]

/** Returns the policy, and checks for what the flags accept. A policy file cannot be combined with flags. */
export async function readGpuPolicy(
  options: GpuOptions,
): Promise<{ readonly policy: HgxPolicy; readonly checks: readonly Check[] }> {
  const { policy: path } = options
  if (path !== undefined) {
    const odd = waiverNames.find(name => options[name] === true)
    if (odd !== undefined) throw saidTwice(WAIVERS[odd].flag)
    const document = readPolicyJson(path, 'policy')
    const policy = await readingInput(`--policy ${path}`, () => {
      requireFormat(document, 'strongroom/gpu-policy/v1')
      return explainingPolicy(document, gpuPolicySchema, () => parseHgxPolicy(document))
    })
    return { policy, checks: [] }
  }
  const base = defaultGpuPolicy()
  const policy: HgxPolicy = {
    ...base,
    ocspMaximumAgeSeconds: options.anyOcsp === true ? 'any' : base.ocspMaximumAgeSeconds,
    devtools: options.anyDevtools === true ? 'any' : base.devtools,
  }
  const accepted = waiverNames.filter(name => options[name] === true).map(name => WAIVERS[name])
  const checks = accepted.map(({ flag, pin, accepted: what }) =>
    notChecked(pin, `accepted ${what}: you asked with --${flag}`, false),
  )
  const missing = 'no --policy names the GPUs, drivers and VBIOS that you expect, or accept any with --any-gpu'
  return { policy, checks: options.anyGpu === true ? checks : [fail(gpuPinName, missing), ...checks] }
}

function saidTwice(flag: string): InputFault {
  return new InputFault(`--${flag} contradicts --policy, which lists what it accepts`, {
    param: flag,
    remedy: 'leave one of the two out',
  })
}
