import { describe, expect, test } from 'bun:test'
import { join } from 'node:path'
import { root } from '../meta/tree.ts'

const script = join(root, 'scripts/lib/apt-entry.awk')

function copyEntry(format: 'sources' | 'list', number: number, text: string): { status: number; text: string } {
  const variables = [`number=${number}`, `format=${format}`, 'suite=s-backports'].flatMap(pair => ['-v', pair])
  const { exitCode, stdout } = Bun.spawnSync(['awk', '-f', script, ...variables], { stdin: Buffer.from(text) })
  return { status: exitCode, text: stdout.toString() }
}

const stanzas = `# only a comment

Enabled: no
Types: deb
URIs: http://off.example/debian
Suites: s
Components: main

Types: deb deb-src
# inside
URIs: mirror+file:/etc/apt/mirrors.list
Suites:
 s
 s-updates
Components: main contrib
Trusted: yes
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 abc
 -----END PGP PUBLIC KEY BLOCK-----
`

describe('a copied apt source', () => {
  // Goal: in the stanza format address, keyring and options stay; suite, components and types are ours.
  test('.sources', () => {
    expect(copyEntry('sources', 2, stanzas)).toEqual({
      status: 0,
      text: `URIs: mirror+file:/etc/apt/mirrors.list
Types: deb
Suites: s-backports
Components: main
Trusted: yes
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 abc
 -----END PGP PUBLIC KEY BLOCK-----
`,
    })
  })

  // Goal: in the one-line format the options in brackets and the address stay.
  test.each([
    ['deb http://a.example/debian s main contrib', 'deb http://a.example/debian s-backports main'],
    ['  deb\thttp://a.example/debian/  s  main # why', 'deb http://a.example/debian/ s-backports main'],
    [
      'deb [ signed-by=/k arch=amd64 ] tor+http://a.example/d s main',
      'deb [ signed-by=/k arch=amd64 ] tor+http://a.example/d s-backports main',
    ],
    ['deb [trusted=yes] file:/srv/d s main', 'deb [trusted=yes] file:/srv/d s-backports main'],
  ])('%s', (line, copied) => {
    expect(copyEntry('list', 2, `# first\n${line}\n`)).toEqual({ status: 0, text: `${copied}\n` })
  })

  // Goal: an entry that is not there is an error and not an empty source.
  test('nothing to copy', () => {
    expect(copyEntry('sources', 3, stanzas)).toEqual({ status: 1, text: '' })
    expect(copyEntry('list', 1, '# first\n')).toEqual({ status: 1, text: '' })
  })
})

// Goal: the bash parts parse, and the pin of Bun is read from its lock.
test('the bootstrap', () => {
  for (const file of [
    'scripts/setup',
    'scripts/test',
    'scripts/demo',
    '.ci/run',
    'scripts/lib/debian.sh',
    'scripts/lib/bun.sh',
  ]) {
    expect(Bun.spawnSync(['bash', '-n', join(root, file)]).exitCode).toBe(0)
  }
  const { stdout } = Bun.spawnSync([
    'bash',
    '-c',
    'source "$0" && echo "$STRONGROOM_BUN_VERSION"',
    join(root, 'scripts/lib/environment.sh'),
  ])
  expect(stdout.toString().trim()).toBe(Bun.version)
})
