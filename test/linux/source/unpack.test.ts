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
import { listTree } from '../../../scripts/rigs/guest/root.ts'
import { SourceFailure } from '../../../src/linux/source/failure.ts'
import { unpackArchive } from '../../../src/linux/source/unpack.ts'

const bounds = { bytesMax: 64 * 1024, entriesMax: 40 }

/** The tree that comes out, or why none does. Nothing may ever be written beside the directory. */
async function unpacked(archive: Uint8Array, limits = bounds): Promise<string[] | string> {
  const dir = fs.mkdtempSync('/tmp/strongroom-unpack-')
  try {
    const [device, into] = [join(dir, 'device'), join(dir, 'into')]
    fs.mkdirSync(into)
    // Bytes after the archive on the disk belong to somebody else.
    fs.writeFileSync(device, Buffer.concat([archive, Buffer.alloc(4096, 0x5a)]))
    try {
      await unpackArchive({ device, sizeBytes: archive.length, into, ...limits })
    } catch (error) {
      if (!(error instanceof SourceFailure)) throw error
      return error.message
    } finally {
      expect(fs.readdirSync(dir).sort()).toEqual(['device', 'into'])
    }
    return listTree(into)
  } finally {
    fs.rmSync(dir, { recursive: true, force: true })
  }
}

const file = (name: string, more: Partial<TarEntry> = {}): TarEntry => ({ name, content: 'x', ...more })
const longName = `${'d'.repeat(90)}/${'e'.repeat(90)}/f`

describe('archives that are taken', () => {
  const taken: Record<string, [Uint8Array, string[]]> = {
    'a tar': [tarOf([file('a'), file('b/c', { mode: '0004755\0' })]), ['a 644 "x"', 'b 755 directory', 'b/c 755 "x"']],
    'a tar.gz': [gzipSync(tarOf([file('a')])), ['a 644 "x"']],
    'names with ./ and directories of their own': [
      tarOf([{ name: './', type: '5' }, { name: './b/', type: '5' }, file('./b/c'), { name: './empty/', type: '5' }]),
      ['b 755 directory', 'b/c 644 "x"'],
    ],
    'a directory that is named after its file': [
      tarOf([file('b/c'), { name: 'b/', type: '5' }]),
      ['b 755 directory', 'b/c 644 "x"'],
    ],
    'a pax path': [
      tarOf([
        { name: 'p', type: 'x', content: paxRecord('mtime', '1.5') + paxRecord('path', 'ü/long') },
        file('short'),
      ]),
      ['ü 755 directory', 'ü/long 644 "x"'],
    ],
    "git's global header": [
      tarOf([{ name: 'pax_global_header', type: 'g', content: paxRecord('comment', '8bbc46a') }, file('a')]),
      ['a 644 "x"'],
    ],
    'a GNU long name': [
      tarOf([
        { name: '././@LongLink', type: 'L', content: `${longName}\0`, magic: 'ustar  \0' },
        file('d', { magic: 'ustar  \0' }),
      ]),
      [`${'d'.repeat(90)} 755 directory`, `${'d'.repeat(90)}/${'e'.repeat(90)} 755 directory`, `${longName} 644 "x"`],
    ],
    'a ustar prefix': [
      tarOf([file('name', { prefix: 'some/dir' })]),
      ['some 755 directory', 'some/dir 755 directory', 'some/dir/name 644 "x"'],
    ],
    'a link, and what it leads to': [
      tarOf([{ name: 'l', type: '2', link: 'd/../a' }, file('a'), file('d/x')]),
      ['a 644 "x"', 'd 755 directory', 'd/x 644 "x"', 'l 777 directory'],
    ],
    'an uploaded .git, left out': [
      tarOf([file('.git/config'), file('sub/.GIT/hooks/post-checkout'), file('a'), file('.gitignore')]),
      ['.gitignore 644 "x"', 'a 644 "x"'],
    ],
    'a zip': [
      zipOf([
        { name: 'a', content: 'x' },
        { name: 'd/', mode: 0o040755, stored: true },
        { name: 'd/b', content: 'y', mode: 0o100755, stored: true },
      ]),
      ['a 644 "x"', 'd 755 directory', 'd/b 755 "y"'],
    ],
    'a zip with data descriptors': [
      zipOf([
        { name: 'a', content: 'x', descriptor: true },
        { name: 'b', content: 'y' },
      ]),
      ['a 644 "x"', 'b 644 "y"'],
    ],
    'a zip with a comment': [zipOf([{ name: 'a', content: 'x' }], { comment: Buffer.from('8bbc46a') }), ['a 644 "x"']],
  }
  for (const [what, [archive, tree]] of Object.entries(taken)) {
    // Goal: archives of git, GNU tar, bsdtar and zip come out as files of two modes, without owners, times, set-user-ID
    // and empty directories.
    test(what, async () => {
      expect(await unpacked(archive)).toEqual(tree)
    })
  }
})

describe('tars that are refused', () => {
  const extended = (records: string, entry: TarEntry = file('a')) =>
    tarOf([{ name: 'p', type: 'x', content: records }, entry])
  const refused: Record<string, [Uint8Array, RegExp]> = {
    'an absolute path': [tarOf([file('/etc/cron.d/x')]), /absolute path/],
    'a path with ..': [tarOf([file('a/../../x')]), /path with \.\./],
    'a backslash': [tarOf([file('a\\..\\b')]), /backslash/],
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
    'names that differ in case': [tarOf([file('Readme'), file('README')]), /in case or composition/],
    'directories that differ in case': [tarOf([file('src/a'), file('SRC/b')]), /in case or composition/],
    'names that differ in composition': [tarOf([file('\u00e9'), file('e\u0301')]), /in case or composition/],
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
    'nothing that we know': [Buffer.from('BZh91AY&SY'), /neither gzip, tar nor zip/],
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
      const order = { device: join(dir, 'device'), sizeBytes: archive.length, into: join(dir, 'into') }
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
