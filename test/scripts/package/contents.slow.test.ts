// Contents of the Debian packages: units by the folder, completions and man pages by the commands, control data.

import { describe, expect, test } from 'bun:test'
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { commandTree } from '../../../scripts/package/command-tree.ts'
import { bashCompletion, fishCompletion, zshCompletion } from '../../../scripts/package/completions.ts'
import { appliancePackage, commentedConfig } from '../../../scripts/package/contents.ts'
import { conffilesText, controlText, DEPENDS, filled, md5sumsText } from '../../../scripts/package/control.ts'
import { writeDeb } from '../../../scripts/package/deb.ts'
import { manPages } from '../../../scripts/package/man-pages.ts'
import { unitsOf } from '../../../scripts/package/units.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { settingsOf } from '../../../src/config/edit.ts'

const repo = resolve(import.meta.dir, '../../..')
const facts = { repo, version: '1.2.3', maintainer: 'A <a@b.example>', epochS: 1_000_000_000 }
const made = appliancePackage({ ...facts, executable: '/nowhere' })
const tree = commandTree()

test('goal: every file of scripts/systemd is in the package, with the path of the packaged executable', () => {
  const units = readdirSync(join(repo, 'scripts/systemd'))
  const { files, enabled } = unitsOf(
    units.map(name => ({ name, text: readFileSync(join(repo, 'scripts/systemd', name), 'utf8') })),
  )
  expect(files.length).toBe(units.length)
  expect(files.filter(({ text }) => text.includes('/usr/local/'))).toEqual([])
  expect(enabled).toContain('strongroom.service')
  const paths = made.entries.map(({ path }) => path)
  for (const { path } of files) expect(paths).toContain(path)
})

