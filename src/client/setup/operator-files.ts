// The files of an operator, as `client init` takes them: each by its option, by its usual name in one directory, or as
// the host publishes it. Effects: reads files. Fault invalid_request.

import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { parsedJson } from '../../attest/encoding/json.ts'
import { derBlocks } from '../../attest/encoding/pem.ts'
import { sha256 } from '../../attest/hash.ts'
import { present } from '../../base/assert.ts'
import { toHex, utf8 } from '../../base/bytes.ts'
import type { PublishedFiles } from '../../contract/http/published.ts'
import { InputFault } from '../../terminal/exit.ts'
import { inputFault, isDirectory, MIB, readInput, readingInput } from '../../terminal/input-file.ts'
import { readExpectedImage } from '../../verifier/launch.ts'
import { storedName } from '../known-images.ts'
import { operatorKeyDigest, operatorKeyDigestOf } from '../trust/operator-key-digest.ts'
import { readRoots } from '../trust/trust-options.ts'

export type OperatorOptions = {
  files?: string
  ca?: string
  operatorKey?: string
  image?: string
  gatewayImage?: string
  trustSimulatedRoot?: string
}

export type OperatorFile = {
  /** The field of client.toml. */
  readonly field: 'ca' | 'operator_key' | 'image' | 'gateway_image' | 'trust_simulated_root'
  /** File name beside client.toml, or the digest of the operator key. */
  readonly value: string
  /** Null for a digest. */
  readonly bytes: Uint8Array | null
  /** For people: what the file is, and the digest to compare. */
  readonly words: string
  /** The host itself published it. */
  readonly isFromHost: boolean
  /** In hexadecimal: launch digests of an image, or the digest of the operator key. */
  readonly digests: readonly string[]
}

/** Bytes, and where they are from, for messages. */
type Source = { readonly bytes: Uint8Array; readonly source: string; readonly isFromHost: boolean }

/**
 * Reads each file from its option, the directory or the published document, in this order. Operator key and image are
 * required. `published`: null if the host's document is not used.
 */
export async function readOperatorFiles(
  options: OperatorOptions,
  published: PublishedFiles | null,
): Promise<readonly OperatorFile[]> {
  const { files } = options
  if (files !== undefined && !isDirectory(files)) {
    throw inputFault({ path: files, param: 'files' }, 'it is no directory', 'name the directory with the files')
  }
  const usual = (...names: string[]) => optional(files, join(...names))
  const from = (path: string | undefined, param: string, text: string | null | undefined) => {
    if (path !== undefined) return fileSource(path, param)
    return text == null ? null : { bytes: utf8(text), source: `the published ${param}`, isFromHost: true }
  }
  const { images } = published ?? {}
  const keyPath = options.operatorKey ?? usual('operator-key.pub.pem')
  const found = [
    await authority(from(options.ca ?? usual('ca.pem'), 'ca', published?.ca)),
    await operatorKey(keyPath, () => from(keyPath, 'operator-key', published?.operator_key)),
    await instanceImage(from(options.image ?? usual('instance', 'manifest.json'), 'image', images?.instance)),
    await gatewayImage(
      from(options.gatewayImage ?? usual('inference', 'manifest.json'), 'gateway-image', images?.inference),
    ),
    await simulatedRoot(options.trustSimulatedRoot),
  ]
  return found.filter(file => file !== null)
}

/** Returns the path; undefined if the directory has no such file. */
function optional(files: string | undefined, name: string): string | undefined {
  const path = files === undefined ? undefined : join(files, name)
  return path !== undefined && existsSync(path) ? path : undefined
}

function fileSource(given: string, param: string): Source {
  const path = isDirectory(given) ? join(given, 'manifest.json') : given
  return { bytes: readInput({ path, param, bytesMax: MIB }), source: `--${param} ${path}`, isFromHost: false }
}

