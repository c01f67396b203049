// Goal: a key with a passphrase opens a snapshot whatever its mode, and its copy never stays: not after a wrong
// passphrase, and not after Ctrl-C. The real ssh-keygen, which gets the passphrase as an argument.

import { afterEach, beforeEach, describe, expect, test } from 'bun:test'
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { ageHeaderIn } from '../../../src/client/snapshots/age-header.ts'
import { openHeader } from '../../../src/client/snapshots/open-header.ts'
import type { Run } from '../../../src/terminal/command.ts'

const keygen = Bun.which('ssh-keygen')
const lacking = skipUnless(keygen !== null && Bun.which('age') !== null, 'needs ssh-keygen and age')
let dir = ''
const at = (name: string) => join(dir, name)
const listeners = new Map<string, () => void>()
let header: Uint8Array = new Uint8Array()

/** A program in the place of ssh-keygen; its last argument is the copy. */
function program(text: string): void {
  mkdirSync(at('bin'), { recursive: true })
  writeFileSync(at('bin/ssh-keygen'), `#!/bin/bash\n${text}\n`, { mode: 0o755 })
}

const run = () =>
  ({
    io: {
      stderr: async () => {},
      ask: async () => null,
      env: { PATH: `${at('bin')}:${process.env.PATH}`, XDG_RUNTIME_DIR: at('runtime') },
      onSignal: (signal: string, listener: () => void) => {
        listeners.set(signal, listener)
        return () => listeners.delete(signal)
      },
    },
  }) as unknown as Run
const keys = () => ({ identity: at('key'), files: [], ownKeys: { lines: [], sources: new Map() } }) as never
const open = async () => {
  try {
    return Buffer.from(await openHeader(run(), header, keys())).length
  } catch (error) {
    return String(error)
  }
}

beforeEach(() => {
  if (lacking) return
  dir = mkdtempSync(join(tmpdir(), 'srt-header-'))
  mkdirSync(at('runtime'))
  Bun.spawnSync([keygen ?? '', '-q', '-t', 'ed25519', '-N', 'secret12', '-C', '', '-f', at('key')])
  const sealed = Bun.spawnSync(['age', '--encrypt', '--recipients-file', at('key.pub')], {
    stdin: Buffer.from('files'),
  })
  header = ageHeaderIn(sealed.stdout) ?? new Uint8Array()
  chmodSync(at('key'), 0o400)
})
afterEach(() => {
  expect([readdirSync(at('runtime')), listeners.size]).toEqual([[], 0])
  rmSync(dir, { recursive: true })
})

describe.skipIf(lacking)('a key with a passphrase', () => {
  test('goal: of mode 0400 opens it, by a copy that only the user can read and ssh-keygen can write', async () => {
    program(`stat --format=%a "\${@: -1}" >${at('mode')}; exec ${keygen} -P secret12 "$@"`)
    expect([await open(), readFileSync(at('mode'), 'utf8').trim()]).toEqual([16, '600'])
  })

  test('goal: a wrong passphrase is named, and leaves no copy, also of a mode that nobody may write', async () => {
    program(`chmod 000 "\${@: -1}"; exec ${keygen} -P wrong "$@" 2>/dev/null`)
    expect(await open()).toContain('was not opened')
  })

  test('goal: a signal while the decrypted copy exists ends ssh-keygen, and overwrites and removes the copy', async () => {
    // A second link shows what became of the bytes.
    program(
      `copy="\${@: -1}"; ln "$copy" ${at('link')}; ${keygen} -P secret12 "$@"; touch ${at('ready')}; exec sleep 60`,
    )
    const opening = open()
    while (!existsSync(at('ready'))) await Bun.sleep(10)
    expect(readFileSync(at('link'), 'utf8')).toContain('OPENSSH PRIVATE KEY')
    listeners.get('SIGHUP')?.()
    expect(await opening).toContain('stopped')
    expect(readFileSync(at('link')).every(byte => byte === 0)).toBeTrue()
  })
})
