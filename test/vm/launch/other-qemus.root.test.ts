// QEMU's own SNP launch as recorded-launch.root.test.ts has it, with QEMU of Debian's stable, backports and testing.
// A suite is looked at once a month. Without a mirror the kept version is used, or the test says that it did not run. A
// version that nobody has tried yet runs with `scripts/test --all` alone: a new QEMU is no fault of a change here.

import { expect, test } from 'bun:test'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { runsAll } from '../../../scripts/rigs/all.ts'
import { inOwnNetns } from '../../../scripts/rigs/netns.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { fetchQemu, keptQemu, QEMU_SUITES } from '../../../scripts/rigs/snp/debian-qemus.ts'
import { launchFinish, launchStart, only, recordedDigest } from '../../../scripts/rigs/snp/recording.ts'
import { cannotRecord } from '../../../scripts/rigs/snp/recording-qemu.ts'
import { launchDigest } from '../../../src/attest/launch/digest.ts'
import { toHex } from '../../../src/base/bytes.ts'
import { openImageFile } from '../../../src/vm/launch/image-file.driver.ts'
import { idleImage } from '../../rigs/launch/idle-image.ts'
import { flip } from '../../rigs/launch/launcher.ts'
import { recordingBench } from '../../rigs/launch/recorded-launch.ts'

const timeoutMs = 170_000
/** All suites together: 120 MB, a minute on a quick line. */
const fetchMsMax = 240_000
const missing = cannotRecord()
const cpuModel = 'EPYC-v4'
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

  // Goal: whatever QEMU a host has, the driver makes it submit the planned launch, with the digest that we publish.
  test.each(kept)(
    'QEMU $version: the digest is the predicted one, and START and FINISH are as planned',
    async ({ tree }) => {
      await using bench = await opened(tree)
      using image = await idleImage({ firmwarePages: 16 })
      for (const vcpus of [1, 2]) {
        const { records, signed, measurement } = await bench.record({ directory: image.directory, vcpus, cpuModel })
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
    },
  )

  // Goal: a host that swaps the kernel after the appliance's own check gains nothing.
  test.each(kept)('QEMU $version: a changed kernel gives the digest that `measure` predicts', async ({ tree }) => {
    await using bench = await opened(tree)
    using image = await idleImage({ firmwarePages: 16 })
    const read = (name: string) => new Uint8Array(readFileSync(join(image.directory, name)))
    const altered = join(image.directory, 'altered-kernel')
    writeFileSync(altered, read('kernel'))
    flip(altered, 0x290)
    using kernel = openImageFile(altered)
    const { records, measurement } = await bench.record({
      ...{ directory: image.directory, vcpus: 2, cpuModel, tamper: () => ({ kernel }) },
    })
    const { digest } = await launchDigest({
      ...{ firmware: read('firmware'), kernel: read('altered-kernel'), initrd: read('initrd') },
      ...{ cmdline: readFileSync(join(image.directory, 'cmdline'), 'utf8'), vcpus: 2, vcpuType: cpuModel },
      ...{ features: 1n, profile: 'qemu-kvm' },
    })
    expect(recordedDigest(records)).toBe(toHex(digest))
    expect(recordedDigest(records)).not.toBe(measurement)
  })

  // Goal: no VM starts without the block that names this host's key.
  test.each(kept)('QEMU $version refuses a launch without an ID block', async ({ tree }) => {
    await using bench = await opened(tree)
    using image = await idleImage({ firmwarePages: 16 })
    const failed = bench.record({
      ...{ directory: image.directory, vcpus: 1, cpuModel },
      tamper: ({ signed }) => ({ signed: { ...signed, idBlock: { block: '', auth: '', hasAuthor: false } } }),
    })
    expect(await failed.then(() => 'launched', String)).toContain('parameter length of 0 not equal to 96')
  })
}

async function opened(tree: string) {
  const bench = await recordingBench({ tree })
  return { record: bench.record, [Symbol.asyncDispose]: async () => bench.close() }
}

if (!skipUnless(missing === null, missing ?? '')) {
  inOwnNetns(import.meta.path, define, { timeoutMs, before: { run: fetchAll, timeoutMs: 2 * fetchMsMax } })
}
