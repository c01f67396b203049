// QEMU's own SNP launch, recorded without the hardware: what the appliance's driver makes QEMU submit to the firmware.
// The recorder (scripts/rigs/snp) answers for /dev/kvm and /dev/sev; no guest runs.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { inOwnNetns } from '../../../scripts/rigs/netns.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { launchFinish, launchStart, only, recordedDigest } from '../../../scripts/rigs/snp/recording.ts'
import { cannotRecord } from '../../../scripts/rigs/snp/recording-qemu.ts'
import { finishLaunch } from '../../../src/attest/launch/finish.ts'
import { present } from '../../../src/base/assert.ts'
import { fromBase64, fromHex } from '../../../src/base/bytes.ts'
import { openImageFile } from '../../../src/vm/launch/image-file.driver.ts'
import type { PreparedLaunch } from '../../../src/vm/launch/launcher.driver.ts'
import { idleImage } from '../../rigs/launch/idle-image.ts'
import { flip } from '../../rigs/launch/launcher.ts'
import {
  CHANGED_BYTES,
  type LaunchShape,
  measuredDigest,
  type RecordedLaunch,
  recordingBench,
} from '../../rigs/launch/recorded-launch.ts'

const timeoutMs = 170_000
const missing = cannotRecord()
const cpuModel = 'EPYC-v4'

/** The firmware's verdict over the recorded launch. */
async function firmwareVerdict({ records }: RecordedLaunch): Promise<readonly string[]> {
  const { idBlock, idAuth } = launchFinish(records)
  const bytes = (base64: string) => fromBase64(base64) ?? new Uint8Array()
  const { checks } = await finishLaunch({
    ...{ digest: fromHex(recordedDigest(records)) ?? new Uint8Array(), policy: launchStart(records).policy },
    ...{ idBlock: bytes(idBlock), idAuth: bytes(idAuth) },
  })
  return checks.filter(({ outcome }) => outcome === 'fail').map(({ name }) => name)
}

