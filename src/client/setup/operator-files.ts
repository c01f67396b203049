// The files of an operator, as `client init` takes them: each by its option, or by its usual name in one directory.
// Effects: reads files. Fault invalid_request.

import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { derBlocks } from '../../attest/encoding/pem.ts'
import { sha256 } from '../../attest/hash.ts'
import { toHex } from '../../base/bytes.ts'
import { InputFault } from '../../terminal/exit.ts'
import { inputFault, isDirectory, MIB, readInput, readingInput } from '../../terminal/input-file.ts'
import { type ExpectedImage, readExpectedImage } from '../../verifier/launch.ts'
import { operatorKeyDigest } from '../trust/operator-key-digest.ts'
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
  /** Its name beside client.toml; the operator key may be its digest instead. */
  readonly value: string
  /** Null for a digest. */
  readonly bytes: Uint8Array | null
  /** For people: what the file is, and the digest to compare. */
  readonly words: string
}

/** A file that neither option nor directory has is left out; operator key and image are required. */
export async function readOperatorFiles(options: OperatorOptions): Promise<readonly OperatorFile[]> {
  const { files } = options
  if (files !== undefined && !isDirectory(files)) {
    throw inputFault({ path: files, param: 'files' }, 'it is no directory', 'name the directory with the files')
  }
  const usual = (...names: string[]) => optional(files, join(...names))
  const found = [
    await authority(options.ca ?? usual('ca.pem')),
    await operatorKey(options.operatorKey ?? usual('operator-key.pub.pem')),
    await image('image', 'instance', options.image ?? usual('instance', 'manifest.json')),
    await image('gateway_image', 'inference', options.gatewayImage ?? usual('inference', 'manifest.json')),
    await simulatedRoot(options.trustSimulatedRoot),
  ]
  return found.filter(file => file !== null)
}

/** Undefined if the directory has no such file. */
function optional(files: string | undefined, name: string): string | undefined {
  const path = files === undefined ? undefined : join(files, name)
  return path !== undefined && existsSync(path) ? path : undefined
}

async function authority(path: string | undefined): Promise<OperatorFile | null> {
  if (path === undefined) return null
  const bytes = readInput({ path, param: 'ca', bytesMax: MIB })
  const [certificate = new Uint8Array()] = await readingInput(`--ca ${path}`, () =>
    derBlocks(bytes, 'CERTIFICATE', 'authority'),
  )
  const words = `the authority of the API's certificate, SHA-256 ${toHex(sha256(certificate))}`
  return { field: 'ca', value: 'ca.pem', bytes, words }
}

async function operatorKey(given: string | undefined): Promise<OperatorFile> {
  if (given === undefined) throw missing('operator-key', 'the operator key', 'operator-key.pub.pem')
  const digest = toHex(await operatorKeyDigest(given))
  const words = `the operator key, SHA-384 ${digest}`
  if (given.toLowerCase() === digest) return { field: 'operator_key', value: digest, bytes: null, words }
  const bytes = readInput({ path: given, param: 'operator-key', bytesMax: MIB })
  return { field: 'operator_key', value: 'operator-key.pub.pem', bytes, words }
}

async function image(
  field: 'image' | 'gateway_image',
  expected: string,
  given: string | undefined,
): Promise<OperatorFile | null> {
  const param = field === 'image' ? 'image' : 'gateway-image'
  if (given === undefined) {
    if (field === 'gateway_image') return null
    throw missing(param, "the manifest of the instances' image", 'instance/manifest.json')
  }
  const path = isDirectory(given) ? join(given, 'manifest.json') : given
  const bytes = readInput({ path, param, bytesMax: MIB })
  const manifest: ExpectedImage = await readingInput(`--${param} ${path}`, () => readExpectedImage(bytes))
  if (manifest.name !== expected) {
    throw inputFault({ path, param }, `it is the manifest of ${manifest.name}`, `name that of the image ${expected}`)
  }
  const words = `the image ${expected}, manifest.json with SHA-256 ${toHex(sha256(bytes))}`
  return { field, value: `${expected}-manifest.json`, bytes, words }
}

async function simulatedRoot(path: string | undefined): Promise<OperatorFile | null> {
  if (path === undefined) return null
  await readRoots(path)
  const bytes = readInput({ path, param: 'trust-simulated-root', bytesMax: MIB })
  const words = 'a SIMULATED root: no hardware attests what it signs'
  return { field: 'trust_simulated_root', value: 'simulated-root.pem', bytes, words }
}

function missing(param: string, what: string, usual: string): InputFault {
  return new InputFault(`${what} is missing`, {
    param,
    remedy: `add --${param} FILE, or --files with a directory that has ${usual} (\`strongroom help client\`)`,
  })
}
