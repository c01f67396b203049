// Options for the trust of a relying party, shared by the commands that verify. Effects: reads files. Fault
// invalid_request.

import { InvalidArgumentError, Option } from 'commander'
import type { TrustedRoot } from '../../attest/amd/roots.ts'
import { AMD_ROOTS } from '../../attest/amd/roots.ts'
import { BUNDLE_LIMITS } from '../../attest/encoding/pem.ts'
import { sha256 } from '../../attest/hash.ts'
import { type Policy, parsePolicy } from '../../attest/policy/policy.ts'
import { certificateTableBytesMax } from '../../attest/report/certificate-table.ts'
import type { Check } from '../../attest/verdict.ts'
import { shellWord } from '../../base/shell-word.ts'
import { type Exposure, exposureNames } from '../../contract/vm/exposure.ts'
import type { Command } from '../../terminal/command.ts'
import { InputFault } from '../../terminal/exit.ts'
import { MIB, readInput, readingInput, readJsonInput, readOptionalInput } from '../../terminal/input-file.ts'
import { defaultPolicy } from '../../verifier/default-policy.ts'
import type { GatewayQuestion } from '../../verifier/gateway.ts'
import { PINS, type Pins } from '../../verifier/pins.ts'
import { readSimulatedRoot } from '../../verifier/simulated-root.ts'
import { type ChipListReference, policyFileSchema, splitChipList, withChipList } from './chip-list.ts'
import { readCrl } from './crl-file.ts'
import { operatorKeyDigest } from './operator-key-digest.ts'
import { addPinOptions, type PinOptions, readPins } from './pin-options.ts'
import { explainingPolicy } from './policy-errors.ts'
import { addPolicyFlags, type PolicyFlags, withPolicyFlags } from './policy-flags.ts'
import { requireFormat } from './policy-format.ts'
import { StatedFields } from './stated-fields.ts'

/** Options of `verify gateway` and `verify response`. */
export type TrustOptions = PinOptions &
  PolicyFlags &
  EvidenceOptions & {
    policy?: string
    allowlist?: string
    configuration?: string
    anyConfiguration?: boolean
    workload?: string
    allowOutside?: readonly string[]
    allow?: readonly Exposure[]
  }

/** Options of every command that judges a receipt. */
export type EvidenceOptions = { crl?: string; trustSimulatedRoot?: string; verbose?: boolean }

const filesBytesMax = MIB

export function addTrustOptions(command: Command): Command {
  command
    .option('--policy <file>', 'JSON as in `verify policy-schema`; it names the measurements and the operator key')
    .option('--allowlist <file>', 'the allowlist; the receipts must have its digest, images and commands')
    .option(
      '--configuration <file>',
      "gateway-configuration.json, which lists the gateway's upstreams; required with --allowlist for a gateway without workload.json",
    )
    .option('--any-configuration', 'accept any upstreams of a gateway without workload.json')
    .option('--workload <file>', 'workload.json of a gateway in a VM of its own: HOST_DATA must be its digest')
  return addPinOptions(addEvidenceOptions(addAllowOption(addOutsideOption(addPolicyFlags(command)))), PINS)
}

export function addEvidenceOptions(command: Command): Command {
  return command
    .option('--crl <file>', 'revocation list, DER or PEM, instead of the one in the evidence')
    .option(
      '--trust-simulated-root <file>',
      'PEM of a simulated ARK and ASK, and for VLEKs the ASVK; the verdict is then marked SIMULATED',
    )
    .option('--verbose', verboseHelp)
}

export const verboseHelp = 'print every check, instead of a summary'

export type Trust = Pick<
  GatewayQuestion,
  'roots' | 'policy' | 'crl' | 'pins' | 'allowlist' | 'configurationDigest' | 'workload' | 'outside' | 'allow'
>

