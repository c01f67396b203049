// A proof that an entry is in a log (C2SP tlog-proof): its index, the hashes up to the root, and the checkpoint as the
// log and its witnesses signed it. Pure; throws Malformed.

import { fromBase64, fromUtf8, toBase64, utf8 } from '../../base/bytes.ts'
import { Malformed, wellFormed } from '../malformed.ts'
import { type LogHash, logHashBytes, proofHashesMax } from './merkle.ts'
import { decodeNote, encodeNote, type Note, noteBytesMax } from './note.ts'

export type LogProof = {
  readonly index: number
  /** Hashes from the leaf's sibling up to the child of the root. */
  readonly hashes: readonly LogHash[]
  readonly note: Note
}

const header = 'c2sp.org/tlog-proof@v1'
export const logProofBytesMax = noteBytesMax + 8 * 1024

export function encodeLogProof({ index, hashes, note }: LogProof): string {
  return [header, `index ${index}`, ...hashes.map(toBase64), '', encodeNote(note)].join('\n')
}

/** Decodes a proof. Ignores the line `extra`, which nothing authenticates. */
export function decodeLogProof(bytes: Uint8Array): LogProof {
  wellFormed(bytes.length <= logProofBytesMax, `log proof: more than ${logProofBytesMax} bytes`)
  const text = decodeText(bytes)
  const at = text.indexOf('\n\n')
  wellFormed(at >= 0, 'log proof: no checkpoint')
  const [first, ...lines] = text.slice(0, at).split('\n')
  wellFormed(first === header, `log proof: its first line is not ${header}`)
  const [indexLine = '', ...hashes] = lines[0]?.startsWith('extra ') === true ? lines.slice(1) : lines
  const [, digits = ''] = /^index (0|[1-9][0-9]{0,15})$/.exec(indexLine) ?? []
  wellFormed(digits !== '' && Number.isSafeInteger(Number(digits)), 'log proof: index')
  wellFormed(hashes.length <= proofHashesMax, `log proof: more than ${proofHashesMax} hashes`)
  return { index: Number(digits), hashes: hashes.map(readHash), note: decodeNote(utf8(text.slice(at + 2))) }
}

function readHash(line: string): LogHash {
  const hash = fromBase64(line)
  wellFormed(hash !== null && hash.length === logHashBytes, 'log proof: a line that is no hash')
  return hash
}

function decodeText(bytes: Uint8Array): string {
  try {
    return fromUtf8(bytes)
  } catch {
    throw new Malformed('log proof: not UTF-8')
  }
}
