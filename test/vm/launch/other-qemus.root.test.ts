// QEMU's own SNP launch as recorded-launch.root.test.ts has it, with QEMU of Debian's stable, backports and testing.
// A suite is looked at once a month. Without a mirror the kept version is used, or the test says that it did not run. A
// version that nobody has tried yet runs with `scripts/test --all` alone: a new QEMU is no fault of a change here.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { runsAll } from '../../../scripts/rigs/all.ts'
import { repo } from '../../../scripts/rigs/build/image-build.ts'
import { inOwnNetns } from '../../../scripts/rigs/netns.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { fetchQemu, keptQemu, QEMU_SUITES } from '../../../scripts/rigs/snp/debian-qemus.ts'
import { launchFinish, launchStart, only, recordedDigest } from '../../../scripts/rigs/snp/recording.ts'
import { cannotRecord } from '../../../scripts/rigs/snp/recording-qemu.ts'
import { present } from '../../../src/base/assert.ts'
import { openImageFile } from '../../../src/vm/launch/image-file.driver.ts'
import { idleImage } from '../../rigs/launch/idle-image.ts'
import { flip } from '../../rigs/launch/launcher.ts'
import { CHANGED_BYTES, type LaunchShape, measuredDigest, recordingBench } from '../../rigs/launch/recorded-launch.ts'

const timeoutMs = 170_000
/** All suites together: 120 MB, a minute on a quick line. */
const fetchMsMax = 240_000
const missing = cannotRecord()
const cpuModel = 'EPYC-v4'
const recipe = JSON.parse(readFileSync(join(repo, 'guest-image/recipes/instance/recipe.json'), 'utf8'))
const { vcpuTypes: cpuModels, vcpus: vcpuCounts } = recipe.launch as { vcpuTypes: string[]; vcpus: number[] }
/** Versions that have passed. */
const tried = ['10.0.13+ds-0+deb13u1', '11.1.2+ds-3', '11.1.3+ds-1~bpo13+1']

async function fetchAll(): Promise<void> {
  const untilMs = Date.now() + fetchMsMax
  for (const suite of QEMU_SUITES) {
    const problem = await fetchQemu(suite, untilMs)
    skipUnless(problem === null, problem ?? '')
  }
}

