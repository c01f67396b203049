// The gateway that an owner accepts for an instance's prompts, as options. Effects: reads the policy.

import { Option } from 'commander'
import { laterFieldsIn, type Policy } from '../../attest/policy/policy.ts'
import { checkValue } from '../../contract/check.ts'
import { UnattestedReason } from '../../contract/vm/inference-gateway.ts'
import type { ExpectedGateway } from '../../verifier/claim.ts'
import type { Command } from '../cli.ts'
import type { ClientDefaults } from '../client-config.ts'
import { InputFault } from '../exit.ts'
import { addOutsideOption, readPolicyFile } from './trust-options.ts'

export type GatewayPinOptions = {
  gatewayPolicy?: string
  unattestedGateway?: string
  allowOutside?: readonly string[]
}

const reasons = UnattestedReason.anyOf.map(item => item.const)

export function addGatewayPinOptions(command: Command): Command {
  command
    .option(
      '--gateway-policy <file>',
      'policy of the gateway that gets its prompts, as for `verify gateway`: its measurements and idKeyDigest count',
    )
    .addOption(
      new Option(
        '--unattested-gateway <why>',
        'accept a gateway that nothing vouches for, for this reason: who runs it reads the prompts',
      ).choices(reasons),
    )
  return addOutsideOption(command)
}

/** An option goes before the same one of client.toml. */
export async function readExpectedGateway(
  { gatewayPolicy, unattestedGateway, allowOutside }: GatewayPinOptions,
  defaults: ClientDefaults,
): Promise<ExpectedGateway> {
  const path = gatewayPolicy ?? defaults.gateway_policy
  return {
    policy: path === undefined ? 'any' : await readGatewayPolicy(path),
    outside: allowOutside ?? namesIn(defaults.allow_outside),
    unattested: reasonIn(unattestedGateway ?? defaults.unattested_gateway),
  }
}

/** The instance itself verifies the gateway, with these two fields: what more a policy asks for would not be met. */
async function readGatewayPolicy(path: string): Promise<Policy> {
  const policy = await readPolicyFile(path, 'gateway-policy')
  const [unused] = laterFieldsIn(policy)
  if (unused === undefined) return policy
  throw new InputFault(`--gateway-policy ${path}: policy.${unused}: only measurements and idKeyDigest count here`, {
    param: 'gateway-policy',
    remedy: `leave ${unused} out, and name it in the --policy of \`verify gateway\``,
  })
}

function namesIn(text: string | undefined): string[] {
  return (text ?? '')
    .split(',')
    .map(name => name.trim())
    .filter(name => name !== '')
}

function reasonIn(text: string | undefined): ExpectedGateway['unattested'] {
  if (text === undefined) return 'none'
  const result = checkValue(UnattestedReason, text)
  if (result.ok) return result.value
  throw new InputFault(`unattested_gateway: ${JSON.stringify(text)} is none of ${reasons.join(', ')}`, {
    param: 'unattested-gateway',
    remedy: 'correct client.toml',
  })
}
