import { describe, expect, test } from 'bun:test'
import * as fs from 'node:fs'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import {
  paxRecord,
  type TarEntry,
  tarOf,
  type ZipChange,
  type ZipEntry,
  zipOf,
} from '../../../scripts/rigs/archive-bytes.ts'
import { unpackArchive } from '../../../src/linux/source/unpack.ts'
import { codePageName, file, packedWith, unicodePath, unpacked } from '../../rigs/build/unpacking.ts'

function damagedAt(bytes: Uint8Array, at: number): Uint8Array {
  const damaged = Uint8Array.from(bytes)
  damaged[at] = (damaged[at] ?? 0) ^ 0xff
  return damaged
}

const noise = Uint8Array.from({ length: 4000 }, (_, at) => (at * at * 2_654_435_761) >>> 21)

describe('tars that are refused', () => {
  const extended = (records: string, entry: TarEntry = file('a')) =>
    tarOf([{ name: 'p', type: 'x', content: records }, entry])
  const refused: Record<string, [Uint8Array, RegExp]> = {
    'an absolute path': [tarOf([file('/etc/cron.d/x')]), /absolute path/],
    'a path with ..': [tarOf([file('a/../../x')]), /path with \.\./],
    'an escape sequence': [tarOf([file('a\x1b[2J')]), /control character/],
    'a name that turns the direction': [tarOf([file('a\u202ecod.exe')]), /control character/],
    'no UTF-8': [tarOf([{ name: Uint8Array.of(0x61, 0xff), content: 'x' }]), /not UTF-8/],
    'an empty component': [tarOf([file('a//b')]), /empty component/],
    'a component that is too long': [extended(paxRecord('path', 'x'.repeat(256))), /component of more than/],
    'a path that is too deep': [extended(paxRecord('path', `${'a/'.repeat(70)}b`)), /deeper than/],
    'a hard link': [tarOf([file('a'), { name: 'b', type: '1', link: 'a' }]), /hard link/],
    'a character device': [tarOf([{ name: 'a', type: '3' }]), /character device/],
    'a block device': [tarOf([{ name: 'a', type: '4' }]), /block device/],
    'a FIFO': [tarOf([{ name: 'a', type: '6' }]), /FIFO/],
    'a GNU sparse file': [tarOf([{ name: 'a', type: 'S', content: 'x' }]), /sparse/],
    'an unknown type': [tarOf([{ name: 'a', type: 'Z' }]), /type "Z"/],
    'a name twice': [tarOf([file('a'), file('a')]), /stands twice/],
    'a directory twice': [
      tarOf([
        { name: 'a/', type: '5' },
        { name: 'a/', type: '5' },
      ]),
      /stands twice/,
    ],
    'a file below a file': [tarOf([file('a'), file('a/b')]), /no directory/],
    'a file below a link': [tarOf([{ name: 'l', type: '2', link: 'd' }, file('d/x'), file('l/y')]), /no directory/],
    'a link over a file': [tarOf([file('a'), { name: 'a', type: '2', link: 'b' }]), /stands twice/],
    'a link to an absolute path': [tarOf([{ name: 'l', type: '2', link: '/etc/passwd' }]), /absolute path/],
    'a link that leads out': [tarOf([{ name: 'd/l', type: '2', link: '../../x' }]), /leads out/],
    'a link that leads out by another': [
      tarOf([
        file('d/e/f'),
        { name: 'd/e/up', type: '2', link: '../..' },
        { name: 'l', type: '2', link: 'd/e/up/../x' },
      ]),
      /leads out/,
    ],
    'a link without a target': [tarOf([{ name: 'l', type: '2' }]), /without a target/],
    'a link with content': [tarOf([{ name: 'l', type: '2', link: 'a', content: 'x' }]), /with content/],
    'a directory with content': [tarOf([{ name: 'd/', type: '5', content: 'x' }]), /with content/],
    'a file that is named like a directory': [tarOf([file('d/')]), /ends with a slash/],
    'a pax size': [extended(paxRecord('size', '5000')), /keyword "size"/],
    'a pax sparse file': [extended(paxRecord('GNU.sparse.major', '1')), /keyword "GNU.sparse.major"/],
    'a pax character set': [extended(paxRecord('hdrcharset', 'BINARY')), /keyword "hdrcharset"/],
    'a pax path twice': [extended(paxRecord('path', 'b') + paxRecord('path', 'c')), /twice/],
    'a pax path and a GNU name': [
      tarOf([
        { name: 'p', type: 'x', content: paxRecord('path', 'b') },
        { name: 'L', type: 'L', content: 'c\0' },
        file('a'),
      ]),
      /two long names/,
    ],
    'a pax record with a false length': [extended('99 path=b\n'), /malformed pax/],
    'a global path': [
      tarOf([{ name: 'g', type: 'g', content: paxRecord('path', 'b') }, file('a')]),
      /global pax header/,
    ],
    'a GNU name with more behind it': [tarOf([{ name: 'L', type: 'L', content: 'a\0b\0' }, file('x')]), /one NUL/],
    'a long name without its entry': [tarOf([{ name: 'L', type: 'L', content: 'a\0' }]), /without its entry/],
    'a header that is too long': [
      tarOf([{ name: 'L', type: 'L', content: 'a'.repeat(70_000) }, file('x')]),
      /record of type L/,
    ],
    'a wrong checksum': [tarOf([file('a', { checksum: '000000\0 ' })]), /wrong checksum/],
    'no magic': [tarOf([file('a'), file('b', { magic: '' })]), /without its magic/],
    'a size in base-256': [tarOf([file('a', { size: '\x80\0\0\0\0\0\0\0\0\0\0\x01' })]), /no octal number/],
    'a size beyond the end': [tarOf([file('a', { size: '00000077777\0' })]), /ends early/],
    'no end': [tarOf([file('a')], new Uint8Array(0)), /two empty blocks/],
    'one empty block': [tarOf([file('a')], new Uint8Array(512)), /two empty blocks/],
    'a second archive behind the end': [Buffer.concat([tarOf([file('a')]), tarOf([file('b')])]), /after the end/],
    'a damaged gzip': [gzipSync(tarOf([file('a')])).subarray(0, 40), /damaged gzip|ends early/],
    'too many bytes': [tarOf([file('a', { content: 'x'.repeat(70_000) })]), /more than 65536 bytes/],
    'a bomb': [gzipSync(tarOf([file('a', { content: new Uint8Array(64 * 1024 * 1024) })])), /more than/],
    'a bomb behind the end': [gzipSync(tarOf([file('a')], new Uint8Array(64 * 1024 * 1024))), /more than/],
    'too many entries': [tarOf(Array.from({ length: 50 }, (_, at) => file(`f${at}`))), /more than 40/],
    'too many directories': [tarOf([file(`${'a/'.repeat(45)}b`)]), /more than 40/],
    'pax records that are too long': [
      extended(paxRecord('SCHILY.xattr.user.big', 'y'.repeat(1_048_576 - 30)) + paxRecord('comment', 'z')),
      /record of type x/,
    ],
    'a name that leaves the tree by way of a .git': [tarOf([file('.git/../../x')]), /path with \.\./],
    'a sparse file below a .git': [tarOf([{ name: '.git/index', type: 'S', content: 'x' }]), /sparse/],
    'a hard link with content below a .git': [
      tarOf([{ name: '.git/b', type: '1', link: '.git/a', content: 'x' }]),
      /hard link.* with content/,
    ],
    'nothing but what is left out, and a name that leaves the tree': [
      tarOf([file('__MACOSX/../../x')]),
      /path with \.\./,
    ],
    "macOS's own file twice": [tarOf([file('.DS_Store'), file('.DS_Store')]), /stands twice/],
    'a damaged xz': [damagedAt(packedWith('xz', tarOf([file('a')])), 40), /damaged xz/],
    'an xz that ends early': [packedWith('xz', tarOf([file('a')])).subarray(0, 60), /damaged xz/],
    'an xz with bytes behind it': [
      Buffer.concat([packedWith('xz', tarOf([file('a')])), Buffer.from('junk')]),
      /damaged xz/,
    ],
    'an xz that needs too much memory': [
      packedWith('xz', tarOf([file('a')]), '--lzma2=preset=0,dict=256MiB'),
      /more than 128 MiB of memory; pack it again with `xz -9`/,
    ],
    'an xz bomb': [packedWith('xz', new Uint8Array(64 * 1024 * 1024), '-0'), /without its|more than/],
    'an xz bomb in a file': [
      packedWith('xz', tarOf([file('a', { content: new Uint8Array(16 * 1024 * 1024) })]), '-0'),
      /more than 65536 bytes/,
    ],
    'a damaged zstd': [damagedAt(packedWith('zstd', tarOf([file('a', { content: noise })])), 2000), /damaged zstd/],
    'a zstd that ends early': [
      packedWith('zstd', tarOf([file('a', { content: noise })])).subarray(0, 600),
      /early|ends without/,
    ],
    'a zstd that needs too much memory': [packedWith('zstd', tarOf([file('a')]), '--long=31'), /damaged zstd/],
    'a zstd bomb': [
      Bun.zstdCompressSync(tarOf([file('a', { content: new Uint8Array(64 * 1024 * 1024) })])),
      /more than 65536 bytes/,
    ],
    'an xz that is no tar': [packedWith('xz', Buffer.alloc(600, 0x41)), /without its magic/],
    'nothing that we know': [Buffer.from('BZh91AY&SY'), /neither gzip, xz, zstd, tar nor zip/],
  }
  for (const [what, [archive, why]] of Object.entries(refused)) {
    // Goal: each trick is named, and nothing of it reaches the disk.
    test(what, async () => {
      const result = await unpacked(archive)
      expect(typeof result === 'string' ? result : `taken: ${result.join()}`).toMatch(why)
    })
  }
})

