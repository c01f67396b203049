// Goal: the same inputs give the same bytes, whatever the builder's directory, file system, time zone, locale and
// umask. Takes a minute and more for each image: a run without --all has that of enclave-build.image.test.ts alone.

import { expect, test } from 'bun:test'
import { mkdtemp, rm } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { runsAll } from '../../../scripts/rigs/all.ts'
import { buildCachedImage, buildTestImage, repo } from '../../../scripts/rigs/build/image-build.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'

// Anyone who rebuilds from the same inputs gets the same bytes, whatever their machine is set to: those of the
// image that this machine has built for itself, with its own settings.
const programs = [
  ['instance', 'dist/strongroom-guest'],
  ['builder', 'dist/strongroom-builder'],
] as const
for (const [recipe, program] of programs) {
  test.skipIf(skipUnless(runsAll, `the ${recipe} image is built twice only by scripts/test --all`))(
    `two builds of ${recipe} under differing conditions have equal digests throughout`,
    async () => {
      // Goal: an image of another machine is the same as that of this one.
      const elsewhere = await mkdtemp('/dev/shm/guest-image-bench-')
      try {
        const first = await buildCachedImage(recipe)
        const second = await buildTestImage({
          recipe,
          cacheDir: join(elsewhere, 'a-rather-longer-name-for-the-second'),
          executable: join(repo, program),
          shared: ['downloads'],
          umask: '077',
          env: { TZ: 'America/St_Johns', LC_ALL: 'POSIX', LANG: 'de_DE.UTF-8', SOURCE_DATE_EPOCH: '1' },
        })
        expect(second).not.toBe(first)
        expect(basename(second)).toBe(basename(first))
        for (const name of ['manifest.json', 'provenance.json']) {
          expect(await Bun.file(join(second, name)).text()).toBe(await Bun.file(join(first, name)).text())
        }
      } finally {
        await rm(elsewhere, { recursive: true, force: true })
      }
    },
    900_000,
  )
}
