// Launches match the manifest, or are refused before QEMU starts, with the part that differs. Real files, real digests.

import { describe, expect, test } from 'bun:test'
import { mkdtempSync, readFileSync, renameSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { writeNamedImage } from '../../../scripts/rigs/build/image-directory.ts'
import { imageVcpus } from '../../../scripts/rigs/launch/launch-image.ts'
import { sha256 } from '../../../src/attest/hash.ts'
import { finishLaunch } from '../../../src/attest/launch/finish.ts'
import { signIdBlock } from '../../../src/attest/launch/id-block-sign.ts'
import { fromBase64, fromHex, toBase64, toHex, utf8 } from '../../../src/base/bytes.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { type LaunchDocument, launchText } from '../../../src/contract/vm/launch.ts'
import { openOperatorKey } from '../../../src/host/operator-key.ts'
import { launchOf } from '../../../src/store/ledger/launch.query.ts'
import { insertVm, moveVm, purgeGoneVms } from '../../../src/store/ledger/vm.query.ts'
import { hostDataOf } from '../../../src/vm/launch/expected.plan.ts'
import { loadBuilderImage, loadGatewayVmImage, loadImage } from '../../../src/vm/launch/image.driver.ts'
import { FileDigests, openImageFile } from '../../../src/vm/launch/image-file.driver.ts'
import type { PreparedLaunch } from '../../../src/vm/launch/launcher.driver.ts'
import { failureOf, flip, openLauncherBench, launchedVm as vm } from '../../rigs/launch/launcher.ts'

const { stateDir, operatorKey, bench } = await openLauncherBench()

const workload = '{"format":"strongroom/workload/v1"}'

type Parts = Record<'firmware' | 'kernel' | 'initrd' | 'cmdline', Buffer>

/** The firmware, and the hashes that an IGVM file has of the others. */
function partsOf(directory: string): Parts {
  const read = (name: string) => readFileSync(join(directory, name))
  const hash = (bytes: Uint8Array) => Buffer.from(sha256(bytes))
  const cmdline = hash(Buffer.concat([read('cmdline'), Buffer.from([0])]))
  return { firmware: read('firmware'), kernel: hash(read('kernel')), initrd: hash(read('initrd')), cmdline }
}

test('an image is read ahead without a launch: nothing is on record, and a bad image is told', async () => {
  // Goal: the read-ahead at the daemon's start does the first launch's work and changes nothing: the launch finds the
  // same faults.
  const { launcher, db, directory } = await bench()
  const { id: _, ...shape } = vm
  await launcher.readAhead(shape, loadImage(directory))
  expect(launchOf(db, vm.id)).toBeNull()
  expect(await failureOf(launcher.readAhead({ ...shape, vcpus: 3 }, loadImage(directory)))).toContain(
    'no launch digest',
  )
})

describe('a sound launch', () => {
  const ways = [
    ['bios', {}],
    ['igvm', { igvm: 'named' }],
    ['igvm', { igvm: 'made' }],
  ] as const
  test.each(ways)('is signed, on record and open: %s %o', async (vehicle, options) => {
    // Goal: what firmware and report will say follows from the manifest and this host's key alone.
    const { prepare, db, manifest } = await bench(options)
    using launch = await prepare()
    const measurement = manifest.launchDigests[`qemu-kvm/${vehicle}/EPYC-v4/2`] ?? ''
    expect(launch.document).toMatchObject({ measurement, vcpus: 2, memoryMib: 2048, policy: '0x30000' })
    const text = launchText(launch.document)
    const hostData = toHex(sha256(utf8(text)))
    expect(toHex(fromBase64(launch.signed.hostData) ?? new Uint8Array())).toBe(hostData)
    expect(launchOf(db, 'vm')).toMatchObject({
      document: text,
      workload: null,
      measurement,
      hostData,
      operatorKey: toHex(operatorKey.digest),
    })
    const finished = await finishLaunch({
      digest: fromHex(measurement) ?? new Uint8Array(),
      policy: launch.signed.policy,
      idBlock: fromBase64(launch.signed.idBlock.block) ?? new Uint8Array(),
      idAuth: fromBase64(launch.signed.idBlock.auth) ?? new Uint8Array(),
    })
    expect([finished.ok, finished.idKeyDigest, launch.signed.idBlock.hasAuthor]).toEqual([
      true,
      operatorKey.digest,
      false,
    ])
  })

  test.each(ways)(
    'of a VM with a workload has that in HOST_DATA, and keeps its launch document: %s %o',
    async (_, options) => {
      // Goal: a report of a gateway's VM covers every field of workload.json; image and shape are still recorded and
      // checked.
      const { prepare, db, mismatchOf, launcher } = await bench(options)
      using plain = await prepare()
      using launch = await prepare({ ...vm, workload })
      const hostData = '467dc1ce7e116332f83a3027475eca060ea1db325f54e79512beed94ce004893'
      expect(toHex(fromBase64(launch.signed.hostData) ?? new Uint8Array())).toBe(hostData)
      expect(launch.document).toEqual(plain.document)
      expect(launch.signed.idBlock.block).toBe(plain.signed.idBlock.block)
      expect(launchOf(db, 'vm')).toMatchObject({ document: launchText(launch.document), workload, hostData })
      const check = (change: Partial<PreparedLaunch>) => mismatchOf(launcher.check('vm', { ...launch, ...change }))
      expect(await check({})).toEqual([])
      expect(await check({ workload: `${workload} ` })).toEqual(['host data'])
      expect(await check({ workload: null })).toEqual(['host data'])
      expect(await check({ signed: { ...launch.signed, hostData: plain.signed.hostData } })).toEqual(['host data'])
      // Parts that HOST_DATA no longer covers are still compared with the loaded bytes.
      expect(await check({ document: { ...launch.document, kernelSha256: '00'.repeat(32) } })).toEqual(['kernel'])
    },
  )

  test('its record goes with the VM', async () => {
    // Goal: nothing of a VM that is gone for good is left in the ledger.
    const { prepare, db } = await bench()
    using _ = await prepare()
    moveVm(db, { id: 'vm', from: 'waiting', to: 'gone', nowMs: 2 })
    expect(launchOf(db, 'vm')).not.toBeNull()
    expect(purgeGoneVms(db, { changedBeforeMs: 3, limit: 10 })).toBe(1)
    expect(launchOf(db, 'vm')).toBeNull()
  })
})

describe('one flipped byte', () => {
  const files = [
    ['firmware', 'firmware', 100],
    ['kernel', 'kernel', 0],
    ['initrd', 'initrd', 4_000],
    ['cmdline', 'command line', 2],
  ] as const
  for (const [file, part, at] of files) {
    test(`in the ${part}`, async () => {
      // Goal: caught, named, and forgotten once the file is as it was.
      const { directory, prepare, mismatchOf } = await bench()
      using _ = await prepare()
      flip(join(directory, file), at)
      expect(await mismatchOf(prepare())).toEqual([part])
      flip(join(directory, file), at)
      using __ = await prepare()
    })
  }

  for (const [file, part, at] of files) {
    test(`in the ${part}, where the IGVM file is made of it`, async () => {
      // Goal: what a host makes of altered parts is not launched, and the part is named.
      const { directory, prepare, mismatchOf } = await bench({ igvm: 'made' })
      using _ = await prepare()
      flip(join(directory, file), at)
      expect(await mismatchOf(prepare())).toEqual([part])
      flip(join(directory, file), at)
      using __ = await prepare()
    })
  }

  // Positions of the parts in the file that the rig writes.
  const inFile = [
    ['firmware', (bytes: Buffer, { firmware }: Parts) => bytes.indexOf(firmware.subarray(0, 64)) + 7],
    ['kernel', (bytes: Buffer, { kernel }: Parts) => bytes.indexOf(kernel)],
    ['initrd', (bytes: Buffer, { initrd }: Parts) => bytes.indexOf(initrd)],
    ['command line', (bytes: Buffer, { cmdline }: Parts) => bytes.indexOf(cmdline)],
    // RDX of the last VMSA: the signature of the processor.
    ['measurement', (bytes: Buffer) => bytes.lastIndexOf(Buffer.from([0x12, 0x0f, 0x80, 0]))],
  ] as const
  for (const [part, find] of inFile) {
    test(`in the named IGVM file: ${part}`, async () => {
      // Goal: what the file would load is measured and taken apart, not what its name says.
      const { directory, igvm, prepare, mismatchOf } = await bench({ igvm: 'named' })
      const at = find(readFileSync(igvm), partsOf(directory))
      expect(at).toBeGreaterThan(0)
      flip(igvm, at)
      expect(await mismatchOf(prepare())).toEqual([part])
      flip(igvm, at)
      using _ = await prepare()
    })
  }

  test('in the file that this host wrote', async () => {
    // Goal: the file is written anew, and a change between that and QEMU is reported.
    const { written, launcher, prepare, mismatchOf } = await bench({ igvm: 'made' })
    using first = await prepare()
    const sound = readFileSync(written)
    flip(written, sound.length - 5_000)
    expect(await mismatchOf(launcher.check('vm', first))).not.toEqual([])
    using second = await prepare()
    expect(await mismatchOf(launcher.check('vm', second))).toEqual([])
    expect(statSync(written).size).toBe(sound.length)
    // The launch digest in its ID block.
    const at = readFileSync(written).indexOf(Buffer.from(second.document.measurement, 'hex'))
    expect(at).toBeGreaterThan(0)
    flip(written, at)
    expect(await failureOf(launcher.check('vm', second))).toMatch(/checksum/)
  })

  test('in the document of an IGVM launch', async () => {
    // Goal: the document names the very file, as anyone can make it again.
    const { launcher, prepare, igvm, mismatchOf } = await bench({ igvm: 'made' })
    using launch = await prepare()
    expect(launch.document.firmwareSha256).toBe(toHex(sha256(readFileSync(igvm))))
    const document = { ...launch.document, firmwareSha256: '00'.repeat(32) }
    expect(await mismatchOf(launcher.check('vm', { ...launch, document }))).toEqual(['IGVM file', 'host data'])
  })

  test('in what firmware is told: policy, host data, ID block', async () => {
    // Goal: the very values of QEMU's arguments are judged.
    const { launcher, prepare, mismatchOf } = await bench()
    using launch = await prepare()
    const check = (signed: Partial<PreparedLaunch['signed']>) =>
      mismatchOf(launcher.check('vm', { ...launch, signed: { ...launch.signed, ...signed } }))
    expect(await check({})).toEqual([])
    // Bit 19 allows debugging.
    expect(await check({ policy: launch.signed.policy | (1n << 19n) })).toEqual(['policy'])
    expect(await check({ hostData: flipped(launch.signed.hostData, 31) })).toEqual(['host data'])
    const { idBlock } = launch.signed
    for (const [at, part] of [
      [0, 'ID block'],
      [0x58, 'policy'],
    ] as const) {
      const parts = await check({ idBlock: { ...idBlock, block: flipped(idBlock.block, at) } })
      expect(parts).toContain('ID block')
      expect(parts).toContain(part)
    }
    // The signature, and the key.
    for (const at of [0x40, 0x244]) {
      expect(await check({ idBlock: { ...idBlock, auth: flipped(idBlock.auth, at) } })).toEqual(['ID block'])
    }
    expect(await check({ idBlock: { ...idBlock, block: '' } })).toContain('ID block')
  })

  test('in the document', async () => {
    // Goal: HOST_DATA stands for exactly one document.
    const { launcher, prepare, mismatchOf } = await bench()
    using launch = await prepare()
    const check = (change: Partial<LaunchDocument>) =>
      mismatchOf(launcher.check('vm', { ...launch, document: { ...launch.document, ...change } }))
    // More memory than is said, for example.
    expect(await check({ memoryMib: 4096 })).toEqual(['host data'])
    expect(await check({ vcpus: 1 })).toContain('host data')
  })
})

function flipped(base64: string, at: number): string {
  const bytes = fromBase64(base64) ?? new Uint8Array()
  bytes[at] = (bytes[at] ?? 0) ^ 1
  return toBase64(bytes)
}

test('goal: a foreign operator key signs nothing that this host launches', async () => {
  const { launcher, prepare, mismatchOf } = await bench()
  using launch = await prepare()
  const foreign = await openOperatorKey(mkdtempSync(join(stateDir, 'foreign-')))
  const none = new Uint8Array(16)
  const measurement = fromHex(launch.document.measurement) ?? none
  const block = { measurement, familyId: none, imageId: none, guestSvn: 0, policy: launch.signed.policy }
  const { idBlock, idAuth } = await signIdBlock(block, { idKey: foreign.keys })
  const signed = {
    ...launch.signed,
    idBlock: { block: toBase64(idBlock), auth: toBase64(idAuth), hasAuthor: false },
  }
  expect(await mismatchOf(launcher.check('vm', { ...launch, signed }))).toEqual(['operator key'])
})

test('goal: a manifest whose digest is not that of its own parts is a mismatch of the measurement', async () => {
  const { directory, manifest, prepare, mismatchOf } = await bench()
  const launchDigests = { ...manifest.launchDigests, 'qemu-kvm/bios/EPYC-v4/2': '11'.repeat(48) }
  writeFileSync(join(directory, 'manifest.json'), JSON.stringify({ ...manifest, launchDigests }))
  expect(await mismatchOf(prepare())).toEqual(['measurement'])
})

test('goal: a shape without a digest is refused, with the shapes that there are and how to measure', async () => {
  const { prepare, db } = await bench()
  const error = await prepare({ ...vm, vcpus: 3 }).catch((thrown: unknown) => thrown)
  expect(error).toMatchObject({ code: 'image.invalid' })
  const { message } = error as Error
  expect(message).toContain('no launch digest for bios/EPYC-v4/3')
  expect(message).toContain('it has bios/EPYC-v4/1, bios/EPYC-v4/2, igvm/EPYC-v4/1, igvm/EPYC-v4/2')
  expect(message).toContain('strongroom measure ovmf')
  expect(launchOf(db, 'vm')).toBeNull()
  const other = await bench({ vcpuType: 'EPYC-Turin' })
  expect(await other.prepare().catch((thrown: unknown) => thrown)).toMatchObject({ code: 'image.invalid' })
})

test('goal: other firmware than the manifest names is told, also where the configuration names it', async () => {
  const other = join(stateDir, 'other.fd')
  const { directory } = await bench()
  writeFileSync(other, readFileSync(join(directory, 'firmware')))
  const same = await bench({ boot: { kind: 'bios', firmware: other } })
  using _ = await same.prepare()
  flip(other, 7)
  expect(await same.mismatchOf(same.prepare())).toEqual(['firmware'])
})

describe.each([
  ['builder', loadBuilderImage, 'build VMs boot'],
  ['inference', loadGatewayVmImage, "the gateway's VM boots"],
] as const)('an image of its own: %s', (name, load, who) => {
  test('boots from its own firmware and IGVM file', async () => {
    // Goal: the firmware and the IGVM file that are configured are the instance image's.
    const directory = join(mkdtempSync(join(stateDir, `${name}-`)), 'image')
    const { manifest } = await writeNamedImage(name, directory, 3)
    const other = join(stateDir, 'of-instances.fd')
    writeFileSync(other, 'firmware of another')
    const ways = [await bench({ igvm: 'named' }), await bench({ boot: { kind: 'bios', firmware: other } })]
    for (const [at, { launcher, igvm, written, db }] of ways.entries()) {
      const vehicle = at === 0 ? 'igvm' : 'bios'
      // Another number of vCPUs, too: one IGVM file is for one.
      for (const vcpus of imageVcpus) {
        const id = `own-${vcpus}`
        insertVm(db, { id, vcpus, memoryMib: 4096, hostId: 'host', image: name, nowMs: 1 })
        using launch = await launcher.prepare({ ...vm, id, vcpus, memoryMib: 4096 }, load(directory))
        expect([launch.document.image.name, launch.document.measurement]).toEqual([
          name,
          manifest.launchDigests[`qemu-kvm/${vehicle}/EPYC-v4/${vcpus}`] ?? '',
        ])
        const made = written.replace('instance-EPYC-v4-2', `${name}-EPYC-v4-${vcpus}`)
        const file = at === 0 ? made : `${directory}/firmware`
        expect([launch.firmware.path, launch.firmware.path === igvm]).toEqual([file, false])
      }
    }
  })

  test('is not taken for another', async () => {
    // Goal: an image of another kind in its place is refused by its name.
    const { directory } = await bench()
    expect(() => load(directory)).toThrow(`${directory} holds the image \`instance\`; ${who} the image \`${name}\``)
  })
})

describe('between the check and QEMU', () => {
  test('a file that is put in the place of another is not what QEMU gets', async () => {
    // Goal: the descriptor that is handed on leads to the very file that was hashed.
    const { directory, prepare } = await bench()
    using launch = await prepare()
    writeFileSync(join(directory, 'evil'), 'an evil kernel')
    renameSync(join(directory, 'evil'), join(directory, 'kernel'))
    expect(readFileSync(`/proc/self/fd/${launch.kernel.fd}`, 'utf8')).toStartWith('a kernel')
  })

  test('digests are kept only of files that have come to rest, and follow every change', async () => {
    // Goal: a change within one tick of the file system's clock is not missed; an old file is not read again and again.
    const path = join(stateDir, 'file')
    const digest = async (digests: FileDigests) => {
      using file = openImageFile(path)
      return await digests.sha256(file)
    }
    const hashed = (text: string) => new Bun.CryptoHasher('sha256').update(text).digest('hex')
    const fresh = new FileDigests(systemClock)
    for (const text of ['one', 'two', 'one']) {
      writeFileSync(path, text)
      expect(await digest(fresh)).toBe(hashed(text))
    }
    // The clock says that the file is old: now it is kept, until its times or its size change.
    const settled = new FileDigests({ nowMs: () => Date.now() + 60_000 })
    expect(await digest(settled)).toBe(hashed('one'))
    await Bun.sleep(20)
    writeFileSync(path, 'six')
    expect(await digest(settled)).toBe(hashed('six'))
  })

  test('what is not a regular file is refused, and nothing waits for it', () => {
    // Goal: a FIFO or a directory in the place of a kernel neither hangs the daemon nor is launched.
    const fifo = join(stateDir, 'fifo')
    expect(Bun.spawnSync(['mkfifo', fifo]).exitCode).toBe(0)
    for (const path of [fifo, stateDir, '/dev/null', join(stateDir, 'nothing')]) {
      expect(() => openImageFile(path)).toThrow(path)
    }
  })
})

test('goal: HOST_DATA follows from the text alone', async () => {
  const { prepare } = await bench()
  using launch = await prepare()
  const document = launchText(launch.document)
  const hashed = (text: string) => new Bun.CryptoHasher('sha256').update(text).digest('hex')
  expect(toHex(hostDataOf({ document, workload: null }))).toBe(hashed(document))
  expect(toHex(hostDataOf({ document, workload }))).toBe(hashed(workload))
})

test('goal: what a VM is launched from is in the transparency log before QEMU starts, or nothing is launched', async () => {
  const known: unknown[] = []
  const { prepare } = await bench({ beforeLaunch: launch => void known.push(launch) })
  using launch = await prepare({ ...vm, workload })
  const { measurement } = launch.document
  expect(known).toEqual([{ measurement, workload }])
  const full = await bench({
    beforeLaunch: () => {
      throw new Error('the disk is full')
    },
  })
  expect(await failureOf(full.prepare())).toContain('the disk is full')
})
