// Goal: the Bun that builds and runs this project is the one whose digests are in the lock, and no package's script
// runs on the way.

import { afterEach, beforeEach, expect, test } from 'bun:test'
import { createHash } from 'node:crypto'
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { root } from '../meta/tree.ts'

let dir: string
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'strongroom-bun-lock-'))
})
afterEach(() => rmSync(dir, { recursive: true, force: true }))

const digest = (algorithm: string, bytes: Uint8Array, encoding: 'hex' | 'base64') =>
  createHash(algorithm).update(bytes).digest(encoding)

test('goal: the Bun that runs is the locked one, byte for byte', () => {
  const lock = JSON.parse(readFileSync(join(root, 'scripts/lib/bun.lock.json'), 'utf8'))
  expect(Object.keys(lock)).toEqual([
    ...['schemaVersion', 'version', 'package', 'integrity', 'executable', 'executableSha256'],
  ])
  expect(lock.version).toBe(Bun.version)
  expect(digest('sha256', readFileSync(process.execPath), 'hex')).toBe(lock.executableSha256)
})

/** A package and its lock; `npm` is a program of ours that hands the package over. */
function prepare(executable: string): { readonly tarball: string; readonly lock: Record<string, string> } {
  mkdirSync(join(dir, 'package/bin'), { recursive: true })
  mkdirSync(join(dir, 'bin'))
  writeFileSync(join(dir, 'package/bin/bun'), executable)
  const tarball = join(dir, 'served.tgz')
  Bun.spawnSync(['tar', '--create', '--gzip', '--file', tarball, 'package'], { cwd: dir })
  writeFileSync(join(dir, 'bin/npm'), `#!/bin/sh\necho "$@" > ${dir}/npm-arguments\ncp ${tarball} oven-bun-1.2.3.tgz\n`)
  chmodSync(join(dir, 'bin/npm'), 0o755)
  const lock = {
    version: '1.2.3',
    package: '@oven/bun-linux-x64',
    integrity: `sha512-${digest('sha512', readFileSync(tarball), 'base64')}`,
    executable: 'package/bin/bun',
    executableSha256: digest('sha256', Buffer.from(executable), 'hex'),
  }
  return { tarball, lock }
}

const installed = () => join(dir, 'tool/node_modules/.bin/bun')

function install(lock: Record<string, string>): { ok: boolean; text: string } {
  writeFileSync(join(dir, 'lock.json'), JSON.stringify(lock, null, 2))
  const script = 'set -eo pipefail; source "$0"; install_bun'
  const { exitCode, stdout, stderr } = Bun.spawnSync(['bash', '-c', script, join(root, 'scripts/lib/bun.sh')], {
    env: {
      PATH: `${join(dir, 'bin')}:${process.env.PATH}`,
      STRONGROOM_BUN_LOCK: join(dir, 'lock.json'),
      STRONGROOM_BUN_DIR: join(dir, 'tool'),
      STRONGROOM_BUN_VERSION: '1.2.3',
    },
  })
  return { ok: exitCode === 0, text: `${stdout}${stderr}` }
}

test('goal: the executable is taken out of the locked package, without a script', () => {
  const { lock } = prepare('the right bun')
  expect(install(lock)).toEqual({ ok: true, text: '' })
  expect(readFileSync(installed(), 'utf8')).toBe('the right bun')
  expect(readFileSync(join(dir, 'npm-arguments'), 'utf8')).toBe(
    'pack --silent --ignore-scripts @oven/bun-linux-x64@1.2.3\n',
  )
})

test('goal: a package that is not the locked one is refused, and nothing of it is left to run', () => {
  const { tarball, lock } = prepare('the right bun')
  writeFileSync(join(dir, 'package/bin/bun'), 'another bun')
  Bun.spawnSync(['tar', '--create', '--gzip', '--file', tarball, 'package'], { cwd: dir })
  const { ok, text } = install(lock)
  expect(ok).toBe(false)
  expect(text).toContain(`the lock says ${lock.integrity}`)
  expect(existsSync(installed())).toBe(false)
})

test('goal: the executable itself must be the one of the lock, and a lock without digest stops', () => {
  const { lock } = prepare('the right bun')
  expect(install({ ...lock, executableSha256: '0'.repeat(64) }).text).toContain('is not the executable of the lock')
  const { integrity: _, ...without } = lock
  expect(install(without).text).toContain('no integrity')
  expect(existsSync(installed())).toBe(false)
})

test('goal: an installed Bun that was changed afterwards is not taken for the right one', () => {
  const { lock } = prepare('the right bun')
  install(lock)
  const isRight = () =>
    Bun.spawnSync(
      ['bash', '-c', 'source "$0"; bun_is_right "$1"', join(root, 'scripts/lib/bun.sh'), join(dir, 'tool')],
      {
        env: { PATH: process.env.PATH ?? '', STRONGROOM_BUN_LOCK: join(dir, 'lock.json') },
      },
    ).exitCode === 0
  expect(isRight()).toBe(true)
  writeFileSync(installed(), 'the right bun!')
  expect(isRight()).toBe(false)
})

test('goal: wherever packages are installed their scripts are off', () => {
  const { stdout } = Bun.spawnSync(
    ['grep', '--recursive', '--extended-regexp', '(npm|bun"?) (install|pack|ci|add)\\b', 'scripts', '.ci'],
    { cwd: root },
  )
  const lines = stdout.toString().trim().split('\n')
  expect(lines.length).toBe(2)
  for (const line of lines) expect(line).toContain('--ignore-scripts')
  const agent = readFileSync(join(root, 'scripts/image/agent-lock.ts'), 'utf8')
  expect(agent).toMatch(/'npm',\n\s*'pack',\n\s*'--silent',\n\s*'--ignore-scripts',/)
  expect(JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')).trustedDependencies).toEqual([])
})
