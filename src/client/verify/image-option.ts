// `--image`: the manifest of the expected image, or its directory. Effects: reads one file. Fault invalid_request.

import { join } from 'node:path'
import { isDirectory, MIB, readInput, readingInput } from '../../terminal/input-file.ts'
import { type ExpectedImage, readExpectedImage } from '../../verifier/launch.ts'

export async function readImage(path: string | undefined): Promise<ExpectedImage | 'any'> {
  return path === undefined ? 'any' : (await readManifest(path)).image
}

/** Returns the manifest and its bytes. */
export async function readManifest(path: string): Promise<{ image: ExpectedImage; bytes: Uint8Array }> {
  const file = isDirectory(path) ? join(path, 'manifest.json') : path
  const bytes = readInput({ path: file, param: 'image', bytesMax: MIB })
  return { image: await readingInput(`--image ${file}`, () => readExpectedImage(bytes)), bytes }
}
