#!/usr/bin/env bun
// Builds a measured guest image from its recipe. The last line printed is the image's directory.

import { join, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { buildImage, relock } from './image/build.ts'
import { ImageFault } from './image/image-fault.ts'
import { recipeNames, variantNames } from './image/recipe.ts'
import { buildRelocking, relockVariable, relockWhen } from './image/relock-when.ts'

const usage = `usage: bun scripts/build-image.ts RECIPE [--relock] [--executable FILE] [--out DIR] [--json]

  --relock           choose package versions from this machine's mirror; measurements change
  --executable FILE  our compiled program for this image (default: dist/strongroom-guest for instance,
                     dist/strongroom-builder for builder, dist/strongroom-enclave for inference)
  --out DIR          put the finished image below DIR instead of the cache
  --json             print {"manifest": PATH} instead of the directory

Cache: STRONGROOM_CACHE, or /var/cache/strongroom. For versions that the mirror has dropped:
STRONGROOM_SNAPSHOT_MIRROR, an address with {archive} in the place of debian or debian-security.
STRONGROOM_RELOCK=1: relock when, and only when, a locked version is nowhere to be had.
`

const repo = resolve(import.meta.dir, '..')

async function main(argv: string[]): Promise<void> {
  const { values, positionals } = parseArgs({
    args: argv,
    allowPositionals: true,
    options: {
      relock: { type: 'boolean', default: false },
      executable: { type: 'string' },
      out: { type: 'string' },
      json: { type: 'boolean', default: false },
      help: { type: 'boolean', default: false },
    },
  })
  if (values.help) {
    process.stdout.write(usage)
    return
  }
  const [name, ...rest] = positionals
  const known = [...(await recipeNames(repo)), ...(await variantNames(repo))]
  if (name === undefined || rest.length > 0 || !known.includes(name)) {
    throw new ImageFault('usage', `name one recipe of: ${known.join(', ')}`)
  }
  const report = (line: string) => process.stderr.write(`image ${name}: ${line}\n`)
  const dir = await buildRelocking({
    when: relockWhen(values.relock, process.env[relockVariable]),
    relock: () => relock(repo, name, report),
    build: () =>
      buildImage({
        repo,
        name,
        executable: values.executable === undefined ? null : resolve(values.executable),
        imagesDir: values.out === undefined ? null : resolve(values.out),
        report,
      }),
    report,
  })
  process.stdout.write(values.json ? `${JSON.stringify({ manifest: join(dir, 'manifest.json') })}\n` : `${dir}\n`)
}

try {
  await main(process.argv.slice(2))
} catch (error) {
  const message = error instanceof Error ? error.message : String(error)
  const remedy = error instanceof ImageFault ? `${error.code}: ${error.remedy}` : 'unexpected'
  process.stderr.write(`build-image: ${message}\n  ${remedy}\n`)
  process.exitCode = 1
}
