// A witness over HTTP (C2SP tlog-witness, add-checkpoint) that keeps the newest tree of each log and verifies proofs by
// itself: node:crypto, RFC 6962 2.1.4 by recursion. The log under test has no part in it.

import { createHash, createPublicKey, verify } from 'node:crypto'
import { encodeNote, keyIdOf, type NoteKey } from '../../../src/attest/log/note.ts'
import { newSigner, type Signer, signedBy } from './log-signer.ts'

type Tree = { readonly size: number; readonly root: string }

export type WitnessServer = AsyncDisposable & {
  readonly signer: Signer
  readonly url: string
  /** By origin. */
  readonly seen: Map<string, Tree>
  /** Status of each answer. */
  readonly answers: number[]
  /** In place of an answer; null for none. */
  answer: ((request: Request) => Response | Promise<Response>) | null
}

/** `logKey`: of any origin; its Ed25519 key alone counts. */
export function startWitness(
  logKey: Pick<NoteKey, 'publicKey'>,
  nowMs: () => number,
  name = 'witness.example/w',
): WitnessServer {
  const signer = newSigner(name, 'cosignature')
  const seen = new Map<string, Tree>()
  const answers: number[] = []
  const server = Bun.serve({
    hostname: '127.0.0.1',
    port: 0,
    development: false,
    fetch: async request => {
      const response = witness.answer === null ? judge(await request.text()) : await witness.answer(request)
      answers.push(response.status)
      return response
    },
  })
  const judge = (body: string): Response => {
    const at = body.indexOf('\n\n')
    const [oldLine = '', ...proof] = body.slice(0, at).split('\n')
    const note = body.slice(at + 2)
    const end = note.indexOf('\n\n')
    const [text, lines] = [
      note.slice(0, end + 1),
      note
        .slice(end + 2)
        .trim()
        .split('\n'),
    ]
    const [origin = '', size = '', root = ''] = text.split('\n')
    if (!lines.some(line => isSigned(line, text, { origin, key: logKey.publicKey })))
      return new Response('', { status: 403 })
    const known = seen.get(origin) ?? { size: 0, root: '' }
    if (oldLine !== `old ${known.size}`) {
      return new Response(`${known.size}\n`, { status: 409, headers: { 'content-type': 'text/x.tlog.size' } })
    }
    const tree = { size: Number(size), root }
    if (tree.size < known.size || !grew(known, tree, proof)) return new Response('', { status: 422 })
    seen.set(origin, tree)
    const signature = signedBy(signer, text, nowMs())
    return new Response(encodeNote({ text: '', signatures: [signature] }).slice(1))
  }
  const witness: WitnessServer = {
    signer,
    url: `http://127.0.0.1:${server.port}/add-checkpoint`,
    seen,
    answers,
    answer: null,
    [Symbol.asyncDispose]: () => server.stop(true),
  }
  return witness
}

function isSigned(
  line: string,
  text: string,
  { origin, key }: { readonly origin: string; readonly key: Uint8Array },
): boolean {
  const [, name = '', encoded = ''] = /^\u2014 (\S+) (\S+)$/u.exec(line) ?? []
  const bytes = Buffer.from(encoded, 'base64')
  const id = Buffer.from(keyIdOf({ name: origin, type: 'ed25519', publicKey: key }))
  const spki = Buffer.concat([Buffer.from('302a300506032b6570032100', 'hex'), key])
  const publicKey = createPublicKey({ key: spki, format: 'der', type: 'spki' })
  return (
    name === origin && bytes.subarray(0, 4).equals(id) && verify(null, Buffer.from(text), publicKey, bytes.subarray(4))
  )
}

function grew(older: Tree, newer: Tree, proof: readonly string[]): boolean {
  if (older.size === 0) return proof.length === 0
  if (older.size === newer.size) return proof.length === 0 && older.root === newer.root
  const hashes = proof.map(text => Buffer.from(text, 'base64'))
  const roots = subtree(older.size, newer.size, true)
  return hashes.length === 0 && roots[0].toString('base64') === older.root && roots[1].toString('base64') === newer.root

  function subtree(m: number, n: number, isWhole: boolean): [Buffer, Buffer] {
    if (m === n) {
      const hash = isWhole ? Buffer.from(older.root, 'base64') : (hashes.shift() ?? Buffer.alloc(32))
      return [hash, hash]
    }
    const k = 2 ** Math.floor(Math.log2(n - 1))
    const [before, after] = m <= k ? subtree(m, k, isWhole) : subtree(m - k, n - k, false)
    const other = hashes.shift() ?? Buffer.alloc(32)
    return m <= k ? [before, node(after, other)] : [node(other, before), node(other, after)]
  }
}

function node(left: Buffer, right: Buffer): Buffer {
  return createHash('sha256')
    .update(Buffer.concat([Buffer.of(1), left, right]))
    .digest()
}