test('goal: each man page that a unit names is in the package', () => {
  const units = readdirSync(join(repo, 'scripts/systemd'))
  const texts = units.map(name => readFileSync(join(repo, 'scripts/systemd', name), 'utf8')).join('\n')
  const named = [...texts.matchAll(/\bman:([^\s(]+)\((\d)\)/g)].map(([, page, section]) => `${page}.${section}`)
  expect(named).not.toEqual([])
  expect(manPages(tree, '1').map(({ name }) => name)).toEqual(expect.arrayContaining(named))
})

test('goal: an upgrade restarts what serves, not what holds', () => {
  const unit = (name: string, text: string) => ({ name, text })
  const { files, enabled, restarted } = unitsOf([
    unit('a.service', '[Service]\nType=exec\nExecStart=/usr/local/bin/strongroom serve\n[Install]\n'),
    unit('b.service', '[Service]\nType=oneshot\n[Install]\n'),
    unit('c.timer', '[Timer]\n[Install]\n'),
    unit('c.service', '[Service]\nType=oneshot\n'),
  ])
  expect(enabled).toEqual(['a.service', 'b.service', 'c.timer'])
  expect(restarted).toEqual(['a.service', 'c.timer'])
  expect(files.map(({ path }) => path)).toEqual([
    'usr/lib/systemd/system/a.service',
    'usr/lib/systemd/system/b.service',
    'usr/lib/systemd/system/c.service',
    'usr/lib/systemd/system/c.timer',
  ])
  expect(files[0]?.text).toContain('ExecStart=/usr/bin/strongroom serve')
})

test('goal: the commented configuration sets nothing and names every field', () => {
  expect(settingsOf(commentedConfig())).toEqual([])
  for (const name of ['domain', 'pool_v4', 'image_dir', 'drain_s'])
    expect(commentedConfig()).toMatch(new RegExp(`^#${name} = `, 'm'))
})

test('goal: control data is what deb-control(5) says', () => {
  expect(controlText({ ...made.control, recommends: [] }, 2048)).toContain(
    `Package: strongroom\nVersion: 1.2.3\nArchitecture: amd64\nMaintainer: A <a@b.example>\nInstalled-Size: 2\nDepends: ${DEPENDS.join(', ')}\nSection: admin\n`,
  )
  const file = (path: string) => ({ kind: 'file', path, bytes: new Uint8Array(), mode: 0o644 }) as const
  expect(conffilesText([file('etc/b'), file('usr/a'), file('etc/a')])).toBe('/etc/a\n/etc/b\n')
  expect(
    md5sumsText(
      new Map([
        ['usr/b', '22'],
        ['etc/a', '00'],
        ['usr/a', '11'],
      ]),
    ),
  ).toBe('11  usr/a\n22  usr/b\n')
})

test('goal: no placeholder of a maintainer script is left, and each is a script that sh takes', () => {
  for (const [name, text] of Object.entries(made.scripts)) {
    expect(text).not.toMatch(/@[A-Z]+@/)
    const { exitCode, stderr } = Bun.spawnSync(['sh', '-n'], { stdin: Buffer.from(text) })
    expect([name, exitCode, stderr.toString()]).toEqual([name, 0, ''])
  }
  expect(() => filled('@NOBODY@', {})).toThrow('@NOBODY@')
})

describe('completions', () => {
  const complete = (...words: string[]): string[] => {
    const line = words.map(word => `'${word}'`).join(' ')
    const script = `${bashCompletion(tree)}\nCOMP_WORDS=(${line}); COMP_CWORD=${words.length - 1}; _strongroom; printf '%s\\n' "\${COMPREPLY[@]}"`
    const { stdout, stderr } = Bun.spawnSync(['bash', '--norc'], { stdin: Buffer.from(script), cwd: '/' })
    expect(stderr.toString()).toBe('')
    return stdout.toString().split('\n').filter(Boolean)
  }

  test('goal: bash completes commands, options and the values that are known', () => {
    expect(complete('strongroom', 'tear')).toEqual(['teardown'])
    expect(complete('strongroom', 'org', 'c')).toEqual(['create'])
    expect(complete('strongroom', '--json', 'org', 'sus')).toEqual(['suspend'])
    expect(complete('strongroom', 'key', 'create', 'acme', '--sc')).toEqual(['--scope'])
    expect(complete('strongroom', 'key', 'create', '--scope', 'r')).toEqual(['read'])
    expect(complete('strongroom', '--config', '/et')).toEqual(['/etc'])
    expect(complete('strongroom', 'status', '--jso')).toEqual(['--json'])
  })

  test('goal: every command of the executable is in every completion', () => {
    expect(tree.length).toBeGreaterThan(60)
    for (const { path } of tree.slice(1)) {
      for (const text of [bashCompletion(tree), zshCompletion(tree), fishCompletion(tree)])
        expect(text).toContain(`'${path.join(' ')}'`)
    }
  })

  const shells = [
    ['zsh', zshCompletion(tree)],
    ['fish', fishCompletion(tree)],
  ] as const
  for (const [shell, text] of shells) {
    test.skipIf(skipUnless(Bun.which(shell) !== null, `the completion of ${shell} is not parsed: it is not installed`))(
      `goal: ${shell} parses its completion`,
      () => {
        // Goal: the shell parses it.
        const folder = mkdtempSync(join(tmpdir(), 'srt-completion-'))
        writeFileSync(join(folder, 'c'), text)
        const { exitCode, stderr } = Bun.spawnSync([shell, '-n', join(folder, 'c')])
        rmSync(folder, { recursive: true })
        expect([exitCode, stderr.toString()]).toEqual([0, ''])
      },
    )
  }
})

test('goal: there is a page for the program, for its configuration and for each topic', () => {
  const pages = manPages(tree, '1')
  const names = pages.map(({ name }) => name)
  expect(names).toContain('strongroom.1')
  expect(names).toContain('strongroom.toml.5')
  expect(names).toContain('strongroom-3am.7')
  const program = pages.find(({ name }) => name === 'strongroom.1')?.text ?? ''
  expect(program).toStartWith('.TH STRONGROOM 1 ')
  for (const { path } of tree.slice(1))
    expect(program).toContain(`${path.slice(1).join(' ').replaceAll('-', '\\-')} `.trimEnd())
})

const lintian = Bun.which('lintian')
test.skipIf(skipUnless(lintian !== null, 'the package is not checked by lintian: it is not installed'))(
  'goal: lintian finds no error in the package, in its default compression',
  async () => {
    // Goal: none but those that the package itself explains.
    const outDir = mkdtempSync(join(tmpdir(), 'srt-lintian-'))
    const named = { ...facts, version: '1.2.3-1', maintainer: 'Operations <ops@agents.dev>', epochS: 1_790_000_000 }
    const parts = appliancePackage({ ...named, executable: process.execPath })
    const file = await writeDeb({ ...parts, outDir, epochS: named.epochS, compression: 'zstd' })
    const found = Bun.spawnSync([lintian ?? '', '--allow-root', '--fail-on', 'error', file])
    rmSync(outDir, { recursive: true })
    expect([found.exitCode, found.stdout.toString().match(/^E: .*/gm)]).toEqual([0, null])
  },
  300_000,
)
