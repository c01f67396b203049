// strongroom verify: evidence against AMD's roots and a policy. Only `gateway`, `instance` and `report --fetch` use the
// network.

import { policySchema } from '../../attest/policy/schema.ts'
import type { Command } from '../cli.ts'
import { addIdBlockCheck } from '../id-block/check.ts'
import { json } from '../render.ts'
import { addVerifyBuild } from './build.ts'
import { floorsDocument, floorsText } from './floors-render.ts'
import { addVerifyGateway } from './gateway.ts'
import { addVerifyInstance } from './instance.ts'
import { addPolicyExample } from './policy-example.ts'
import { addVerifyReport } from './report.ts'
import { addVerifyResponse } from './response.ts'
import { verdictSchema } from './verdict-schema.ts'
import { addVerifyVtpm } from './vtpm/vtpm.ts'

export function addVerify(program: Command): void {
  const verify = program
    .command('verify')
    .description(
      'verify evidence: report, vtpm, id-block, gateway, response, instance, build, policy-schema, policy-example, verdict-schema, tcb-floors; needs no daemon',
    )
    .examples('strongroom verify report --report report.bin --vek vcek.pem --crl crl.der --policy policy.json')

  addVerifyReport(verify)
  addVerifyVtpm(verify)
  addIdBlockCheck(verify, 'id-block')
  addVerifyGateway(verify)
  addVerifyResponse(verify)
  addVerifyInstance(verify)
  addVerifyBuild(verify)

  addSchema(verify, 'policy', { of: 'the file that --policy takes', schema: policySchema })

  addPolicyExample(verify)

  addSchema(verify, 'verdict', { of: 'the documents of these commands with --json', schema: verdictSchema })

  verify
    .command('tcb-floors')
    .description("print the least firmware that passes, for each processor, with AMD's bulletin and where it was read")
    .examples('strongroom verify tcb-floors', 'strongroom verify tcb-floors --json')
    .runs(async run => {
      await run.result(floorsDocument(), floorsText(run.paint))
    })
}

function addSchema(
  verify: Command,
  name: 'policy' | 'verdict',
  { of, schema }: { readonly of: string; readonly schema: object },
): void {
  verify
    .command(`${name}-schema`)
    .description(`print the JSON schema (2020-12) of ${of}`)
    .examples(`strongroom verify ${name}-schema > ${name}.schema.json`)
    .runs(async run => await run.result(schema, json(schema)))
}
