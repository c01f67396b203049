// Orders as an owner makes them, without the client's code: signed with ssh-keygen, sealed to receipt keys.

import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { encapsulateWith } from '../../../src/attest/receipt/encapsulate.ts'
import type { AgreementKeys } from '../../../src/attest/receipt/kem.ts'
import { fromBase64Url, toBase64Url, utf8 } from '../../../src/base/bytes.ts'
import type { OrderReply } from '../../../src/contract/vm/orders/order.ts'
import { nativeAesGcm } from '../../../src/linux/native-aes-gcm.ts'
import { nativeEncapsulation } from '../../../src/linux/native-encapsulation.ts'

export type OwnerKey = { readonly file: string; readonly publicKey: string; readonly fingerprint: string }

function keygen(...args: readonly string[]): string {
  const { status, stdout, stderr } = spawnSync('ssh-keygen', args, { encoding: 'utf8' })
  if (status !== 0) throw new Error(`ssh-keygen ${args.join(' ')}: ${stderr}`)
  return stdout
}

/** A new key in this directory. */
export function newOwnerKey(dir: string, name: string, type: readonly string[] = ['-t', 'ed25519']): OwnerKey {
  const file = join(dir, name)
  keygen('-q', ...type, '-N', '', '-C', `${name}@test`, '-f', file)
  const fingerprint = keygen('-l', '-f', file).split(' ')[1] ?? ''
  return { file, publicKey: readFileSync(`${file}.pub`, 'utf8').trim(), fingerprint }
}

/** A certificate over the key, by a new authority beside it. */
export function certify(key: OwnerKey): string {
  keygen('-q', '-t', 'ed25519', '-N', '', '-f', `${key.file}-authority`)
  keygen('-q', '-s', `${key.file}-authority`, '-I', 'owner', '-n', 'owner,agent', `${key.file}.pub`)
  return `${key.file}-cert.pub`
}

let files = 0

/** The signature of `text`, in the namespace. */
export function signText(dir: string, keyFile: string, text: string, namespace = 'strongroom-order'): string {
  files += 1
  const file = join(dir, `signed-${files}`)
  writeFileSync(file, text)
  keygen('-q', '-Y', 'sign', '-f', keyFile, '-n', namespace, file)
  return readFileSync(`${file}.sig`, 'utf8')
}

export const textOfOrder = (order: string) => `${createHash('sha256').update(order).digest('hex')}\n`

export type SealedLine = {
  readonly line: Uint8Array
  /** The answer in a reply; throws if it is not sealed under this order's key. */
  readonly open: (reply: OrderReply) => unknown
}

export async function sealContent(content: string, keys: AgreementKeys): Promise<SealedLine> {
  const { sharedSecret, encapsulated } = await encapsulateWith('xwing', keys, nativeEncapsulation)
  const cipher = nativeAesGcm(sharedSecret)
  const sealed = toBase64Url(cipher.seal(new Uint8Array(12), utf8(content)))
  const line = utf8(`${JSON.stringify({ encapsulated: toBase64Url(encapsulated), sealed })}\n`)
  const open = (reply: OrderReply) => {
    if (!('sealed' in reply)) throw new Error(`not sealed: ${reply.refused}`)
    const bytes = fromBase64Url(reply.sealed) ?? new Uint8Array(0)
    const text = cipher.open(bytes.subarray(0, 12), bytes.subarray(12))
    if (text instanceof Promise) throw new Error('an answer is short')
    return JSON.parse(Buffer.from(text).toString())
  }
  return { line, open }
}
