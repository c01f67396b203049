// A boot image as a directory of its files, or in skopeo's `dir:` format, in which files are named by their digests.
// Effects: reads files. Every Fault is invalid_request.

import { readdirSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { Type } from '@sinclair/typebox'
import { parsedJson } from '../../../attest/encoding/json.ts'
import { resultOr } from '../../../base/result-or.ts'
import { checkValue } from '../../../contract/check.ts'
import { InputFault } from '../../../terminal/exit.ts'
import { isDirectory, KIB, MIB, readInput, readingInput } from '../../../terminal/input-file.ts'
import type { BootImage } from '../../../verifier/build/question.ts'
import { readExpectedImage } from '../../../verifier/launch.ts'
import { type ImageSource, openImage } from '../../measure/native.ts'

const igvmBytesMax = 512 * MIB
const kernelBytesMax = 512 * MIB
const cmdlineBytesMax = 64 * KIB

/** The fields of an OCI image manifest that list its files. */
const OciManifest = Type.Object({
  schemaVersion: Type.Literal(2),
  layers: Type.Array(
    Type.Object({
      digest: Type.String({ pattern: '^sha256:[0-9a-f]{64}$' }),
      annotations: Type.Optional(Type.Record(Type.String(), Type.String())),
    }),
    { maxItems: 64 },
  ),
})

export const ociTitle = 'org.opencontainers.image.title'

/** Maps the names of files in the image's own directory to paths. */
type ImageDirectory = { readonly pathOf: (name: string) => string; readonly names: readonly string[] }

function openDirectory(directory: string, param: string): ImageDirectory {
  const bytes = readInput({ path: join(directory, 'manifest.json'), param, bytesMax: MIB })
  const names = readdirSync(directory)
  const result = checkValue(OciManifest, safeJson(bytes))
  if (!result.ok) return { names, pathOf: name => join(directory, name) }
  const titled = new Map(
    result.value.layers.flatMap(({ digest, annotations }) => {
      const title = annotations?.[ociTitle]
      return title === undefined ? [] : [[title, join(directory, digest.slice('sha256:'.length))] as const]
    }),
  )
  return {
    names: [...titled.keys()],
    pathOf: name => {
      const path = titled.get(name)
      if (path !== undefined) return path
      throw new InputFault(`--${param} ${directory}: its manifest names no layer ${JSON.stringify(name)}`, {
        param,
        remedy: 'pull the image again',
      })
    },
  }
}

/** Parses JSON. Null if the text is not an OCI manifest; the reader of the other form then reports why. */
function safeJson(bytes: Uint8Array): unknown {
  return resultOr(() => parsedJson('manifest', bytes), null)
}

/** Reads a file, or the only IGVM file in an image's directory. */
export function readIgvmFile(path: string | undefined): Uint8Array | 'any' {
  if (path === undefined) return 'any'
  const param = 'igvm'
  if (!isDirectory(path)) return readInput({ path, param, bytesMax: igvmBytesMax })
  const { names, pathOf } = openDirectory(path, param)
  const [only, ...more] = names.filter(name => name === 'igvm' || name.endsWith('.igvm'))
  if (only !== undefined && more.length === 0) return readInput({ path: pathOf(only), param, bytesMax: igvmBytesMax })
  throw new InputFault(`--igvm ${path}: ${only === undefined ? 'no' : 'more than one'} IGVM file in it`, {
    param,
    remedy: 'name the file; `strongroom igvm build` makes it of the image',
  })
}

export type OpenBootImage = AsyncDisposable & { readonly image: BootImage | 'any' }

/** Opens a directory, or a root disk with its `cmdline` beside it. */
export async function openBootImage(path: string | undefined): Promise<OpenBootImage> {
  if (path === undefined) return { image: 'any', [Symbol.asyncDispose]: async () => {} }
  const param = 'image'
  if (!isDirectory(path)) {
    const cmdline = readInput({ path: join(dirname(path), 'cmdline'), param, bytesMax: cmdlineBytesMax })
    return opened(await openImage({ path, param }), { cmdline, boot: null })
  }
  const { pathOf } = openDirectory(path, param)
  const bytes = readInput({ path: pathOf('manifest.json'), param, bytesMax: MIB })
  const { files, launchDigests } = await readingInput(`--image ${path}`, () => readExpectedImage(bytes))
  const read = (part: 'firmware' | 'kernel' | 'initrd') =>
    readInput({ path: pathOf(files[part].path), param, bytesMax: kernelBytesMax })
  const cmdline = readInput({ path: pathOf(files.cmdline.path), param, bytesMax: cmdlineBytesMax })
  const boot = {
    firmware: read('firmware'),
    kernel: read('kernel'),
    initrd: read('initrd'),
    shapes: Object.keys(launchDigests),
  }
  return opened(await openImage({ path: pathOf(files.root.path), param }), { cmdline, boot })
}

function opened(disk: ImageSource, rest: Omit<BootImage, 'disk'>): OpenBootImage {
  return { image: { ...rest, disk }, [Symbol.asyncDispose]: async () => await disk[Symbol.asyncDispose]() }
}
