// Kernels that the host unpacks for emulated VMs: made-up bzImages, real files.

import { afterAll, expect, test } from 'bun:test'
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, watch, writeFileSync, writeSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { until } from '../../../scripts/rigs/until.ts'
import { toHex } from '../../../src/base/bytes.ts'
import { hasPvhEntry, zstdPayload } from '../../../src/vm/launch/bzimage.codec.ts'
import { type ImageFile, nativeHashes, openImageFile } from '../../../src/vm/launch/image-file.driver.ts'
import { UnpackedKernels } from '../../../src/vm/launch/unpacked-kernel.driver.ts'

const directory = mkdtempSync(join(tmpdir(), 'srt-kernels-'))
afterAll(() => rmSync(directory, { recursive: true, force: true }))

/** An ELF file of one segment of notes, the last of which is of this type. */
function elfWith(noteType: number): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(1_024)
  const view = new DataView(bytes.buffer)
  bytes.set([0x7f, 0x45, 0x4c, 0x46, 2, 1, 1])
  view.setBigUint64(32, 64n, true)
  view.setUint16(54, 56, true)
  view.setUint16(56, 1, true)
  view.setUint32(64, 4, true)
  view.setBigUint64(64 + 8, 256n, true)
  view.setBigUint64(64 + 32, 60n, true)
  // A note of somebody else's first, with a name and a value that are padded.
  view.setUint32(256, 6, true)
  view.setUint32(260, 5, true)
  view.setUint32(264, 18, true)
  bytes.set(new TextEncoder().encode('Linux\0'), 268)
  const second = 256 + 12 + 8 + 8
  view.setUint32(second, 4, true)
  view.setUint32(second + 4, 8, true)
  view.setUint32(second + 8, noteType, true)
  bytes.set(new TextEncoder().encode('Xen\0'), second + 12)
  return bytes
}

type Made = { readonly magic?: number; readonly protocol?: number; readonly says?: number }

function bzImage(
  unpacked: Uint8Array<ArrayBuffer>,
  { magic = 0x53726448, protocol = 0x20f, says = unpacked.length }: Made = {},
) {
  const payload = Bun.zstdCompressSync(unpacked)
  const at = 2 * 512 + 64
  const bytes = new Uint8Array(at + payload.length + 4 + 100)
  const view = new DataView(bytes.buffer)
  view.setUint8(0x1f1, 1)
  view.setUint32(0x202, magic, true)
  view.setUint16(0x206, protocol, true)
  view.setUint32(0x248, 64, true)
  view.setUint32(0x24c, payload.length + 4, true)
  bytes.set(payload, at)
  view.setUint32(at + payload.length, says, true)
  return bytes
}

const direct = elfWith(18)

function kernelFile(name: string, bytes: Uint8Array): { readonly file: ImageFile; readonly sha256: string } {
  const path = join(directory, name)
  writeFileSync(path, bytes)
  return { file: openImageFile(path), sha256: toHex(nativeHashes.sha256(bytes)) }
}

test('a kernel that can be started directly is unpacked, and nobody can put another in its place', async () => {
  // Goal: QEMU gets the bytes that were checked, readable by its user, and no name of them is left.
  const kernels = new UnpackedKernels(directory)
  const { file, sha256 } = kernelFile('good', bzImage(direct))
  using _ = file
  const names = readdirSync(directory)
  const seen = new Set<string>()
  const watcher = watch(directory, (_event, name) => void seen.add(name ?? ''))
  using _closing = { [Symbol.dispose]: () => watcher.close() }
  const opened = await Promise.all([kernels.open(file, sha256), kernels.open(file, sha256)])
  const [inode] = opened.map(kernel => statSync(`/proc/self/fd/${kernel?.fd}`).ino)
  for (const file of opened) {
    using kernel = file
    const path = `/proc/self/fd/${kernel?.fd}`
    expect(new Uint8Array(readFileSync(path))).toEqual(direct)
    const { mode, nlink, ino } = statSync(path)
    expect([mode & 0o777, nlink, ino]).toEqual([0o644, 0, inode ?? -1])
    expect(() => writeSync(kernel?.fd ?? -1, 'x')).toThrow('EBADF')
  }
  // A name that came and went would be seen before this one.
  writeFileSync(join(directory, 'last'), '')
  await until('the watcher sees a name that comes', 15_000, () => seen.has('last'))
  // The kernel calls one without a name by its number.
  expect([...seen].filter(name => !/^#\d+$/.test(name))).toEqual(['last'])
  expect(readdirSync(directory)).toEqual([...names, 'last'].sort())
})

test('what cannot be started directly unpacks itself', async () => {
  // Goal: a kernel of another kind, which QEMU would refuse, boots as before.
  const kernels = new UnpackedKernels(directory)
  const others = {
    text: new TextEncoder().encode('a kernel '.repeat(200)),
    magic: bzImage(direct, { magic: 1 }),
    old: bzImage(direct, { protocol: 0x207 }),
    huge: bzImage(direct, { says: 0xffffffff }),
    note: bzImage(elfWith(17)),
    cut: bzImage(direct.slice(0, 40)),
  }
  for (const [name, bytes] of Object.entries(others)) {
    const { file, sha256 } = kernelFile(name, bytes)
    using _ = file
    expect([name, await kernels.open(file, sha256)]).toEqual([name, null])
  }
})

test('a kernel other than the one that was checked, or a damaged one, is refused', async () => {
  // Goal: neither is started, nor does a small file fill the memory.
  const kernels = new UnpackedKernels(directory)
  const bytes = bzImage(direct)
  const { file, sha256 } = kernelFile('changed', bytes)
  using _ = file
  await expect(kernels.open(file, sha256.replace(/^../, 'zz'))).rejects.toMatchObject({ code: 'image.invalid' })
  for (const [name, wrong] of [
    ['bomb', bzImage(new Uint8Array(8_000_000), { says: 1_024 })],
    ['short', bzImage(direct, { says: 2_000 })],
    ['damaged', bytes.slice().fill(0xff, 1_096, 1_120)],
  ] as const) {
    const damaged = kernelFile(name, wrong)
    using _ = damaged.file
    const outcome = await kernels.open(damaged.file, damaged.sha256).catch((error: unknown) => error)
    expect(outcome).toMatchObject({ code: 'image.invalid' })
  }
})

test('no length or offset in a header reaches behind the file', () => {
  // Goal: whoever writes an image learns no memory of the host's, and ends no daemon.
  const kernel = bzImage(direct)
  for (const [at, bytes] of [
    [0x248, 4],
    [0x24c, 4],
    [0x1f1, 1],
  ] as const) {
    const wrong = kernel.slice()
    wrong.fill(0xff, at, at + bytes)
    expect(zstdPayload(wrong)).toBeNull()
  }
  for (const field of [32, 54, 56, 64 + 8, 64 + 32]) {
    const wrong = direct.slice()
    wrong.fill(0xff, field, field + 2)
    expect([field, hasPvhEntry(wrong)]).toEqual([field, false])
  }
  for (let length = 0; length < 400; length += 1) {
    hasPvhEntry(direct.subarray(0, length))
    zstdPayload(kernel.subarray(0, length))
  }
})