export function addOutsideOption(command: Command): Command {
  return command.option(
    '--allow-outside <name[=origin]>',
    "accept that this upstream outside of the gateway's VM gets prompts, at that origin, or without one at any; repeatable",
    (name: string, before: readonly string[] = []) => [...before, name],
  )
}

const exposureWords = 'accept this setting of the gateway, which shows more to its host or keeps content'

export function addAllowOption(
  command: Command,
  names: readonly string[] = exposureNames,
  words = exposureWords,
): Command {
  return command.addOption(
    new Option('--allow <name>', `${words}; repeatable`)
      .choices(names)
      .argParser((name, before: readonly string[] = []) => {
        if (names.includes(name)) return [...before, name]
        throw new InvalidArgumentError(`Allowed choices are ${names.join(', ')}.`)
      }),
  )
}

/**
 * Replaces the library's advice, on how a program allows an upstream or a setting, by the flag. A host chose the name
 * of the upstream, and a person may paste it into a shell.
 */
export function withOutsideFlag<Named extends Pick<Check, 'reason'>>(named: Named): Named {
  const outside = /allow it by outside: \[("(?:[^"\\]|\\.)*")\]/g
  const setting = /allow it by allow: \["([a-z-]+)"\]/g
  const reason = named.reason
    .replace(outside, (_, entry: string) => `allow it with --allow-outside ${shellWord(JSON.parse(entry))}`)
    .replace(setting, 'allow it with --allow $1')
  return { ...named, reason }
}

export async function readTrust(options: TrustOptions): Promise<Trust> {
  const pins = readPins(options)
  const workload = await readWorkloadFile(options.workload)
  const policy = await readPolicy(options.policy, pins, options)
  if (workload !== null && options.hostData !== undefined) throw hostDataTwice()
  return {
    roots: await readRoots(options.trustSimulatedRoot),
    // Compare with the document that the relying party itself has.
    policy: workload === null ? policy : { ...policy, hostData: sha256(workload) },
    workload,
    outside: options.allowOutside ?? [],
    allow: options.allow ?? [],
    crl: readCrl(options.crl),
    pins,
    allowlist: await readAllowlistFile(options.allowlist),
    configurationDigest: readConfigurationDigest(options),
  }
}

/** Returns the checks that compare with these files, if they are given: see `Sorting`. */
export function checksOfNamed({ allowlist, workload }: TrustOptions): ReadonlySet<string> {
  return new Set([
    ...(allowlist === undefined && workload === undefined ? [] : ['expected-allowlist-digest', 'admission']),
    ...(workload === undefined ? [] : ['workload', 'workload-allowlist', 'host-data-allowlist']),
  ])
}

/** Returns AMD's own roots, and the simulated one in the file. */
export async function readRoots(path: string | undefined): Promise<readonly TrustedRoot[]> {
  if (path === undefined) return AMD_ROOTS
  const pem = readInput({ path, param: 'trust-simulated-root', bytesMax: BUNDLE_LIMITS.bytesMax })
  return [...AMD_ROOTS, await readingInput(`--trust-simulated-root ${path}`, () => readSimulatedRoot(pem))]
}

export type FlagsAsOf = PolicyFlags & { readonly asOf?: number }

/** Reads the policy file, or takes the default one, and completes it: see `completePolicy`. */
export async function readPolicy(
  path: string | undefined,
  pins: Pick<Pins, 'vmpl'>,
  flags: FlagsAsOf,
  operatorKey?: string,
): Promise<Policy> {
  if (path === undefined) return withPolicyFlags(defaultPolicy(pins), flags, path)
  return await completePolicy(path, await readPolicyFile(path, 'policy'), flags, operatorKey)
}

/**
 * Adds the flags to the policy of a file, and the chips of the list that it names. `operatorKey`: file or digest of the
 * key that counts if the policy names none.
 */