function define(): void {
  const opened: { bench?: Awaited<ReturnType<typeof recordingBench>> } = {}
  beforeAll(async () => {
    opened.bench = await recordingBench()
  })
  afterAll(() => opened.bench?.close())
  const record = (shape: LaunchShape) => present(opened.bench, 'opened before all tests').record(shape)

  test("the digest over QEMU's pages and processors is the predicted one, and FINISH is as planned", async () => {
    // Goal: the driver of production makes QEMU submit exactly the planned policy, ID block, HOST_DATA and bytes.
    using image = await idleImage({ firmwarePages: 16 })
    const launch = await record({ directory: image.directory, vcpus: 2, cpuModel })
    const { records, signed, measurement } = launch
    expect(recordedDigest(records)).toBe(measurement)
    expect(launchStart(records)).toEqual({ policy: 0x30000n, flags: 0 })
    expect(launchFinish(records)).toEqual({
      hasIdBlock: true,
      hasAuthorKey: false,
      isVcekDisabled: false,
      hostData: signed.hostData,
      idBlock: signed.idBlock.block,
      idAuth: signed.idBlock.auth,
    })
    expect(await firmwareVerdict(launch)).toEqual([])
  })

  test('the VM is of the SNP kind, its memory is private, and nothing runs before the launch is finished', async () => {
    // Goal: KVM gets a confidential VM, whose processors start only after FINISH.
    using image = await idleImage({ firmwarePages: 16 })
    const { records } = await record({ directory: image.directory, vcpus: 1, cpuModel })
    // KVM_X86_SNP_VM.
    expect(only(records, 'vm').numbers).toEqual([4n])
    const memory = records.filter(({ name }) => name === 'guest-memfd').map(({ numbers }) => numbers[0])
    expect(memory).toContain(512n * 1_048_576n)
    // KVM_MEMORY_ATTRIBUTE_PRIVATE over all of it; nothing is made shared.
    const attributes = records.filter(({ name }) => name === 'attributes').map(({ numbers }) => numbers)
    expect(attributes).toContainEqual([0n, 512n * 1_048_576n, 8n, 0n])
    expect(attributes.filter(([, , attribute]) => attribute !== 8n)).toEqual([])
    const order = records.map(({ name }) => name).filter(name => ['start', 'update', 'finish', 'run'].includes(name))
    expect([order[0], order.at(-2), order.at(-1)]).toEqual(['start', 'finish', 'run'])
    expect(order.slice(1, -2).every(name => name === 'update')).toBe(true)
  })

  test('QEMU runs as the VM, in its jail, with the argv, descriptors and bound of pinned memory of production', async () => {
    // Goal: the recorded launch is the one that production starts, not one of the test's own.
    using image = await idleImage({ firmwarePages: 16 })
    const { records, start, process } = await record({ directory: image.directory, vcpus: 1, cpuModel })
    expect(process.argv).toEqual([...start.argv])
    expect(process.uid).toBe(start.role.kind === 'qemu' ? start.role.confinement.uid : -1)
    // Loader cache, libraries, QEMU with its data, and the recorder below /tmp.
    expect(process.rootEntries.toSorted()).toEqual(['dev', 'etc', 'lib', 'lib64', 'proc', 'tmp', 'usr'])
    expect(process.devices).toEqual(['kvm', 'null', 'sev'])
    // Each descriptor of the arguments is its file, and nothing else of the host is open.
    const argumentOf = (option: string) => process.argv[process.argv.indexOf(option) + 1] ?? ''
    for (const [option, name] of Object.entries({ '-bios': 'firmware', '-kernel': 'kernel', '-initrd': 'initrd' })) {
      const fd = Number(argumentOf(option).replace('/proc/self/fd/', ''))
      expect([option, process.openFiles.get(fd)]).toEqual([option, join(image.directory, name)])
    }
    const opened = [...process.openFiles.values()].filter(path => path.startsWith('/') && !path.startsWith('/memfd:'))
    expect([...new Set(opened)].toSorted()).toEqual(
      [
        ...['/dev/null', '/dev/net/tun', '/dev/kvm', '/dev/sev'],
        ...['firmware', 'kernel', 'initrd', 'root'].map(name => join(image.directory, name)),
        ...['qemu.log', 'scratch.img'].map(name => join(argumentOf('-name'), name)),
      ].toSorted(),
    )
    // 512 MiB, 256 MiB of QEMU's own, and a 64th.
    expect(only(records, 'memlock').numbers).toEqual([BigInt(512 + 256 + 8) * 1_048_576n])
  })

  test.each(CHANGED_BYTES)(
    'one changed byte of the %s gives the digest that `measure` predicts, and is refused',
    async (file, at) => {
      // Goal: a host that swaps a file after the appliance's own check gains nothing: QEMU measures what it loads.
      using image = await idleImage({ firmwarePages: 16 })
      const altered = join(image.directory, `altered-${file}`)
      writeFileSync(altered, readFileSync(join(image.directory, file)))
      flip(altered, at)
      using changed = openImageFile(altered)
      const launch = await record({
        ...{ directory: image.directory, vcpus: 2, cpuModel },
        tamper: () => ({ [file]: changed }),
      })
      expect(recordedDigest(launch.records)).toBe(
        await measuredDigest(image.directory, { [file]: readFileSync(altered), vcpus: 2, cpuModel }),
      )
      expect(recordedDigest(launch.records)).not.toBe(launch.measurement)
      expect(await firmwareVerdict(launch)).toEqual(['launch-digest'])
    },
  )

  test('a changed command line gives the digest that `measure` predicts, and is refused', async () => {
    // Goal: as above; the command line is an argument and no file.
    using image = await idleImage({ firmwarePages: 16 })
    const cmdline = `${readFileSync(join(image.directory, 'cmdline'), 'utf8')} init=/bin/sh`
    const launch = await record({ directory: image.directory, vcpus: 1, cpuModel, tamper: () => ({ cmdline }) })
    expect(recordedDigest(launch.records)).toBe(await measuredDigest(image.directory, { cmdline, vcpus: 1, cpuModel }))
    expect(await firmwareVerdict(launch)).toEqual(['launch-digest'])
  })

  test('a policy with debugging reaches START, and the ID block refuses it', async () => {
    // Goal: the policy that the tenant relies on is bound by the signed block.
    using image = await idleImage({ firmwarePages: 16 })
    const tamper = ({ signed }: PreparedLaunch) => ({ signed: { ...signed, policy: 0xb0000n } })
    const launch = await record({ directory: image.directory, vcpus: 1, cpuModel, tamper })
    expect(launchStart(launch.records).policy).toBe(0xb0000n)
    expect(await firmwareVerdict(launch)).toEqual(['launch-policy'])
  })

  test('QEMU refuses a launch without an ID block', async () => {
    // Goal: no VM starts without the block that names this host's key.
    using image = await idleImage({ firmwarePages: 16 })
    const tamper = ({ signed }: PreparedLaunch) => ({
      signed: { ...signed, idBlock: { block: '', auth: '', hasAuthor: false } },
    })
    const failed = record({ directory: image.directory, vcpus: 1, cpuModel, tamper })
    expect(await failed.then(() => 'launched', String)).toContain('parameter length of 0 not equal to 96')
  })
}

if (!skipUnless(missing === null, missing ?? '')) inOwnNetns(import.meta.path, define, { timeoutMs })
