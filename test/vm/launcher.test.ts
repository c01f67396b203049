// Launches are what the manifest promises, or are refused before QEMU starts, with the part that differs. Real files, real digests.

import { afterAll, describe, expect, test } from 'bun:test'
import { mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { sha256 } from '../../src/attest/hash.ts'
import { finishLaunch } from '../../src/attest/launch/finish.ts'
import { signIdBlock } from '../../src/attest/launch/id-block-sign.ts'
import { fromBase64, fromHex, toBase64, toHex, utf8 } from '../../src/base/bytes.ts'
import { systemClock } from '../../src/base/clock.ts'
import { type LaunchDocument, launchText } from '../../src/contract/launch.ts'
import { openOperatorKey } from '../../src/host/operator-key.ts'
import { openStore } from '../../src/store/db.ts'
import { launchOf } from '../../src/store/ledger/launch.query.ts'
import { insertVm, moveVm, purgeGoneVms } from '../../src/store/ledger/vm.query.ts'
import { hostDataOf } from '../../src/vm/expected.plan.ts'
import { loadImage } from '../../src/vm/image.driver.ts'
import { FileDigests, openImageFile } from '../../src/vm/image-file.driver.ts'
import { Launcher, type LauncherDeps, LaunchMismatch, type PreparedLaunch } from '../../src/vm/launcher.driver.ts'
import { imageVcpuType, writeLaunchImage } from '../rigs/launch-image.ts'

const stateDir = mkdtempSync(join(tmpdir(), 'srt-launcher-'))
afterAll(() => rmSync(stateDir, { recursive: true }))
const operatorKey = await openOperatorKey(stateDir)
const vm = { id: 'vm', vcpus: 2, memoryMib: 2048 }

async function bench(options: Partial<LauncherDeps> & { igvm?: true } = {}) {
  const directory = mkdtempSync(join(stateDir, 'image-'))
  const { manifest, igvm } = await writeLaunchImage(directory)
  const { db } = openStore(':memory:').ledger
  insertVm(db, { ...vm, hostId: 'host', image: 'instance', nowMs: 1 })
  const boot = options.igvm ? ({ kind: 'igvm', file: igvm } as const) : ({ kind: 'bios', firmware: null } as const)
  const launcher = new Launcher({ db, clock: systemClock, operatorKey, vcpuType: imageVcpuType, boot, ...options })
  const prepare = (of = vm) => launcher.prepare(of, loadImage(directory))
  const mismatchOf = async (work: Promise<unknown>): Promise<readonly string[]> => {
    const error = await work.then(
      () => null,
      (thrown: unknown) => thrown,
    )
    if (error === null) return []
    if (!(error instanceof LaunchMismatch)) throw error
    return error.parts
  }
  return { directory, manifest, igvm, db, launcher, prepare, mismatchOf }
}

function flip(path: string, at: number): void {
  const bytes = readFileSync(path)
  bytes[at] = (bytes[at] ?? 0) ^ 1
  writeFileSync(path, bytes)
}

describe('a sound launch', () => {
  test.each(['bios', 'igvm'] as const)('is signed, on record and open: %s', async vehicle => {
    // Goal: what firmware and report will say follows from the manifest and this host's key alone.
    const { prepare, db, manifest } = await bench(vehicle === 'igvm' ? { igvm: true } : {})
    using launch = await prepare()
    const measurement = manifest.launchDigests[`qemu-kvm/${vehicle}/EPYC-v4/2`] ?? ''
    expect(launch.document).toMatchObject({ measurement, vcpus: 2, memoryMib: 2048, policy: '0x30000' })
    const text = launchText(launch.document)
    const hostData = toHex(sha256(utf8(text)))
    expect(toHex(fromBase64(launch.signed.hostData) ?? new Uint8Array())).toBe(hostData)
    expect(launchOf(db, 'vm')).toMatchObject({
      ...{ document: text, measurement, hostData, operatorKey: toHex(operatorKey.digest) },
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

  test('in the IGVM file, wherever it stands', async () => {
    // Goal: what the file would load is measured, not what its name says.
    const { igvm, prepare } = await bench({ igvm: true })
    const sizeBytes = readFileSync(igvm).length
    for (const at of [sizeBytes - 1, sizeBytes - 5_000, sizeBytes >> 1]) {
      flip(igvm, at)
      const error = await prepare().catch((thrown: unknown) => thrown)
      // A page gives another digest; a header may make the file no IGVM file at all.
      expect([at, Reflect.get(Object(error), 'code')]).toEqual([
        at,
        expect.stringMatching(/^(launch.mismatch|image.invalid)$/),
      ])
      flip(igvm, at)
    }
    using _ = await prepare()
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

  test('what is no regular file is refused, and nothing waits for it', () => {
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
  expect(toHex(hostDataOf(launch.document))).toBe(
    new Bun.CryptoHasher('sha256').update(launchText(launch.document)).digest('hex'),
  )
})
