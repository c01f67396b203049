// A snapshot on this machine: the file of its ciphertext, and beside it FILE.json with what the instance signed.
// Effects: reads and writes these files.

import { createReadStream, existsSync, statSync } from 'node:fs'
import { utf8 } from '../../base/bytes.ts'
import { checkedJson, checkValue } from '../../contract/check.ts'
import { SignedSnapshot, SnapshotHeader } from '../../contract/snapshot.ts'
import { writeFileAtomic } from '../../linux/files.ts'
import { InputFault } from '../../terminal/exit.ts'
import { KIB, readJsonInput } from '../../terminal/input-file.ts'
import { readInstanceHostname } from '../../verifier/instance.ts'
import { ageHeaderBytesMax } from './age-header.ts'

const signedBytesMax = 16 * KIB
const chunkBytes = 256 * KIB
const param = 'from'

/** Path of what the instance signed. */
export function signedPath(file: string): string {
  return `${file}.json`
}

export function writeSigned(file: string, { header, signature }: SignedSnapshot): void {
  writeFileAtomic(signedPath(file), `${JSON.stringify({ header, signature })}\n`, { mode: 0o600 })
}

/** Reads what was signed, unverified, with the host name and number that it states. Fault invalid_request. */
export function readSigned(file: string): SignedSnapshot & Pick<SnapshotHeader, 'hostname' | 'number'> {
  const path = signedPath(file)
  if (statSync(file, { throwIfNoEntry: false })?.isFile() !== true)
    throw new InputFault(`${file}: there is no such file`, {
      param,
      remedy: 'name a file of `strongroom snapshot get`',
    })
  if (!existsSync(path)) {
    throw new InputFault(`${file} has no ${path} beside it, so that nothing proves who made it`, {
      param,
      remedy: 'put the file there that `strongroom snapshot get` wrote with it; by hand: `strongroom help instances`',
    })
  }
  const signed = checkValue(SignedSnapshot, readJsonInput({ path, param, bytesMax: signedBytesMax }))
  if (!signed.ok) throw damaged(path, signed.problem)
  const header = utf8(signed.value.header)
  const { hostname, number } = checkedJson(SnapshotHeader, header, { what: path, code: 'invalid_request' })
  if (readInstanceHostname(hostname) === null) throw damaged(path, 'it names no instance')
  return { ...signed.value, hostname, number }
}

/** The first bytes of a ciphertext. */
export async function headOf(file: string): Promise<Uint8Array> {
  return await Bun.file(file).slice(0, ageHeaderBytesMax).bytes()
}

/** SHA-256 of a file, in hexadecimal. */
export async function digestOf(file: string): Promise<string> {
  const digest = new Bun.CryptoHasher('sha256')
  for await (const chunk of createReadStream(file, { highWaterMark: chunkBytes })) digest.update(chunk)
  return digest.digest('hex')
}

/**
 * Returns a text and then the file from a byte on, as far as the reader has come. Ends before the last bytes if the
 * file is another one by now: age refuses a ciphertext without its end, and `onOther` is called.
 */
export function streamOf(
  text: string,
  file: string,
  { startBytes, sha256, onOther }: { startBytes: number; sha256: string; onOther: () => void },
): ReadableStream<Uint8Array> {
  async function* parts() {
    yield utf8(text)
    const digest = new Bun.CryptoHasher('sha256')
    let skipBytes = startBytes
    let last: Uint8Array = new Uint8Array()
    for await (const chunk of createReadStream(file, { highWaterMark: chunkBytes })) {
      digest.update(chunk)
      if (last.length > 0) yield last
      last = chunk.subarray(skipBytes)
      skipBytes = Math.max(0, skipBytes - chunk.length)
    }
    if (digest.digest('hex') === sha256) yield last
    else onOther()
  }
  const reading: AsyncGenerator<Uint8Array> = parts()
  return new ReadableStream({
    pull: async controller => {
      const next = await reading.next()
      if (next.done === true) controller.close()
      else controller.enqueue(next.value)
    },
    cancel: async () => void (await reading.return(undefined)),
  })
}

function damaged(path: string, problem: string): InputFault {
  return new InputFault(`${path}: ${problem}`, { param, remedy: 'get the snapshot again, or copy both files again' })
}
