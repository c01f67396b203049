// Options for the gateway to which an instance's owner allows sending prompts. Effects: reads the policy.

import { Option } from 'commander'
import { sha256 } from '../../attest/hash.ts'
import { laterFieldsIn } from '../../attest/policy/encode.ts'
import type { Policy } from '../../attest/policy/policy.ts'
import { checkValue } from '../../contract/check.ts'
import { exposureNames } from '../../contract/vm/exposure.ts'
import { UnattestedReason } from '../../contract/vm/inference-gateway.ts'
import { workloadBytesMax } from '../../contract/vm/workload.ts'
import type { Command } from '../../terminal/command.ts'
import { InputFault } from '../../terminal/exit.ts'
import { pastedHex } from '../../terminal/hex.ts'
import { readInput } from '../../terminal/input-file.ts'
import { type AllowedOfInstance, type ExpectedGateway, hostKeyName } from '../../verifier/claim.ts'
import type { ClientDefaults } from '../client-config.ts'
import { addAllowOption, addOutsideOption, readPolicyFile } from '../trust/trust-options.ts'
import { withGatewayImage } from './config-pins.ts'

export type GatewayPinOptions = {
  gatewayPolicy?: string
  unattestedGateway?: string
  allowOutside?: readonly string[]
  gatewayWorkload?: readonly string[]
  allow?: readonly AllowedOfInstance[]
}

const allowedNames: readonly AllowedOfInstance[] = [...exposureNames, hostKeyName]
export const unattestedReasons = UnattestedReason.anyOf.map(item => item.const)

export function addGatewayPinOptions(command: Command): Command {
  command
    .option(
      '--gateway-policy <file>',
      'policy of the gateway that gets its prompts, as for `verify gateway`: its measurements, idKeyDigest and hostData count',
    )
    .option(
      '--gateway-workload <file|hex>',
      'workload.json of that gateway, or its SHA-256: the claim may name no other; repeatable',
      (text: string, before: readonly string[] = []) => [...before, text],
    )
    .addOption(
      new Option(
        '--unattested-gateway <why>',
        'accept an unattested gateway for this reason: its operator can read the prompts',
      ).choices(unattestedReasons),
    )
  return addAllowOption(
    addOutsideOption(command),
    allowedNames,
    `accept this setting of the gateway, or, by ${hostKeyName}, that the VM drew no gateway key of its own`,
  )
}

/** Reads the expected gateway. An option takes precedence over its default in client.toml. */
export async function readExpectedGateway(
  { gatewayPolicy, unattestedGateway, allowOutside, gatewayWorkload, allow }: GatewayPinOptions,
  defaults: ClientDefaults,
): Promise<ExpectedGateway> {
  const path = gatewayPolicy ?? defaults.gateway_policy
  const policy = await withGatewayImage(path === undefined ? 'any' : await readGatewayPolicy(path), defaults)
  const named = gatewayWorkload ?? (defaults.gateway_workload === undefined ? [] : [defaults.gateway_workload])
  const ofPolicy = policy === 'any' || policy.hostData === 'any' ? [] : [policy.hostData]
  const workloads = [...ofPolicy, ...named.map(workloadDigest)]
  return {
    policy,
    outside: allowOutside ?? namesIn(defaults.allow_outside),
    allow: allow ?? namesIn(defaults.allow).map(allowedIn),
    ...(workloads.length === 0 ? {} : { workloads }),
    unattested: reasonIn(unattestedGateway ?? defaults.unattested_gateway),
  }
}

/** Returns the given SHA-256 in hexadecimal, or the file's. */
function workloadDigest(text: string): Uint8Array {
  const digest = pastedHex(text)
  if (digest?.length === 32) return digest
  return sha256(readInput({ path: text, param: 'gateway-workload', bytesMax: workloadBytesMax }))
}

/**
 * Reads the policy. The instance itself verifies the gateway with these three fields, so further fields are an error.
 */
async function readGatewayPolicy(path: string): Promise<Policy> {
  const { policy, chips } = await readPolicyFile(path, 'gateway-policy')
  const [unused] = [...(chips === null ? [] : ['chipIds']), ...laterFieldsIn(policy)]
  if (unused === undefined) return policy
  throw new InputFault(
    `--gateway-policy ${path}: policy.${unused}: only measurements, idKeyDigest and hostData count here`,
    {
      param: 'gateway-policy',
      remedy: `leave ${unused} out, and name it in the --policy of \`verify gateway\``,
    },
  )
}

function namesIn(text: string | undefined): string[] {
  return (text ?? '')
    .split(',')
    .map(name => name.trim())
    .filter(name => name !== '')
}

function allowedIn(text: string): AllowedOfInstance {
  const allowed = allowedNames.find(name => name === text)
  if (allowed !== undefined) return allowed
  throw new InputFault(`allow: ${JSON.stringify(text)} is none of ${allowedNames.join(', ')}`, {
    param: 'allow',
    remedy: 'correct client.toml',
  })
}

function reasonIn(text: string | undefined): ExpectedGateway['unattested'] {
  if (text === undefined) return 'none'
  const result = checkValue(UnattestedReason, text)
  if (result.ok) return result.value
  throw new InputFault(`unattested_gateway: ${JSON.stringify(text)} is none of ${unattestedReasons.join(', ')}`, {
    param: 'unattested-gateway',
    remedy: 'correct client.toml',
  })
}
