// Goal: an image boots to its agent and powers off on request; with one byte changed it verifies nowhere and never
// reaches the agent.

import { expect, test } from 'bun:test'
import { open } from 'node:fs/promises'
import { join } from 'node:path'
import { Value } from '@sinclair/typebox/value'
import { MachineManifest } from '../../../scripts/image/manifest.ts'
import { agentStarted, buildTestImage, imageBench, run } from '../../../scripts/rigs/build/image-build.ts'
import { bootGuest } from '../../../scripts/rigs/guest/boot.ts'

const bootTimeoutMs = 150_000

// Goal: one flipped bit of the root stops the boot before the agent; an intact root boots in the same harness.
test('dm-verity admits the built root and refuses a changed one', async () => {
  await using bench = await imageBench('setTimeout(() => process.kill(1, "SIGUSR2"), 5_000)')
  const cacheDir = join(bench.dir, 'cache')
  const shared = ['downloads', 'bases'] as const
  const image = await buildTestImage({
    recipe: 'instance',
    cacheDir,
    executable: bench.executable,
    shared,
    umask: '022',
    env: {},
  })
  const manifest = Value.Decode(MachineManifest, await Bun.file(join(image, 'manifest.json')).json())
  const root = join(image, manifest.files.root.path)
  const verify = (path: string) =>
    run(['veritysetup', 'verify', `--hash-offset=${manifest.verity.hashOffset}`, path, path, manifest.rootHash], {})

  await verify(root)
  {
    await using guest = await bootGuest(image, root)
    expect({ started: await guest.shows(agentStarted, bootTimeoutMs), serial: guest.serial() }).toMatchObject({
      started: true,
    })
    expect({ ended: await guest.ends(bootTimeoutMs), serial: guest.serial() }).toMatchObject({ ended: true })
    expect(guest.serial()).toContain('strongroom: powering off')
  }

  const changed = join(bench.dir, 'changed.img')
  await run(['cp', '--reflink=auto', '--sparse=always', root, changed], {})
  await flipByte(changed, '# PID 1 of the guest.')
  await expect(verify(changed)).rejects.toThrow()
  await using guest = await bootGuest(image, changed)
  expect(await guest.ends(bootTimeoutMs)).toBe(true)
  expect(guest.serial()).toContain('Kernel panic - not syncing: dm-verity device corrupted')
  expect(guest.serial()).not.toContain(agentStarted)
}, 600_000)

// Changes one bit of a file that surely is read: the first program run from the root.
async function flipByte(path: string, marker: string): Promise<void> {
  const file = await open(path, 'r+')
  try {
    const chunkBytes = 1 << 24
    const buffer = Buffer.alloc(chunkBytes)
    for (let at = 0; ; at += chunkBytes - marker.length) {
      const { bytesRead } = await file.read(buffer, 0, chunkBytes, at)
      const found = buffer.subarray(0, bytesRead).indexOf(marker)
      if (found !== -1) {
        await file.write(Buffer.from([(buffer[found] ?? 0) ^ 1]), 0, 1, at + found)
        return
      }
      if (bytesRead < chunkBytes) throw new Error(`${marker} is not in ${path}`)
    }
  } finally {
    await file.close()
  }
}
