// `--image`: the manifest of the expected image, or its directory. Effects: reads one file. Fault invalid_request.

import { statSync } from 'node:fs'
import { join } from 'node:path'
import { type ExpectedImage, readExpectedImage } from '../../verifier/launch.ts'
import { MIB, readInput, readingInput } from '../input-file.ts'

export async function readImage(path: string | undefined): Promise<ExpectedImage | 'any'> {
  if (path === undefined) return 'any'
  const isDirectory = statSync(path, { throwIfNoEntry: false })?.isDirectory() === true
  const file = isDirectory ? join(path, 'manifest.json') : path
  const bytes = readInput({ path: file, param: 'image', bytesMax: MIB })
  return await readingInput(`--image ${file}`, () => readExpectedImage(bytes))
}