function define(): void {
  const kept = QEMU_SUITES.flatMap(suite => keptQemu(suite) ?? []).filter(
    ({ version }) => !skipUnless(runsAll || tried.includes(version), `QEMU ${version} has not been tried yet`),
  )
  // Goal: what the other tests run is there.
  test.skipIf(skipUnless(kept.length > 0, 'no QEMU that has been tried is kept'))(
    'each is there with its program',
    () => expect(kept.filter(({ tree }) => !existsSync(join(tree, 'usr/bin/qemu-system-x86_64')))).toEqual([]),
  )

  describe.each(kept)('QEMU $version', ({ tree }) => {
    const opened: { bench?: Awaited<ReturnType<typeof recordingBench>> } = {}
    beforeAll(async () => {
      opened.bench = await recordingBench({ tree })
    })
    afterAll(() => opened.bench?.close())
    const record = (shape: LaunchShape) => present(opened.bench, 'opened before all tests').record(shape)

    // Goal: whatever QEMU a host has, the driver makes it submit the planned launch, with the digest that we publish.
    test('the digest is the predicted one, and START and FINISH are as planned', async () => {
      using image = await idleImage({ firmwarePages: 16 })
      for (const vcpus of [1, 2]) {
        const { records, signed, measurement } = await record({ directory: image.directory, vcpus, cpuModel })
        expect(recordedDigest(records)).toBe(measurement)
        expect(launchStart(records)).toEqual({ policy: 0x30000n, flags: 0 })
        expect(launchFinish(records)).toEqual({
          ...{ hasIdBlock: true, hasAuthorKey: false, isVcekDisabled: false, hostData: signed.hostData },
          ...{ idBlock: signed.idBlock.block, idAuth: signed.idBlock.auth },
        })
        // KVM_X86_SNP_VM.
        expect(only(records, 'vm').numbers).toEqual([4n])
        const names = records
          .map(({ name }) => name)
          .filter(name => ['start', 'update', 'finish', 'run'].includes(name))
        expect([names[0], ...new Set(names.slice(1, -2)), ...names.slice(-2)]).toEqual([
          'start',
          'update',
          'finish',
          'run',
        ])
      }
    })

    // Goal: the same for every CPU model that we publish, with the fewest and the most processors; all with --all.
    test('digests of published shapes are the predicted ones', async () => {
      using image = await idleImage({ firmwarePages: 16 })
      const { directory } = image
      const path = join(directory, 'manifest.json')
      const manifest = JSON.parse(readFileSync(path, 'utf8'))
      const counts = runsAll ? vcpuCounts : [Math.min(...vcpuCounts), Math.max(...vcpuCounts)]
      const shapes = cpuModels.flatMap(cpuModel => counts.map(vcpus => ({ cpuModel, vcpus })))
      const predicted: Record<string, string> = {}
      for (const shape of shapes) {
        predicted[`qemu-kvm/bios/${shape.cpuModel}/${shape.vcpus}`] = await measuredDigest(directory, shape)
      }
      writeFileSync(path, JSON.stringify({ ...manifest, launchDigests: predicted }))
      const recorded: Record<string, string> = {}
      for (const shape of shapes) {
        const { records } = await record({ directory, ...shape })
        recorded[`qemu-kvm/bios/${shape.cpuModel}/${shape.vcpus}`] = recordedDigest(records)
      }
      expect(recorded).toEqual(predicted)
      expect(new Set(Object.values(recorded)).size).toBe(runsAll ? 12 : 6)
    })

    // Goal: a host that swaps a file or the command line after the appliance's own check gains nothing.
    test('changed bytes and another command line give the digests that `measure` predicts', async () => {
      using image = await idleImage({ firmwarePages: 16 })
      const { directory } = image
      const shape = { directory, vcpus: 2, cpuModel }
      for (const [file, at] of CHANGED_BYTES) {
        const altered = join(directory, `altered-${file}`)
        writeFileSync(altered, readFileSync(join(directory, file)))
        flip(altered, at)
        using changed = openImageFile(altered)
        const { records, measurement } = await record({ ...shape, tamper: () => ({ [file]: changed }) })
        const predicted = await measuredDigest(directory, { [file]: readFileSync(altered), vcpus: 2, cpuModel })
        expect([file, recordedDigest(records)]).toEqual([file, predicted])
        expect([file, recordedDigest(records)]).not.toEqual([file, measurement])
      }
      const cmdline = `${readFileSync(join(directory, 'cmdline'), 'utf8')} init=/bin/sh`
      const { records } = await record({ ...shape, tamper: () => ({ cmdline }) })
      expect(recordedDigest(records)).toBe(await measuredDigest(directory, { cmdline, vcpus: 2, cpuModel }))
    })

    // Goal: the policy that the tenant relies on reaches START as it was planned, and a changed one is seen there.
    test('a policy with debugging reaches START', async () => {
      using image = await idleImage({ firmwarePages: 16 })
      const { records } = await record({
        ...{ directory: image.directory, vcpus: 1, cpuModel },
        tamper: ({ signed }) => ({ signed: { ...signed, policy: 0xb0000n } }),
      })
      expect(launchStart(records).policy).toBe(0xb0000n)
    })

    // Goal: no VM starts without the block that names this host's key.
    test('a launch without an ID block is refused', async () => {
      using image = await idleImage({ firmwarePages: 16 })
      const failed = record({
        ...{ directory: image.directory, vcpus: 1, cpuModel },
        tamper: ({ signed }) => ({ signed: { ...signed, idBlock: { block: '', auth: '', hasAuthor: false } } }),
      })
      expect(await failed.then(() => 'launched', String)).toContain('parameter length of 0 not equal to 96')
    })
  })
}

if (!skipUnless(missing === null, missing ?? '')) {
  inOwnNetns(import.meta.path, define, { timeoutMs, before: { run: fetchAll, timeoutMs: 2 * fetchMsMax } })
}