describe('zips that are refused', () => {
  const archive = (change: Partial<ZipEntry> = {}, all: ZipChange = {}) =>
    zipOf([{ name: 'a', content: 'x', ...change }], all)
  const extra = (id: number, body: number[]) => Uint8Array.from([id & 0xff, id >> 8, body.length, 0, ...body])
  const refused: Record<string, [Uint8Array, RegExp]> = {
    'a path with ..': [archive({ name: '../a' }), /path with \.\./],
    'an absolute path': [archive({ name: '/a' }), /absolute path/],
    'a drive': [archive({ name: 'C:/a' }), /absolute path/],
    'another name in the local header': [archive({ localName: 'b' }), /differ/],
    'another size in the local header': [archive({ localSize: 9 }), /differ/],
    encryption: [archive({ flags: 1 }), /encrypted/],
    'strong encryption': [archive({ flags: 0x40 }), /encrypted/],
    AES: [archive({ extra: extra(0x9901, [1, 0, 0x41, 0x45, 3, 8, 0]) }), /encrypted/],
    zip64: [archive({ extra: extra(1, [0, 0, 0, 0, 0, 0, 0, 0]) }), /zip64/],
    'a second name': [archive({ extra: extra(0x7075, [1, 0, 0, 0, 0, 0x62]) }), /other name/],
    'a second name of this name': [archive({ extra: unicodePath(Buffer.from('a'), 'b') }), /other name/],
    'a second name of another name': [
      archive({ name: codePageName, extra: unicodePath(Buffer.from('a'), 'b') }),
      /other name/,
    ],
    'two other names': [
      archive({
        name: codePageName,
        extra: Buffer.concat([unicodePath(codePageName, 'b'), unicodePath(codePageName, 'c')]),
      }),
      /other name/,
    ],
    'a name in a code page': [archive({ name: codePageName, madeBy: 0 }), /not UTF-8/],
    'a path with .. and backslashes': [archive({ name: '..\\a', madeBy: 0 }), /path with \.\./],
    'an absolute path with backslashes': [archive({ name: '\\a', madeBy: 0 }), /absolute path/],
    'a drive with backslashes': [archive({ name: 'C:\\a', madeBy: 0 }), /absolute path/],
    'one name with slashes and with backslashes': [
      zipOf([
        { name: 'd/a', madeBy: 0 },
        { name: 'd\\a', madeBy: 0 },
      ]),
      /stands twice/,
    ],
    'a method that we do not know': [archive({ method: 12 }), /method 12/],
    'a stored size that is none': [archive({ stored: true, centralSize: 9 }), /another size/],
    'overlapping entries': [
      zipOf([
        { name: 'a', content: 'x' },
        { name: 'b', content: 'y', offset: 0 },
      ]),
      /overlap|differ/,
    ],
    'bytes before the first entry': [archive({}, { prefix: Buffer.from('PK\x03\x04junk') }), /overlap|bytes between/],
    'bytes between entries': [
      zipOf(
        [
          { name: 'a', content: 'x' },
          { name: 'b', content: 'y' },
        ],
        { between: Buffer.from('junk') },
      ),
      /bytes between/,
    ],
    'bytes after the end': [archive({}, { after: Buffer.from('junk') }), /after the end/],
    'a count that is too small': [
      zipOf([{ name: 'a', content: 'x' }, { name: 'b' }], { entryCount: 1 }),
      /beside its entries|malformed/,
    ],
    'a count that is too large': [archive({}, { entryCount: 2 }), /malformed|too large/],
    'an end record inside of the comment': [archive({}, { comment: zipOf([{ name: 'b' }]) }), /end records/],
    'a content that is larger than it says': [archive({ content: 'x'.repeat(1000), centralSize: 10 }), /more content/],
    'a content that is smaller than it says': [archive({ centralSize: 10 }), /differ/],
    'a damaged content': [archive({ packed: Uint8Array.of(0xff, 0xff, 0xff) }), /inflated/],
    'a bomb': [archive({ content: new Uint8Array(32 * 1024 * 1024) }), /more than 65536/],
    'a bomb below a .git': [
      archive({ name: '.git/objects/a', content: new Uint8Array(32 * 1024 * 1024) }),
      /more than 65536 bytes unpacked/,
    ],
    'many large files of Finder': [
      zipOf(Array.from({ length: 3 }, (_, at) => ({ name: `__MACOSX/._${at}`, content: new Uint8Array(30 * 1024) }))),
      /more than 65536 bytes unpacked/,
    ],
    'files that are large together with a .git': [
      zipOf(['.git/a', 'a'].map(name => ({ name, content: new Uint8Array(40 * 1024) }))),
      /more than 65536 bytes unpacked/,
    ],
    'a device': [archive({ mode: 0o020644 }), /neither file/],
    'a link that leads out': [archive({ content: '../x', mode: 0o120777 }), /leads out/],
    'a name twice': [zipOf([{ name: 'a' }, { name: 'a' }]), /stands twice/],
    'too many entries': [zipOf(Array.from({ length: 50 }, (_, at) => ({ name: `f${at}` }))), /more than 40/],
  }
  for (const [what, [archive, why]] of Object.entries(refused)) {
    // Goal: two readers of the same zip never see two sources, and what it unpacks to is known before it is.
    test(what, async () => {
      const result = await unpacked(archive)
      expect(typeof result === 'string' ? result : `taken: ${result.join()}`).toMatch(why)
    })
  }
})

