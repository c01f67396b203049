import { describe, expect, test } from 'bun:test'
import { gzipSync } from 'node:zlib'
import { paxRecord, tarOf, zipOf } from '../../../scripts/rigs/archive-bytes.ts'
import { codePageName, file, packedWith, unicodePath, unpacked } from '../../rigs/build/unpacking.ts'

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
    'names that differ in case': [
      tarOf([file('Readme'), file('README'), file('src/a'), file('SRC/a')]),
      ['README 644 "x"', 'Readme 644 "x"', 'SRC 755 directory', 'SRC/a 644 "x"', 'src 755 directory', 'src/a 644 "x"'],
    ],
    'names that differ in composition': [
      tarOf([file('\u00e9'), file('e\u0301')]),
      ['e\u0301 644 "x"', '\u00e9 644 "x"'],
    ],
    backslashes: [
      tarOf([file('a\\..\\b'), { name: 'l', type: '2', link: 'a\\..\\b' }]),
      ['a\\..\\b 644 "x"', 'l 777 directory'],
    ],
    "macOS's own files, left out": [
      tarOf([file('._a'), file('a'), file('.DS_Store'), file('d/.DS_Store'), file('e/._f'), file('e/f')]),
      ['a 644 "x"', 'e 755 directory', 'e/f 644 "x"'],
    ],
    'a zip of Finder, with the directory that it adds': [
      zipOf([
        { name: 'p/a', content: 'x' },
        { name: '__MACOSX/p/._a', content: 'y' },
        { name: '__MACOSX/', mode: 0o040755, stored: true },
      ]),
      ['p 755 directory', 'p/a 644 "x"'],
    ],
    "macOS's files that a vendored package lists": [
      tarOf([
        file('vendor/v/.cargo-checksum.json', { content: '{"files":{"src/.DS_Store":"00","src/lib.rs":"00"}}' }),
        file('vendor/v/src/.DS_Store'),
        file('vendor/v/src/._lib.rs'),
        file('vendor/v/src/lib.rs'),
      ]),
      [
        'vendor 755 directory',
        'vendor/v 755 directory',
        String.raw`vendor/v/.cargo-checksum.json 644 "{\"files\":{\"src/.DS_Store\":\"00\",\"src/lib.rs\":\"00\"}}"`,
        'vendor/v/src 755 directory',
        'vendor/v/src/.DS_Store 644 "x"',
        'vendor/v/src/lib.rs 644 "x"',
      ],
    ],
    'attributes of tar --selinux --acls --xattrs, of bsdtar, and long ones': [
      tarOf([
        {
          name: 'p',
          type: 'x',
          content: [
            paxRecord('RHT.security.selinux', 'unconfined_u:object_r:user_home_t:s0'),
            paxRecord('SCHILY.acl.access', 'user::rw-,group::r--,other::r--'),
            paxRecord('SCHILY.acl.default', 'user::rw-'),
            paxRecord('SCHILY.xattr.user.big', 'y'.repeat(100_000)),
            paxRecord('LIBARCHIVE.symlinktype', 'file'),
          ].join(''),
        },
        file('a'),
      ]),
      ['a 644 "x"'],
    ],
    'anything below an uploaded .git': [
      tarOf([
        file('.git/HEAD'),
        { name: '.git/objects/aa', type: '1', link: '.git/HEAD' },
        { name: '.git/fsmonitor--daemon.ipc', type: '6' },
        { name: '.git/null', type: '3' },
        { name: '.git/hooks', type: '2', link: '/etc/hooks' },
        { name: 'p', type: 'x', content: paxRecord('path', `.git/refs/${'x'.repeat(2000)}`) },
        file('short'),
        { name: Uint8Array.of(...Buffer.from('.git/refs/'), 0xff), content: 'x' },
        file('sub/.git/a\nb'),
        file('a'),
      ]),
      ['a 644 "x"'],
    ],
    'a zip of Windows, with backslashes between directories': [
      zipOf([
        { name: 'p\\src\\', stored: true, madeBy: 0, mode: 0 },
        { name: 'p\\src\\a', content: 'x', madeBy: 0, mode: 0 },
        { name: 'p/b\\c', content: 'y', madeBy: 11, mode: 0 },
      ]),
      ['p 755 directory', 'p/b\\c 644 "y"', 'p/src 755 directory', 'p/src/a 644 "x"'],
    ],
    'a zip of Unix, with a backslash in a name': [zipOf([{ name: 'p\\a', content: 'x' }]), ['p\\a 644 "x"']],
    'a zip of Windows, with its name in code page 437 and in UTF-8': [
      zipOf([{ name: codePageName, content: 'x', madeBy: 11, mode: 0, extra: unicodePath(codePageName, 'd\u00e9') }]),
      ['d\u00e9 644 "x"'],
    ],
    'a tar.xz': [packedWith('xz', tarOf([file('a'), file('b/c')])), ['a 644 "x"', 'b 755 directory', 'b/c 644 "x"']],
    'a tar.xz of several blocks and streams': [
      Buffer.concat([
        packedWith('xz', tarOf([file('a')], new Uint8Array(0)), '--block-size=100', '--check=sha256'),
        packedWith('xz', tarOf([file('b')]), '-9', '--x86', '--lzma2'),
      ]),
      ['a 644 "x"', 'b 644 "x"'],
    ],
    'a tar.zst': [Bun.zstdCompressSync(tarOf([file('a')])), ['a 644 "x"']],
    'a tar.zst of two frames': [
      Buffer.concat([
        Bun.zstdCompressSync(tarOf([file('a')], new Uint8Array(0))),
        Bun.zstdCompressSync(tarOf([file('b')])),
      ]),
      ['a 644 "x"', 'b 644 "x"'],
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
