// strongroom id-block create: signs the requirements for a launch with the owner's key. Effects: reads and writes the
// named files.

import { Type } from '@sinclair/typebox'
import { Option } from 'commander'
import { guestPolicy as policyDefault } from '../../attest/launch/guest.ts'
import { ID_BLOCK, type IdBlock } from '../../attest/launch/id-block.ts'
import { signIdBlock } from '../../attest/launch/id-block-sign.ts'
import { verifyIdBlock } from '../../attest/launch/id-block-verify.ts'
import { hasBit, POLICY_BITS } from '../../attest/report/bits.ts'
import { assert, present } from '../../base/assert.ts'
import { fromHex, toHex } from '../../base/bytes.ts'
import { checkValue } from '../../contract/check.ts'
import type { Command, Run } from '../../terminal/command.ts'
import { InputFault } from '../../terminal/exit.ts'
import { inputFault, MIB, readJsonInput } from '../../terminal/input-file.ts'
import { hexOption, unsignedOption } from '../../terminal/options.ts'
import { writeOutputs } from '../../terminal/output-file.ts'
import { dash, fields, hexNumber } from '../../terminal/render.ts'
import { readSigningKey } from './signing-key.ts'

type CreateOptions = {
  measurement?: Uint8Array
  launch?: string
  policy: bigint
  familyId: Uint8Array
  imageId: Uint8Array
  guestSvn: bigint
  idKey: string
  authorKey?: string
  outIdBlock: string
  outIdAuth: string
}

const idBytes = ID_BLOCK.familyId[1]
const measurementBytes = ID_BLOCK.measurement[1]
const svnBits = 8 * ID_BLOCK.guestSvn[1]
const documentBytesMax = 16 * MIB

export function addIdBlockCreate(idBlock: Command): void {
  const noId = new Uint8Array(idBytes)
  idBlock
    .command('create')
    .description('write an ID block, signed with your key: the firmware then starts only the launch that it names')
    .option('--measurement <hex>', 'launch digest that the VM must have', hexOption(measurementBytes))
    .option('--launch <file>', 'instead of --measurement: the output of `strongroom measure … --json`')
    .addOption(
      new Option('--policy <bits>', 'guest policy of the launch; the default allows SMT, no debug and no migration')
        .argParser(unsignedOption(64))
        .default(policyDefault, hexNumber(policyDefault)),
    )
    .addOption(
      new Option('--family-id <hex>', 'FAMILY_ID of reports').argParser(hexOption(idBytes)).default(noId, 'zeros'),
    )
    .addOption(
      new Option('--image-id <hex>', 'IMAGE_ID of reports').argParser(hexOption(idBytes)).default(noId, 'zeros'),
    )
    .addOption(
      new Option('--guest-svn <number>', 'GUEST_SVN of reports').argParser(unsignedOption(svnBits)).default(0n, '0'),
    )
    .requiredOption('--id-key <file>', 'private key on P-384, PEM; reports have its digest')
    .option('--author-key <file>', 'private key on P-384 that signs the ID key, PEM; reports have its digest, too')
    .requiredOption('--out-id-block <file>', 'file to write; it must not exist')
    .requiredOption('--out-id-auth <file>', 'file to write; it must not exist')
    .examples(
      'strongroom id-block create --measurement DIGEST --id-key id-key.pem \\\n' +
        '    --out-id-block id-block.bin --out-id-auth id-auth.bin',
      'strongroom measure ovmf … --json > launch.json\n' +
        '  strongroom id-block create --launch launch.json --guest-svn 2 --id-key id-key.pem --author-key author.pem \\\n' +
        '    --out-id-block id-block.bin --out-id-auth id-auth.bin',
    )
    .runs(create)
}

async function create(run: Run, options: CreateOptions): Promise<void> {
  const { policy, familyId, imageId, outIdBlock, outIdAuth } = options
  if (!hasBit(policy, POLICY_BITS.reservedOne)) {
    const remedy = `set it, as in ${hexNumber(policy | (1n << BigInt(POLICY_BITS.reservedOne)))}`
    throw new InputFault('--policy: bit 17 must be one, or no firmware starts the launch', { param: 'policy', remedy })
  }
  const block: IdBlock = {
    measurement: measurementOf(options),
    familyId,
    imageId,
    guestSvn: Number(options.guestSvn),
    policy,
  }
  const keys = {
    idKey: await readSigningKey(options.idKey, 'id-key'),
    ...(options.authorKey === undefined ? {} : { authorKey: await readSigningKey(options.authorKey, 'author-key') }),
  }
  const made = await signIdBlock(block, keys)
  const { ok, idKeyDigest, authorKeyDigest } = await verifyIdBlock({ ...made, author: 'any' })
  assert(ok, 'what was signed verifies')
  const outputs = [
    { path: outIdBlock, param: 'out-id-block', bytes: made.idBlock },
    { path: outIdAuth, param: 'out-id-auth', bytes: made.idAuth },
  ]
  writeOutputs(outputs, { replaces: false })
  const document = {
    id_block: outIdBlock,
    id_auth: outIdAuth,
    measurement: toHex(block.measurement),
    policy: hexNumber(policy),
    family_id: toHex(familyId),
    image_id: toHex(imageId),
    guest_svn: block.guestSvn,
    id_key_digest: toHex(present(idKeyDigest, 'a verified ID block has a key')),
    author_key_digest: authorKeyDigest === null ? null : toHex(authorKeyDigest),
  }
  await run.result(
    document,
    fields(
      run.paint,
      Object.entries(document).map(([name, value]) => [name, dash(value)]),
    ),
  )
  for (const bit of ['debug', 'migrate'] as const) {
    if (hasBit(policy, POLICY_BITS[bit])) await run.hint(`the policy has ${bit} set: ${DANGERS[bit]}`)
  }
}

const DANGERS = {
  debug: 'the host may read and write the memory of the guest',
  migrate: 'the host may move the guest by a migration agent',
} as const

function measurementOf({ measurement, launch }: CreateOptions): Uint8Array {
  if ((measurement === undefined) === (launch === undefined)) {
    const found = measurement === undefined ? 'neither is' : 'both are'
    throw new InputFault(`exactly one of --measurement and --launch names the launch digest; ${found} there`, {
      param: 'measurement',
      remedy: 'compute it with `strongroom measure`',
    })
  }
  return measurement ?? launchDigestOf(present(launch, 'one of the two is there'))
}

/** The relevant fields of a document of `strongroom measure`. `ok` is present if it was compared. */
const LaunchDocument = Type.Object({
  digest: Type.String({ pattern: `^[0-9a-f]{${2 * measurementBytes}}$` }),
  ok: Type.Optional(Type.Boolean()),
})

function launchDigestOf(path: string): Uint8Array {
  const input = { path, param: 'launch', bytesMax: documentBytesMax }
  const found = checkValue(LaunchDocument, readJsonInput(input))
  const remedy = 'name what `strongroom measure … --json` has printed'
  if (!found.ok) throw inputFault(input, `no launch digest: ${found.problem}`, remedy)
  if (found.value.ok === false) {
    throw inputFault(input, 'the digest in it is not the expected one', 'measure what you expect')
  }
  return present(fromHex(found.value.digest), 'the schema requires hexadecimal')
}
