// Goal: the same inputs give the same bytes, whatever the builder's directory, file system, time zone, locale and
// umask. Takes about two minutes on two idle cores: both builds share downloads and nothing else.

import { expect, test } from 'bun:test'
import { mkdtemp, rm } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { buildCachedImage, buildTestImage, repo } from '../../../scripts/rigs/build/image-build.ts'

// Goal: anyone who rebuilds from the same inputs gets the same bytes, whatever their machine is set to: those of the
// image that this machine has built for itself, with its own settings.
test('two builds under differing conditions have equal digests throughout', async () => {
  const elsewhere = await mkdtemp('/dev/shm/guest-image-bench-')
  try {
    const first = await buildCachedImage('instance')
    const second = await buildTestImage({
      recipe: 'instance',
      cacheDir: join(elsewhere, 'a-rather-longer-name-for-the-second'),
      executable: join(repo, 'dist/strongroom-guest'),
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
}, 900_000)
