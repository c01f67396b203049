// Checkpoints of a log (C2SP tlog-checkpoint) with cosignatures of witnesses (C2SP tlog-cosignature). Pure; decoding
// throws Malformed.

import { concat, fromBase64, toBase64, utf8 } from '../../base/bytes.ts'
import { wellFormed } from '../malformed.ts'
import { defaultVerifiers } from '../receipt/verifiers.ts'
import { logHashBytes, type TreeHead } from './merkle.ts'
import { type Note, type NoteKey, type NoteSignature, signaturesOf } from './note.ts'

export type Checkpoint = TreeHead & {
  /** Name of the log. */
  readonly origin: string
  /** Further lines, defined by the log. */
  readonly extensions: readonly string[]
}

const linesMax = 16

export function encodeCheckpoint({ origin, size, root, extensions }: Checkpoint): string {
  return [origin, `${size}`, toBase64(root), ...extensions].map(line => `${line}\n`).join('')
}

/** Decodes the text of a note. */
export function decodeCheckpoint(text: string): Checkpoint {
  const lines = text.slice(0, -1).split('\n')
  const [origin = '', size = '', root = '', ...extensions] = lines
  wellFormed(text.endsWith('\n') && lines.length <= linesMax, 'checkpoint: lines')
  wellFormed(lines.length >= 3 && lines.every(line => line !== ''), 'checkpoint: fewer than three lines')
  wellFormed(/^(?:0|[1-9][0-9]{0,15})$/.test(size) && Number.isSafeInteger(Number(size)), 'checkpoint: size')
  const hash = fromBase64(root)
  wellFormed(hash !== null && hash.length === logHashBytes, 'checkpoint: root hash')
  return { origin, size: Number(size), root: hash, extensions }
}

const timestampBytes = 8
const ed25519Bytes = 64

/**
 * Returns the text that a witness signs. It attests that by this time the witness had seen no inconsistent larger tree.
 */
export function cosignedText(text: string, seconds: bigint): string {
  return `cosignature/v1\ntime ${seconds}\n${text}`
}

/** Encodes `seconds` and the signature together, as in a signature line. */
export function encodeCosignature(seconds: bigint, signature: Uint8Array): Uint8Array {
  const time = new Uint8Array(timestampBytes)
  new DataView(time.buffer).setBigUint64(0, seconds)
  return concat(time, signature)
}

export type Signed = {
  readonly key: NoteKey
  /** Time of a cosignature, in milliseconds since the epoch; null for the log's own signature, which has no time. */
  readonly atMs: number | null
}

/** Returns the keys among `keys` that have at least one valid signature. Ignores invalid signatures of the same key. */
export async function verifiedSigners(note: Note, keys: readonly NoteKey[]): Promise<Signed[]> {
  const found = await Promise.all(keys.map(key => signedBy(note, key)))
  return found.filter(signed => signed !== null)
}

async function signedBy(note: Note, key: NoteKey): Promise<Signed | null> {
  let best: Signed | null = null
  for (const { signature } of signaturesOf(note, key).slice(0, signaturesOfKeyMax)) {
    const signed = await verified({ note, key, signature })
    // A witness may cosign a checkpoint again; use its latest time.
    if (signed !== null && (best === null || (signed.atMs ?? 0) > (best.atMs ?? 0))) best = signed
  }
  return best
}

const signaturesOfKeyMax = 4
const noContext = new Uint8Array(0)

async function verified({
  note,
  key,
  signature,
}: Pick<NoteSignature, 'signature'> & { readonly note: Note; readonly key: NoteKey }): Promise<Signed | null> {
  const isTimed = key.type === 'cosignature'
  const expected = ed25519Bytes + (isTimed ? timestampBytes : 0)
  if (signature.length !== expected) return null
  const view = new DataView(signature.buffer, signature.byteOffset, signature.byteLength)
  const seconds = isTimed ? view.getBigUint64(0) : 0n
  if (seconds > secondsMax) return null
  const message = utf8(isTimed ? cosignedText(note.text, seconds) : note.text)
  const own = isTimed ? signature.subarray(timestampBytes) : signature
  const holds = await defaultVerifiers.ed25519(own, message, key.publicKey, noContext)
  return holds ? { key, atMs: isTimed ? Number(seconds) * 1000 : null } : null
}

/** The last second that an ECMAScript date can represent. */
const secondsMax = 8_640_000_000_000n
