// strongroom id-block check, also available as verify id-block. Effects: reads the named files.

import { idAuthBytes, idBlockBytes } from '../../attest/launch/id-block.ts'
import { verifyIdBlock } from '../../attest/launch/id-block-verify.ts'
import { fromBase64, fromUtf8, toHex } from '../../base/bytes.ts'
import { resultOr } from '../../base/result-or.ts'
import type { Command } from '../../terminal/command.ts'
import { readInput } from '../../terminal/input-file.ts'
import { verdictDocument, verdictText } from '../../terminal/render.ts'
import { exitCodeOfVerdict } from '../../terminal/verdict-exit.ts'

type CheckOptions = { idBlock: string; idAuth: string; requireAuthor?: boolean }

/** Adds the command `name` below `parent`. */
export function addIdBlockCheck(parent: Command, name: 'check' | 'id-block'): void {
  parent
    .command(name)
    .description('verify who signed an ID block, and print the key digests that a report of its launch will carry')
    .requiredOption('--id-block <file>', `ID block, ${idBlockBytes} bytes, or base64 of them as QEMU takes it`)
    .requiredOption('--id-auth <file>', `ID authentication, ${idAuthBytes} bytes, or base64 of them`)
    .option('--require-author', 'fail without a signature of an author')
    .examples(`strongroom ${parent.name()} ${name} --id-block id-block.bin --id-auth id-auth.bin`)
    .runs(async (run, options: CheckOptions) => {
      const found = await verifyIdBlock({
        idBlock: readPart(options.idBlock, 'id-block', idBlockBytes),
        idAuth: readPart(options.idAuth, 'id-auth', idAuthBytes),
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

/** Reads a structure of exactly this size, as bytes or as base64. Other contents are returned unchanged, and fail. */
function readPart(path: string, param: string, sizeBytes: number): Uint8Array {
  // A line of base64 takes 4/3 of the space, and line ends every 64 characters or fewer.
  const bytes = readInput({ path, param, bytesMax: 2 * sizeBytes })
  if (bytes.length === sizeBytes) return bytes
  const decoded = resultOr(() => fromBase64(fromUtf8(bytes).replaceAll(/\s+/g, '')), null)
  return decoded?.length === sizeBytes ? decoded : bytes
}