// Goal: content that comes in many pieces is on disk as it was, and so is what follows it.
test('large files', async () => {
  const large = new Uint8Array(3 * 1024 * 1024 + 1)
  for (let at = 0; at < large.length; at += 1) large[at] = (at * 2_654_435_761) >>> 13
  const digestOf = (bytes: Uint8Array) => new Bun.CryptoHasher('sha256').update(bytes).digest('hex')
  const archives = [
    tarOf([file('large', { content: large }), file('b')]),
    gzipSync(tarOf([file('large', { content: large }), file('b')])),
    packedWith('xz', tarOf([file('large', { content: large }), file('b')]), '-1'),
    Bun.zstdCompressSync(tarOf([file('large', { content: large }), file('b')])),
    zipOf([
      { name: 'large', content: large },
      { name: 'b', content: 'x' },
    ]),
    zipOf([
      { name: 'large', content: large, stored: true, descriptor: true },
      { name: 'b', content: 'x' },
    ]),
  ]
  for (const archive of archives) {
    const dir = fs.mkdtempSync('/tmp/strongroom-unpack-')
    try {
      fs.mkdirSync(join(dir, 'into'))
      fs.writeFileSync(join(dir, 'device'), archive)
      const order = {
        device: join(dir, 'device'),
        sizeBytes: archive.length,
        into: join(dir, 'into'),
        unprivileged: [],
      }
      await unpackArchive({ ...order, bytesMax: 8 * 1024 * 1024, entriesMax: 4 })
      expect(digestOf(fs.readFileSync(join(dir, 'into/large')))).toBe(digestOf(large))
      expect(fs.readFileSync(join(dir, 'into/b'), 'utf8')).toBe('x')
    } finally {
      fs.rmSync(dir, { recursive: true, force: true })
    }
  }
})

// Goal: whatever bytes come in, the answer is a tree or a refusal, in bounded time.
test('damage anywhere in an archive is refused or harmless', async () => {
  const originals = [
    tarOf([file('a'), { name: 'l', type: '2', link: 'a' }]),
    gzipSync(tarOf([file('a')])),
    packedWith('xz', tarOf([file('a')])),
    Bun.zstdCompressSync(tarOf([file('a')])),
    zipOf([
      { name: 'a', content: 'x' },
      { name: 'b/c', content: 'y', descriptor: true },
    ]),
  ]
  for (const original of originals) {
    const step = Math.max(1, Math.floor(original.length / 60))
    for (let at = 0; at < original.length; at += step) {
      const damaged = Uint8Array.from(original)
      damaged[at] = (damaged[at] ?? 0) ^ 0x41
      const result = await unpacked(damaged)
      expect(typeof result === 'string' || Array.isArray(result)).toBe(true)
    }
  }
})
