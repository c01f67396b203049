// A host that boots build VMs from its own builder, serves that image in its registry, and returns commands that
// verify against it: the measurement is then compared with the host's own file.

import { afterAll, describe, expect, test } from 'bun:test'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { writeBuilderImage } from '../../../scripts/rigs/build/image-directory.ts'
import { cargoRecord } from '../../../scripts/rigs/build/record.ts'
import { sampleResult } from '../../../scripts/rigs/build/result.ts'
import { simulatedAsOf, simulatedPlatform } from '../../../scripts/rigs/launch/simulated-platform.ts'
import { toPem } from '../../../src/attest/encoding/pem.ts'
import { measureIgvm } from '../../../src/attest/igvm/measure.ts'
import { present } from '../../../src/base/assert.ts'
import { toHex } from '../../../src/base/bytes.ts'
import { createBootImages } from '../../../src/builds/oci/boot-images.ts'
import { verifyCommands } from '../../../src/builds/oci/commands.plan.ts'
import { runHere } from '../../rigs/program.ts'

const dir = mkdtempSync(join(tmpdir(), `srt-${process.pid}-pulled-`))
afterAll(() => rmSync(dir, { recursive: true, force: true }))

// Goal: what the host itself hands out is no pin.
describe('what the host itself hands out is no pin', () => {
  test("the commands of GET /build/ID, run as they are printed, against the host's own builder", async () => {
    // 17 blocks of the host's: nobody else has ever seen this builder.
    const hosts = await writeBuilderImage(join(dir, 'builder-image'), 17)
    const { digest } = await measureIgvm(new Uint8Array(readFileSync(hosts.igvm)), { profile: 'qemu-kvm' })
    const { files, nonce } = await sampleResult({ measurement: digest })
    for (const [path, bytes] of files) {
      mkdirSync(dirname(join(dir, 'project', path)), { recursive: true })
      writeFileSync(join(dir, 'project', path), bytes)
    }
    const { ark, ask } = (await simulatedPlatform('genoa')).authority.root
    writeFileSync(join(dir, 'root.pem'), [ark, ask].map(der => toPem(der, 'CERTIFICATE')).join(''))
    const images = createBootImages(new Map([['builder', join(dir, 'builder-image')]]))
    const image = present(await images.open('builder'), 'the image')
    const commands = verifyCommands({
      baseUrl: 'https://builds.example:8443',
      project: join(dir, 'project'),
      nonce: toHex(nonce),
      asked: {
        sourceKind: 'git',
        projectDir: null,
        toolchain: null,
        options: null,
        waivers: [],
        fetchCaSha256: null,
        cratesMirror: null,
      },
      image: { name: 'builder', digest: image.digest, hasIgvm: image.hasIgvm },
    })
    // skopeo leaves the same files. The client knows its commit, has no policy, and passes the image as one.
    const [program, ...argv] = present(commands.at(-1), 'verify')
      .replaceAll('./builder-image', join(dir, 'builder-image'))
      .replace('COMMIT', cargoRecord.source.commit ?? '')
      .replace('--policy POLICY ', '')
      .split(' ')
    const simulated = ['--trust-simulated-root', join(dir, 'root.pem'), '--as-of', simulatedAsOf.toISOString()]
    const { code, stdout } = await runHere([...argv, ...simulated])
    expect([program, code, stdout.split('\n')[0]]).toEqual(['strongroom', 6, expect.stringContaining('FAIL')])
    expect(stdout).toContain('--own-image')
    // Nothing else is wrong: whoever has the image's digest from elsewhere says so.
    const own = await runHere([...argv, ...simulated, '--own-image'])
    expect([own.code, own.stdout.split('\n')[0]]).toEqual([0, expect.stringContaining('PASS')])
  })
})