export async function completePolicy(
  path: string,
  { policy: given, chips }: PolicyInFile,
  flags: FlagsAsOf,
  operatorKey: string | undefined,
): Promise<Policy> {
  const policy = withPolicyFlags(given, flags, path)
  if (chips === null) return policy
  if (flags.chipId !== undefined) {
    const remedy = `name every chip in the list, or leave chipIds out there ("any")`
    throw new InputFault(`--chip-id: ${path} names a list of chips, too`, { param: 'chip-id', remedy })
  }
  const isKeyOpen = policy.idKeyDigest === 'any' && operatorKey !== undefined
  const keyed = isKeyOpen ? { ...policy, idKeyDigest: await operatorKeyDigest(operatorKey) } : policy
  return await withChipList(keyed, chips, { file: path, asOf: flags.asOf })
}

function hostDataTwice(): InputFault {
  return new InputFault('--host-data: HOST_DATA has to be the digest of the --workload', {
    param: 'host-data',
    remedy: 'leave one of the two out',
  })
}

/** A policy, and the list of chips that it names, without the list's content. */
export type PolicyInFile = { readonly policy: Policy; readonly chips: ChipListReference | null }

/** Reads a policy. `option`: the option that names the file, without dashes. */
export async function readPolicyFile(path: string, option: string): Promise<PolicyInFile> {
  const document = readPolicyJson(path, option)
  const stated = Object.keys(StatedFields.properties).find(name => Object.hasOwn(Object(document), name))
  if (stated !== undefined) {
    throw new InputFault(`--${option} ${path}: policy.${stated}: only commands for instances compare it`, {
      param: option,
      remedy: `leave ${stated} out of this file`,
    })
  }
  return await readingInput(`--${option} ${path}`, () => readPolicyDocument(document))
}

export function readPolicyJson(path: string, option: string): unknown {
  return readJsonInput({ path, param: option, bytesMax: filesBytesMax }, { hasComments: true })
}

/** `schema`: that of the whole file, for examples. Throws Malformed with value and example. */
export function readPolicyDocument(document: unknown, schema: object = policyFileSchema): PolicyInFile {
  requireFormat(document, 'strongroom/snp-policy/v1')
  return explainingPolicy(document, schema, () => {
    const { policy, chips } = splitChipList(document)
    return { policy: parsePolicy(policy), chips }
  })
}

/** Reads the host's certificate table from a file; undefined if none is given. */
export function readTable(path: string | undefined): Uint8Array | undefined {
  return readOptionalInput({ path, param: 'certificate-table', bytesMax: certificateTableBytesMax })
}

function readConfigurationDigest({ configuration, anyConfiguration }: TrustOptions): Trust['configurationDigest'] {
  if (configuration !== undefined && anyConfiguration === true) {
    const remedy = 'leave one of the two out'
    throw new InputFault('--any-configuration contradicts --configuration', { param: 'any-configuration', remedy })
  }
  if (configuration === undefined) return anyConfiguration === true ? 'any' : 'required'
  return sha256(readInput({ path: configuration, param: 'configuration', bytesMax: filesBytesMax }))
}

async function readWorkloadFile(path: string | undefined): Promise<Uint8Array | null> {
  if (path === undefined) return null
  const bytes = readInput({ path, param: 'workload', bytesMax: filesBytesMax })
  // Load the schema only if needed: a report does not need its code.
  const { readWorkload } = await import('../../verifier/workload.ts')
  const read = readWorkload(bytes)
  if (read === null || read.document !== null) return bytes
  throw new InputFault(`--workload ${path}: ${read.reason}`, {
    param: 'workload',
    remedy: 'name workload.json as the operator hands it out, or the gateway serves it',
  })
}

async function readAllowlistFile(path: string | undefined): Promise<Trust['allowlist']> {
  if (path === undefined) return 'any'
  const bytes = readInput({ path, param: 'allowlist', bytesMax: filesBytesMax })
  // Load the schema only if needed: a report does not need its code.
  const { readAllowlist } = await import('../../verifier/allowlist.ts')
  return await readingInput(`--allowlist ${path}`, () => readAllowlist(bytes))
}
