// Binary caches that lie: what they say of a path and its bytes is the test's own. Effects: files where the servers
// have them; runs Nix without a store.

import { createHash, generateKeyPairSync, sign } from 'node:crypto'
import * as fs from 'node:fs'
import { join } from 'node:path'
import { succeed } from '../../../../scripts/rigs/guest/root.ts'
import { fingerprintOf } from '../../../../src/builder/nix/realise.plan.ts'
import { type FetchServers, gitHost } from '../fetch-servers.ts'
import type { NixCache } from '../nix-cache.ts'

/** A program is a file that may be run. */
type Form = 'file' | 'program' | 'link'

export type Told = {
  readonly path: string
  /** Content of the file that the path is, or where a link leads. */
  readonly text: string
  readonly form?: Form
  readonly references?: readonly string[]
  readonly isSigned?: boolean
  /** As in the description of the path: `fixed:sha256:HEX`. */
  readonly contentAddress?: string
}

/** A key for lies, as a request names it, and what signs with it. */
export function makeKey(name = 'lies-1') {
  const { privateKey, publicKey } = generateKeyPairSync('ed25519')
  const raw = publicKey.export({ format: 'der', type: 'spki' }).subarray(-32)
  return {
    publicKey: `${name}:${raw.toString('base64')}`,
    sign: (bytes: Uint8Array) => `${name}:${sign(null, bytes, privateKey).toString('base64')}`,
  }
}

/** A cache with these descriptions. The one with the lowest `priority` is asked first. */
export function makeLyingCache(
  { repositories }: FetchServers,
  name: string,
  { key, told, priority = 30 }: { key: ReturnType<typeof makeKey>; told: readonly Told[]; priority?: number },
): NixCache['cache'] {
  const dir = join(repositories, `${name}-cache`)
  fs.mkdirSync(join(dir, 'nar'), { recursive: true })
  fs.writeFileSync(join(dir, 'nix-cache-info'), `StoreDir: /nix/store\nWantMassQuery: 1\nPriority: ${priority}\n`)
  for (const { path, text, form, references = [], isSigned = true, contentAddress = null } of told) {
    const nar = narOf(text, form)
    const digest = path.slice('/nix/store/'.length, '/nix/store/'.length + 32)
    const narSha256 = createHash('sha256').update(nar).digest('hex')
    const info = { path, narSha256, narBytes: nar.length, references, signatures: [], contentAddress }
    fs.writeFileSync(join(dir, `nar/${digest}.nar`), nar)
    const lines = [
      `StorePath: ${path}`,
      `URL: nar/${digest}.nar`,
      'Compression: none',
      `NarHash: sha256:${narSha256}`,
      `NarSize: ${nar.length}`,
      `References: ${references.map(path => path.slice('/nix/store/'.length)).join(' ')}`,
      ...(isSigned ? [`Sig: ${key.sign(fingerprintOf(info))}`] : []),
      ...(contentAddress === null ? [] : [`CA: ${contentAddress}`]),
    ]
    fs.writeFileSync(join(dir, `${digest}.narinfo`), `${lines.join('\n')}\n`)
  }
  return { url: `https://${gitHost}/${name}-cache`, publicKey: key.publicKey }
}

/** A file or link as a Nix archive (nix.dev/manual/nix/2.26, "Nix Archive (NAR) format"). */
function narOf(content: string, form: Form = 'file'): Buffer {
  const text = (value: string) => {
    const bytes = Buffer.from(value)
    const length = Buffer.alloc(8)
    length.writeBigUInt64LE(BigInt(bytes.length))
    return Buffer.concat([length, bytes, Buffer.alloc((8 - (bytes.length % 8)) % 8)])
  }
  const program = form === 'program' ? ['executable', ''] : []
  const node = form === 'link' ? ['symlink', 'target', content] : ['regular', ...program, 'contents', content]
  return Buffer.concat(['nix-archive-1', '(', 'type', ...node, ')'].map(text))
}

export const sha256Of = (text: string | Uint8Array) => createHash('sha256').update(text).digest('hex')
/** The hash of a file as a recursive fixed output. */
export const narSha256Of = (text: string) => createHash('sha256').update(narOf(text)).digest('hex')

/** The path of a fixed output in the store, as Nix itself names it. */
export function fixedPath(name: string, hex: string, mode: 'flat' | 'recursive' = 'flat'): string {
  const recursive = mode === 'recursive' ? ['--recursive'] : []
  return succeed(['nix-store', '--store', 'dummy://', '--print-fixed-path', ...recursive, 'sha256', hex, name]).trim()
}

/** The path of a derivation's output. */
export function outputPath(expression: string): string {
  const argv = ['nix-instantiate', '--eval', '--readonly-mode', '--store', 'dummy://', '-E', `(${expression}).outPath`]
  return JSON.parse(succeed(argv))
}
