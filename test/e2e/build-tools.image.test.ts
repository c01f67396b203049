// Tools of the builder image, in a build VM.

import { expect, test } from 'bun:test'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { runsAll } from '../../scripts/rigs/all.ts'
import { archiveOf } from '../../scripts/rigs/build/sources.ts'
import { inOwnNetns } from '../../scripts/rigs/netns.ts'
import { skipUnless } from '../../scripts/rigs/skip.ts'
import { npmProject, pnpmProject } from '../rigs/build/npm-packages.ts'
import { startRealBuilds } from '../rigs/build/real-builds.ts'
import { nativeProject } from '../rigs/build/real-sources.ts'

const timeoutMs = 1_500_000

const without = skipUnless(runsAll, 'compiles C++ in an emulated VM: scripts/test --all')

if (without) {
  test.skipIf(without)('goal: the tools of the builder image', () => {})
} else {
  inOwnNetns(
    import.meta.path,
    () => {
      test(
        'a crate with C++ code, and a build script that asks for every tool and header',
        async () => {
          // Goal: a crate that needs a C++ compiler, cmake and libclang is built with the image's own tools.
          await using rig = await startRealBuilds('build_memory_mib = 1024')
          const id = await rig.submit({
            nonce: '00112233445566778899aabbccddeeff',
            source_data: Buffer.from(archiveOf(nativeProject)).toString('base64'),
            source_name: 'native.tar.gz',
          })
          const events = await rig.client.events(id)
          expect(events.at(-1)).toEqual({ type: 'complete', result: { status: 'ok' } })
          process.stdout.write(
            `${events.map(event => ('msg' in event ? event.msg : '')).find(msg => msg.startsWith('Stages'))}\n`,
          )
          const { directory } = await rig.unpacked(id)
          const { stdout } = Bun.spawnSync([join(directory, 'artifacts/native')])
          expect(stdout.toString()).toBe('42 answer\n')
        },
        timeoutMs,
      )

      test(
        'projects of npm and pnpm',
        async () => {
          // Goal: Node.js, npm and pnpm of the image work together, offline.
          await using rig = await startRealBuilds('build_memory_mib = 1024')
          const write = `node -e 'fs.mkdirSync("dist");fs.writeFileSync("dist/out.txt", process.version)'`
          const manifest = { name: 'tool', version: '0.1.0', scripts: { build: write } }
          const projects = { npm: npmProject(manifest, {}), pnpm: pnpmProject(manifest, {}) }
          for (const [at, [name, files]] of Object.entries(projects).entries()) {
            const id = await rig.submit({
              nonce: `00112233445566778899aabbccddee0${at}`,
              source_data: Buffer.from(archiveOf(files)).toString('base64'),
              source_name: `${name}.tar.gz`,
            })
            const events = await rig.client.events(id)
            expect([name, events.at(-1)]).toEqual([name, { type: 'complete', result: { status: 'ok' } }])
            const { directory } = await rig.unpacked(id)
            expect(readFileSync(join(directory, 'artifacts/out.txt'), 'utf8')).toMatch(/^v\d+\./)
          }
        },
        timeoutMs,
      )
    },
    { timeoutMs: 2 * timeoutMs + 60_000 },
  )
}
