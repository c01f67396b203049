// strongroom verity: dm-verity root hashes of disk images. Needs no daemon and no root. Effects: reads the image.

import { InvalidArgumentError } from 'commander'
import { check } from '../../attest/verdict.ts'
import { type VerityRoot, verityRoot, verityRootOf } from '../../attest/verity/root.ts'
import { checkVerityParameters, type VerityParameters, veritySaltBytesMax } from '../../attest/verity/superblock.ts'
import { verityDigestBytes } from '../../attest/verity/tree.ts'
import { checkVerity } from '../../attest/verity/verify.ts'
import { equalConstantTime, toHex } from '../../base/bytes.ts'
import { blockSha256 } from '../../linux/native-hash.ts'
import type { Command, Run } from '../../terminal/command.ts'
import { InputFault } from '../../terminal/exit.ts'
import { pastedHex } from '../../terminal/hex.ts'
import { readingInput } from '../../terminal/input-file.ts'
import { countOption, hexOption, required } from '../../terminal/options.ts'
import { fields } from '../../terminal/render.ts'
import { type ImageSource, imageBytesMax, openImage } from './native.ts'
import { showCompared } from './show-digest.ts'

const blockBytesDefault = 4096

type RootOptions = {
  hashOffset?: number
  dataBlocks?: number
  dataBlockSize?: number
  hashBlockSize?: number
  salt?: Uint8Array
  expect?: Uint8Array
}

export function addVerity(program: Command): void {
  const verity = program
    .command('verity')
    .description('dm-verity: root; offline, needs no daemon')
    .examples('strongroom verity root root.img --hash-offset 1048576')

  verity
    .command('root')
    .description('compute the root hash (SHA-256) over a whole image')
    .argument('<image>', 'disk image')
    .option('--hash-offset <bytes>', "offset of veritysetup's superblock in the image", countOption(0, imageBytesMax))
    .option('--data-blocks <count>', 'without a superblock: number of data blocks', countOption(1, imageBytesMax))
    .option('--data-block-size <bytes>', 'without a superblock; default 4096', countOption(512, 65_536))
    .option('--hash-block-size <bytes>', 'without a superblock; default 4096', countOption(512, 65_536))
    .option('--salt <hex>', 'without a superblock; default none', saltOption)
    .option(
      '--expect <hex>',
      'compare the root hash and, with a superblock, the stored tree; exit code 1 when they differ',
      hexOption(verityDigestBytes),
    )
    .examples(
      'strongroom verity root root.img --hash-offset 1048576',
      'strongroom verity root root.img --hash-offset 1048576 --expect 9f86d081…',
      'strongroom verity root root.img --data-blocks 256 --salt 00ff',
    )
    .runs(async (run, path: string, options: RootOptions) => {
      const given = parametersOf(options)
      await using image = await openImage({ path, param: 'image' })
      if (given === null) await rootBySuperblock(run, { path, image, options })
      else await rootByParameters(run, { path, image, given, expect: options.expect })
    })
}

/** Returns the parameters from options; null to use the image's superblock. */
function parametersOf(options: RootOptions): VerityParameters | null {
  const { hashOffset, dataBlocks, dataBlockSize, hashBlockSize, salt } = options
  const isExplicit = [dataBlocks, dataBlockSize, hashBlockSize, salt].some(item => item !== undefined)
  if (hashOffset === undefined && !isExplicit) {
    throw new InputFault('either --hash-offset or --data-blocks is needed', {
      param: 'hash-offset',
      remedy: 'add --hash-offset for an image with a superblock, else --data-blocks',
    })
  }
  if (!isExplicit) return null
  if (hashOffset !== undefined) {
    throw new InputFault('--hash-offset names a superblock, which has all other parameters', {
      param: 'hash-offset',
      remedy: 'leave out --hash-offset, or all other parameters',
    })
  }
  return {
    dataBlocks: required('data-blocks', dataBlocks),
    dataBlockBytes: dataBlockSize ?? blockBytesDefault,
    hashBlockBytes: hashBlockSize ?? blockBytesDefault,
    salt: salt ?? new Uint8Array(0),
  }
}

type Image = { readonly path: string; readonly image: ImageSource }

async function rootBySuperblock(run: Run, { path, image, options }: Image & { options: RootOptions }): Promise<void> {
  const hashOffset = required('hash-offset', options.hashOffset)
  if (options.expect === undefined) {
    const work = () => verityRoot({ data: image, hashOffset }, { hash: blockSha256() })
    return await showCompared(run, shownRoot(await readingInput(path, work), run), null)
  }
  const expected = { rootHash: options.expect, uuid: 'any' } as const
  const checks = await checkVerity({ data: image, hashOffset }, expected, { hash: blockSha256() })
  await showCompared(run, { document: {}, text: '' }, checks)
}

async function rootByParameters(
  run: Run,
  { path, image, given, expect }: Image & { given: VerityParameters; expect: Uint8Array | undefined },
): Promise<void> {
  const root = await readingInput(path, () => {
    checkVerityParameters(given)
    return verityRootOf(image, given, { hash: blockSha256() })
  })
  if (expect === undefined) return await showCompared(run, shownRoot(root, run), null)
  const computed = toHex(root.rootHash)
  const isEqual = equalConstantTime(root.rootHash, expect)
  const reason = `computed ${computed}, expected ${toHex(expect)}`
  await showCompared(run, shownRoot(root, run), [check('verity-root', isEqual, reason, computed)])
}

function shownRoot(root: VerityRoot, run: Run) {
  return { document: rootDocument(root), text: rootText(root, run) }
}

function rootDocument({ rootHash, parameters }: VerityRoot) {
  return {
    root_hash: toHex(rootHash),
    data_blocks: parameters.dataBlocks,
    data_block_size: parameters.dataBlockBytes,
    hash_block_size: parameters.hashBlockBytes,
    salt: toHex(parameters.salt),
  }
}

function rootText(root: VerityRoot, run: Run): string {
  const { root_hash, data_blocks, data_block_size, hash_block_size, salt } = rootDocument(root)
  return fields(run.paint, [
    ['root hash', root_hash],
    ['data', `${data_blocks} blocks of ${data_block_size} bytes`],
    ['hashes', `blocks of ${hash_block_size} bytes`],
    ['salt', salt === '' ? 'none' : salt],
  ])
}

function saltOption(text: string): Uint8Array {
  const bytes = pastedHex(text)
  if (bytes !== null && bytes.length <= veritySaltBytesMax) return bytes
  throw new InvalidArgumentError(`It must be at most ${veritySaltBytesMax} bytes in hexadecimal.`)
}
