// Manifests of images beside client.toml, each under a name of its content: those that client.toml names, and earlier
// ones, which VMs from before an upgrade still run. Effects: these files. Fault invalid_request.

import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { sha256 } from '../attest/hash.ts'
import { parsed } from '../attest/malformed.ts'
import { toHex, utf8 } from '../base/bytes.ts'
import { resultOr } from '../base/result-or.ts'
import type { ClaimDocument } from '../contract/vm/claim-document.ts'
import type { LaunchDocument } from '../contract/vm/launch.ts'
import { ensureDir, writeFileAtomic } from '../linux/files.ts'
import { MIB } from '../terminal/input-file.ts'
import type { Io } from '../terminal/io.ts'
import { type ExpectedImage, imageCheck, readExpectedImage } from '../verifier/launch.ts'
import { clientDirectory, readOwnFile } from './client-config.ts'

export type ManifestKind = 'instance' | 'inference'

/** No share: files of one user, the first by name. */
const manifestsMax = 64

/** Returns a name of its own for each content: a new file replaces none that client.toml still names. */
export function storedName(name: string, bytes: Uint8Array, extension: string): string {
  return `${name}-${toHex(sha256(bytes)).slice(0, 16)}.${extension}`
}

/** Writes the manifest beside client.toml, unless the directory has it unchanged, and returns its name there. */
export function storeManifest(directory: string, kind: ManifestKind, bytes: Uint8Array): string {
  const name = storedName(`${kind}-manifest`, bytes, 'json')
  if (readStored(directory, kind, name) !== null) return name
  ensureDir(directory, { mode: 0o700 })
  writeFileAtomic(join(directory, name), bytes, { mode: 0o600 })
  return name
}

/** Returns the path of a stored manifest; null if the name is undefined, or the file is missing or another one. */
export function storedManifest(env: Io['env'], kind: ManifestKind, name: string | undefined): string | null {
  const directory = clientDirectory(env)
  if (directory === null || name === undefined) return null
  return readStored(directory, kind, name) === null ? null : join(directory, name)
}

/** Returns the path of the stored manifest of the image that was launched; null without one. */
export function manifestOfLaunch(env: Io['env'], launch: LaunchDocument): string | null {
  return firstStored(env, 'instance', image => imageCheck(image, launch).outcome === 'pass')
}

/** Returns the path of the stored manifest that has each measurement of the claim's gateway; null without one. */
export function manifestOfGateway(env: Io['env'], claim: ClaimDocument): string | null {
  return firstStored(env, 'inference', image => isGatewayOf(image, claim))
}

/** Reports whether the image has each measurement that the claim allows its gateway. */
export function isGatewayOf({ launchDigests }: ExpectedImage, { claim }: ClaimDocument): boolean {
  const { gateway } = claim.inference
  const digests = new Set(Object.values(launchDigests))
  return gateway.kind === 'attested' && gateway.measurements.every(measurement => digests.has(measurement))
}

function firstStored(env: Io['env'], kind: ManifestKind, isWanted: (image: ExpectedImage) => boolean): string | null {
  const directory = clientDirectory(env)
  if (directory === null) return null
  const names = resultOr(() => readdirSync(directory), [])
    .filter(name => name.startsWith(`${kind}-manifest-`))
    .sort()
    .slice(0, manifestsMax)
  const found = names.find(name => {
    const image = readStored(directory, kind, name)
    return image !== null && isWanted(image)
  })
  return found === undefined ? null : join(directory, found)
}

/** Returns null for a file that others may write, or whose content does not have this name. */
function readStored(directory: string, kind: ManifestKind, name: string): ExpectedImage | null {
  const text = resultOr(() => readOwnFile(join(directory, name), MIB), null)
  if (text === null || storedName(`${kind}-manifest`, utf8(text), 'json') !== name) return null
  const image = parsed(() => readExpectedImage(utf8(text)))
  return image.ok && image.value.name === kind ? image.value : null
}
