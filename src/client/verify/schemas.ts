// strongroom verify policy-schema, tdx-policy-schema, verdict-schema and tcb-floors: prints data of the other commands.

import { tdxPolicySchema } from '../../attest/tdx/policy.ts'
import type { Command } from '../../terminal/command.ts'
import { json } from '../../terminal/render.ts'
import { instancePolicySchema } from '../trust/instance-policy.ts'
import { floorsDocument, floorsText } from './floors-render.ts'
import { verdictSchema } from './verdict-schema.ts'

export function addPolicySchema(verify: Command): void {
  addSchema(verify, 'policy', { of: 'the file that --policy takes', schema: instancePolicySchema })
}

export function addTdxPolicySchema(verify: Command): void {
  addSchema(verify, 'tdx-policy', { of: 'the file that `verify tdx --policy` takes', schema: tdxPolicySchema })
}

export function addVerdictSchema(verify: Command): void {
  addSchema(verify, 'verdict', { of: 'the documents of these commands with --json', schema: verdictSchema })
}

export function addTcbFloors(verify: Command): void {
  verify
    .command('tcb-floors')
    .description("print the least firmware that passes for each processor, with AMD's bulletin and its source")
    .examples('strongroom verify tcb-floors', 'strongroom verify tcb-floors --json')
    .runs(async run => {
      await run.result(floorsDocument(), floorsText(run.paint))
    })
}

export function addSchema(
  verify: Command,
  name: 'policy' | 'tdx-policy' | 'gpu-policy' | 'verdict',
  { of, schema }: { readonly of: string; readonly schema: object },
): void {
  verify
    .command(`${name}-schema`)
    .description(`print the JSON schema (2020-12) of ${of}`)
    .examples(`strongroom verify ${name}-schema > ${name}.schema.json`)
    .runs(async run => await run.result(schema, json(schema)))
}
