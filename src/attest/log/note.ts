// Signed notes (C2SP signed-note): a text and lines of signatures. Pure; throws Malformed.

import { concat, equalConstantTime, fromBase64, fromUtf8, toBase64, utf8 } from '../../base/bytes.ts'
import { sha256 } from '../hash.ts'
import { Malformed, wellFormed } from '../malformed.ts'

/** Supported signature types. */
export const SIGNATURE_TYPES = { ed25519: 0x01, cosignature: 0x04 } as const satisfies Record<string, number>
export type SignatureType = keyof typeof SIGNATURE_TYPES

/** A trusted key, as encoded in a vkey: `NAME+ID+BASE64`. */
export type NoteKey = {
  readonly name: string
  readonly type: SignatureType
  /** Ed25519, 32 bytes. */
  readonly publicKey: Uint8Array
}

export type NoteSignature = {
  readonly name: string
  /** 4 bytes. */
  readonly keyId: Uint8Array
  readonly signature: Uint8Array
}

export type Note = {
  /** The signed text, including its last newline. */
  readonly text: string
  readonly signatures: readonly NoteSignature[]
}

export const noteBytesMax = 64 * 1024
/** Limit on signatures of logs and their witnesses. */
const signaturesMax = 64
const nameCharsMax = 255
const keyIdBytes = 4
const publicKeyBytes = 32

/** Returns SHA-256 of name, newline, type and key, truncated to 4 bytes. */
export function keyIdOf({ name, type, publicKey }: NoteKey): Uint8Array {
  return sha256(concat(utf8(`${name}\n`), Uint8Array.of(SIGNATURE_TYPES[type]), publicKey)).slice(0, keyIdBytes)
}

export function encodeNoteKey(key: NoteKey): string {
  const id = Array.from(keyIdOf(key), byte => byte.toString(16).padStart(2, '0')).join('')
  return `${key.name}+${id}+${toBase64(concat(Uint8Array.of(SIGNATURE_TYPES[key.type]), key.publicKey))}`
}

export function decodeNoteKey(text: string): NoteKey {
  const [, name, id = '', encoded = ''] = /^([^+\s]+)\+([0-9a-f]{8})\+([A-Za-z0-9+/]+=*)$/.exec(text) ?? []
  wellFormed(name !== undefined && isName(name), 'key of a note: it is not NAME+ID+KEY')
  const bytes = fromBase64(encoded)
  wellFormed(bytes !== null && bytes.length === 1 + publicKeyBytes, `key of the note ${name}: not 33 bytes of base64`)
  const type = typeOf(bytes[0] ?? 0)
  wellFormed(type !== null, `key of the note ${name}: the type ${bytes[0]} is not known`)
  const key: NoteKey = { name, type, publicKey: bytes.slice(1) }
  wellFormed(encodeNoteKey(key).split('+')[1] === id, `key of the note ${name}: its ID is not ${id}`)
  return key
}

function typeOf(byte: number): SignatureType | null {
  const names = Object.keys(SIGNATURE_TYPES) as SignatureType[]
  return names.find(name => SIGNATURE_TYPES[name] === byte) ?? null
}

/** Accepts no Unicode spaces and no plus, which would make lines ambiguous. */
function isName(name: string): boolean {
  return name.length > 0 && name.length <= nameCharsMax && /^[^\p{White_Space}+\p{C}]+$/u.test(name)
}

export function decodeNote(bytes: Uint8Array): Note {
  wellFormed(bytes.length <= noteBytesMax, `note: more than ${noteBytesMax} bytes`)
  const whole = decodeText(bytes)
  // The last empty line separates text and signatures.
  const at = whole.lastIndexOf('\n\n')
  wellFormed(at >= 0 && whole.endsWith('\n'), 'note: no empty line before its signatures')
  const lines = whole.slice(at + 2, -1).split('\n')
  wellFormed(lines.length <= signaturesMax, `note: more than ${signaturesMax} signatures`)
  return { text: whole.slice(0, at + 1), signatures: lines.map(readSignature) }
}

function decodeText(bytes: Uint8Array): string {
  let text: string
  try {
    text = fromUtf8(bytes)
  } catch {
    throw new Malformed('note: not UTF-8')
  }
  wellFormed(!/[\u0000-\u0009\u000b-\u001f]/.test(text), 'note: control characters')
  return text
}

function readSignature(line: string): NoteSignature {
  const [, name = '', encoded = ''] = /^\u2014 (\S+) ([A-Za-z0-9+/]+=*)$/u.exec(line) ?? []
  const bytes = fromBase64(encoded)
  wellFormed(isName(name) && bytes !== null && bytes.length > keyIdBytes, 'note: a line that is no signature')
  return { name, keyId: bytes.slice(0, keyIdBytes), signature: bytes.slice(keyIdBytes) }
}

export function encodeNote({ text, signatures }: Note): string {
  const lines = signatures.map(({ name, keyId, signature }) => `\u2014 ${name} ${toBase64(concat(keyId, signature))}\n`)
  return `${text}\n${lines.join('')}`
}

/** Returns the signatures with this key's name and ID. Does not verify them. */
export function signaturesOf({ signatures }: Note, key: NoteKey): NoteSignature[] {
  const id = keyIdOf(key)
  return signatures.filter(({ name, keyId }) => name === key.name && equalConstantTime(keyId, id))
}