async function authority(found: Source | null): Promise<OperatorFile | null> {
  if (found === null) return null
  const { bytes, source, isFromHost } = found
  const [certificate = new Uint8Array()] = await readingInput(source, () =>
    derBlocks(bytes, 'CERTIFICATE', 'authority'),
  )
  const words = `the authority of the API's certificate, SHA-256 ${toHex(sha256(certificate))}`
  return { field: 'ca', value: storedName('ca', bytes, 'pem'), bytes, words, isFromHost, digests: [] }
}

async function operatorKey(given: string | undefined, find: () => Source | null): Promise<OperatorFile> {
  const field = 'operator_key'
  if (given !== undefined && /^[0-9a-fA-F]{96}$/.test(given)) {
    const digest = toHex(await operatorKeyDigest(given))
    return { field, value: digest, bytes: null, words: keyWords(digest), isFromHost: false, digests: [digest] }
  }
  const found = find()
  if (found === null) throw missing('operator-key', 'the operator key', 'operator-key.pub.pem')
  const { bytes, source, isFromHost } = found
  const digest = toHex(await operatorKeyDigestOf(bytes, source))
  const value = storedName('operator-key', bytes, 'pub.pem')
  return { field, value, bytes, words: keyWords(digest), isFromHost, digests: [digest] }
}

function keyWords(digest: string): string {
  return `the operator key, SHA-384 ${digest}`
}

async function instanceImage(found: Source | null): Promise<OperatorFile> {
  if (found === null) throw missing('image', "the manifest of the instances' image", 'instance/manifest.json')
  return await image('image', 'instance', found)
}

async function gatewayImage(found: Source | null): Promise<OperatorFile | null> {
  return found === null ? null : await image('gateway_image', 'inference', found)
}

async function image(field: 'image' | 'gateway_image', expected: string, found: Source): Promise<OperatorFile> {
  const { bytes, source, isFromHost } = found
  const { name, launchDigests } = await readingInput(source, () => readExpectedImage(bytes))
  if (name !== expected) {
    throw new InputFault(`${source}: it is the manifest of ${name}`, {
      param: field === 'image' ? 'image' : 'gateway-image',
      remedy: `name that of the image ${expected}`,
    })
  }
  const words = `the image ${expected}, manifest.json with SHA-256 ${toHex(sha256(bytes))}`
  const digests = [...new Set(Object.values(launchDigests))]
  return { field, value: storedName(`${expected}-manifest`, bytes, 'json'), bytes, words, isFromHost, digests }
}

/** Returns an image's file with these of its launch digests alone. */
export function withLaunchDigests(file: OperatorFile, kept: ReadonlySet<string>): OperatorFile {
  const manifest = parsedJson('manifest', present(file.bytes, 'a manifest has bytes'))
  const all: Readonly<Record<string, string>> = Reflect.get(Object(manifest), 'launchDigests')
  const launchDigests = Object.fromEntries(Object.entries(all).filter(([, digest]) => kept.has(digest)))
  const bytes = utf8(`${JSON.stringify({ ...Object(manifest), launchDigests }, null, 2)}\n`)
  const count = `${kept.size} of its ${file.digests.length} launch digests`
  return {
    ...file,
    value: storedName(`${file.field === 'image' ? 'instance' : 'inference'}-manifest`, bytes, 'json'),
    bytes,
    words: `${file.words}, kept with ${count}: the log has no entry for the others`,
    digests: [...kept],
  }
}

async function simulatedRoot(path: string | undefined): Promise<OperatorFile | null> {
  if (path === undefined) return null
  await readRoots(path)
  const bytes = readInput({ path, param: 'trust-simulated-root', bytesMax: MIB })
  const words = 'a SIMULATED root: no hardware attests what it signs'
  const field = 'trust_simulated_root'
  return { field, value: storedName('simulated-root', bytes, 'pem'), bytes, words, isFromHost: false, digests: [] }
}

function missing(param: string, what: string, usual: string): InputFault {
  return new InputFault(`${what} is missing`, {
    param,
    remedy: `add --${param} FILE, or --files with a directory that has ${usual} (\`strongroom help client\`)`,
  })
}
