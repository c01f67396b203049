// strongroom verify: evidence against AMD's roots and a policy. Only `gateway` and `instance` use the network.

import { idAuthBytes, idBlockBytes } from '../../attest/launch/id-block.ts'
import { verifyIdBlock } from '../../attest/launch/id-block-verify.ts'
import { policySchema } from '../../attest/policy/schema.ts'
import { toHex } from '../../base/bytes.ts'
import type { Command } from '../cli.ts'
import { readInput } from '../input-file.ts'
import { json, verdictDocument, verdictText } from '../render.ts'
import { addVerifyBuild } from './build.ts'
import { exitCodeOfVerdict } from './failure.ts'
import { floorsDocument, floorsText } from './floors-render.ts'
import { addVerifyGateway } from './gateway.ts'
import { addVerifyInstance } from './instance.ts'
import { addPolicyExample } from './policy-example.ts'
import { addVerifyReport } from './report.ts'
import { addVerifyResponse } from './response.ts'
import { verdictSchema } from './verdict-schema.ts'

export function addVerify(program: Command): void {
  const verify = program
    .command('verify')
    .description(
      'verify evidence: report, id-block, gateway, response, instance, build, policy-schema, policy-example, verdict-schema, tcb-floors; needs no daemon',
    )
    .examples('strongroom verify report --report report.bin --vek vcek.pem --crl crl.der --policy policy.json')

  addVerifyReport(verify)
  addIdBlock(verify)
  addVerifyGateway(verify)
  addVerifyResponse(verify)
  addVerifyInstance(verify)
  addVerifyBuild(verify)

  verify
    .command('policy-schema')
    .description('print the JSON schema (2020-12) of the file that --policy takes')
    .examples('strongroom verify policy-schema > policy.schema.json')
    .runs(async run => {
      await run.result(policySchema, json(policySchema))
    })

  addPolicyExample(verify)

  verify
    .command('verdict-schema')
    .description('print the JSON schema (2020-12) of what these commands print with --json')
    .examples('strongroom verify verdict-schema > verdict.schema.json')
    .runs(async run => {
      await run.result(verdictSchema, json(verdictSchema))
    })

  verify
    .command('tcb-floors')
    .description("print the least firmware that passes, for each processor, with AMD's bulletin and where it was read")
    .examples('strongroom verify tcb-floors', 'strongroom verify tcb-floors --json')
    .runs(async run => {
      await run.result(floorsDocument(), floorsText(run.paint))
    })
}

type IdBlockOptions = { idBlock: string; idAuth: string; requireAuthor?: boolean }

function addIdBlock(verify: Command): void {
  verify
    .command('id-block')
    .description('verify who signed an ID block, and print the key digests that a report of its launch will carry')
    .requiredOption('--id-block <file>', `ID block, ${idBlockBytes} bytes`)
    .requiredOption('--id-auth <file>', `ID authentication, ${idAuthBytes} bytes`)
    .option('--require-author', 'fail without a signature of an author')
    .examples('strongroom verify id-block --id-block id-block.bin --id-auth id-auth.bin')
    .runs(async (run, options: IdBlockOptions) => {
      const found = await verifyIdBlock({
        idBlock: readInput({ path: options.idBlock, param: 'id-block', bytesMax: idBlockBytes }),
        idAuth: readInput({ path: options.idAuth, param: 'id-auth', bytesMax: idAuthBytes }),
        author: options.requireAuthor === true ? 'required' : 'any',
      })
      const hexOrNull = (bytes: Uint8Array | null) => (bytes === null ? null : toHex(bytes))
      const digests = {
        id_key_digest: hexOrNull(found.idKeyDigest),
        author_key_digest: hexOrNull(found.authorKeyDigest),
      }
      const lines = Object.entries(digests).map(([name, digest]) => `${name}: ${digest ?? 'none'}\n`)
      await run.result({ ...verdictDocument(found), ...digests }, lines.join('') + verdictText(found, run.paint))
      run.exitWith(exitCodeOfVerdict(found))
    })
}
