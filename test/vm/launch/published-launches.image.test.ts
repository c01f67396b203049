// QEMU's own SNP launch of the images that we publish, recorded without the hardware, against their manifests.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { buildCachedImage } from '../../../scripts/rigs/build/image-build.ts'
import { inOwnNetns } from '../../../scripts/rigs/netns.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { recordedDigest } from '../../../scripts/rigs/snp/recording.ts'
import { cannotRecord } from '../../../scripts/rigs/snp/recording-qemu.ts'
import { present } from '../../../src/base/assert.ts'
import { recordingBench } from '../../rigs/launch/recorded-launch.ts'

const timeoutMs = 600_000
const missing = cannotRecord()
const RECIPES = ['instance', 'inference', 'builder'] as const
type Recipe = (typeof RECIPES)[number]

function define(): void {
  const opened: { bench?: Awaited<ReturnType<typeof recordingBench>> } = {}
  const images = new Map<Recipe, string>()
  beforeAll(async () => {
    // Before /dev is another.
    for (const recipe of RECIPES) images.set(recipe, await buildCachedImage(recipe))
    opened.bench = await recordingBench()
  }, timeoutMs)
  afterAll(() => opened.bench?.close())

  test.each([...RECIPES])(
    'of the image %s',
    async recipe => {
      // Goal: the digest over the pages that QEMU submits, and over its processors, is the manifest's, for every CPU
      // model and number of processors that we publish.
      const directory = present(images.get(recipe), 'built above')
      const { launchDigests } = JSON.parse(readFileSync(join(directory, 'manifest.json'), 'utf8'))
      const published = Object.entries(launchDigests as Record<string, string>).filter(([key]) =>
        key.includes('/bios/'),
      )
      const recorded: Record<string, string> = {}
      for (const [key] of published) {
        const [, , cpuModel = '', vcpus] = key.split('/')
        const { records } = await present(opened.bench, 'opened above').record({
          ...{ directory, vcpus: Number(vcpus), cpuModel },
        })
        recorded[key] = recordedDigest(records)
      }
      expect(Object.keys(recorded).length).toBe(12)
      expect(recorded).toEqual(Object.fromEntries(published))
    },
    timeoutMs,
  )
}

if (!skipUnless(missing === null, missing ?? '')) inOwnNetns(import.meta.path, define, { timeoutMs })
