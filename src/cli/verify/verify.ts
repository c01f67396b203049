// strongroom verify: evidence against AMD's roots and a policy. Needs no daemon, no configuration and no root; only `gateway` and `instance` use the network.

import type { Command } from 'commander'
import { idAuthBytes, idBlockBytes } from '../../attest/launch/id-block.ts'
import { verifyIdBlock } from '../../attest/launch/id-block-verify.ts'
import { policyWithFloors } from '../../attest/policy/floors.ts'
import { encodePolicy } from '../../attest/policy/policy.ts'
import { HEX_SIZES, policySchema } from '../../attest/policy/schema.ts'
import { present } from '../../base/assert.ts'
import { fromHex, toHex } from '../../base/bytes.ts'
import { type Cli, helpText, runOf } from '../cli.ts'
import { EXIT } from '../exit.ts'
import { readInput } from '../input-file.ts'
import { hexOption } from '../options.ts'
import { json, verdictDocument, verdictText } from '../render.ts'
import { floorsDocument, floorsText } from './floors-render.ts'
import { addVerifyGateway } from './gateway.ts'
import { readImage } from './image-option.ts'
import { addVerifyInstance } from './instance.ts'
import { addVerifyReport } from './report.ts'
import { addVerifyResponse } from './response.ts'

export function addVerify(program: Command, cli: Cli): void {
  const verify = program
    .command('verify')
    .description(
      'verify evidence: report, id-block, gateway, response, instance, policy-schema, policy-example, tcb-floors; needs no daemon',
    )
    .addHelpText(
      'after',
      helpText('strongroom verify report --report report.bin --vek vcek.pem --crl crl.der --policy policy.json'),
    )

  addVerifyReport(verify, cli)
  addIdBlock(verify, cli)
  addVerifyGateway(verify, cli)
  addVerifyResponse(verify, cli)
  addVerifyInstance(verify, cli)

  verify
    .command('policy-schema')
    .description('print the JSON schema (2020-12) of the file that --policy takes')
    .addHelpText('after', helpText('strongroom verify policy-schema > policy.schema.json'))
    .action(async (_options: unknown, command: Command) => {
      await runOf(cli, command).result(policySchema, json(policySchema))
    })

  addPolicyExample(verify, cli)

  verify
    .command('tcb-floors')
    .description("print the least firmware that passes, for each processor, with AMD's bulletin and where it was read")
    .addHelpText('after', helpText('strongroom verify tcb-floors', 'strongroom verify tcb-floors --json'))
    .action(async (_options: unknown, command: Command) => {
      const run = runOf(cli, command)
      await run.result(floorsDocument(), floorsText(run.paint))
    })
}

type ExampleOptions = { image?: string; operatorKey?: Uint8Array }

function addPolicyExample(verify: Command, cli: Cli): void {
  verify
    .command('policy-example')
    .description(
      "print a policy to start from: no debug, no migration, VMPL 0, AMD's floors; replace each 'any' that you can",
    )
    .option('--image <path>', 'directory or manifest.json of an image: its launch digests are the measurements')
    .option(
      '--operator-key <hex>',
      'SHA-384 of the ID key of the operator whose hosts you expect',
      hexOption(HEX_SIZES.idKeyDigest),
    )
    .addHelpText(
      'after',
      helpText(
        'strongroom verify policy-example > policy.json',
        'strongroom verify policy-example --image images/instance --operator-key HEX > policy.json   # for instances',
      ),
    )
    .action(async (options: ExampleOptions, command: Command) => {
      const image = await readImage(options.image)
      const measurements =
        image === 'any'
          ? ('any' as const)
          : unique(image.launchDigests).map(text => present(fromHex(text), 'hexadecimal'))
      const policy = encodePolicy({
        ...policyWithFloors(),
        measurements,
        idKeyDigest: options.operatorKey ?? 'any',
      })
      await runOf(cli, command).result(policy, json(policy))
    })
}

function unique(digests: Readonly<Record<string, string>>): string[] {
  return [...new Set(Object.values(digests))]
}

type IdBlockOptions = { idBlock: string; idAuth: string; requireAuthor?: boolean }

function addIdBlock(verify: Command, cli: Cli): void {
  verify
    .command('id-block')
    .description('verify who signed an ID block, and print the key digests that a report of its launch will carry')
    .requiredOption('--id-block <file>', `ID block, ${idBlockBytes} bytes`)
    .requiredOption('--id-auth <file>', `ID authentication, ${idAuthBytes} bytes`)
    .option('--require-author', 'fail without a signature of an author')
    .addHelpText('after', helpText('strongroom verify id-block --id-block id-block.bin --id-auth id-auth.bin'))
    .action(async (options: IdBlockOptions, command: Command) => {
      const run = runOf(cli, command)
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
      if (!found.ok) run.exitWith(EXIT.failed)
    })
}
