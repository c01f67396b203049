// The key of an encrypted file, from its header and a private key of the caller's. Effects: reads key files, runs
// ssh-keygen for one with a passphrase. Fault invalid_request.

import {
  closeSync,
  existsSync,
  fsyncSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
  writeSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { onAbort } from '../../base/clock.ts'
import { messageOf } from '../../base/fault.ts'
import type { Run } from '../../terminal/command.ts'
import { AdvisedFault, InputFault } from '../../terminal/exit.ts'
import { KIB, readTextInput } from '../../terminal/input-file.ts'
import { stopSignal } from '../../terminal/stop-signal.ts'
import { readSshKey } from '../../verifier/ssh-key.ts'
import type { OwnKeys } from '../verify/keys/own-keys.ts'
import { type ReadKey, readSshPrivateKey, type SshPrivateKey, sshIdentity, sshTag } from './age-ssh.ts'

export type KeyFiles = {
  /** File of --identity: an SSH private key, or identities of age. Undefined for the caller's own SSH keys. */
  readonly identity: string | undefined
  /** Private keys to try otherwise, the likeliest first. */
  readonly files: readonly string[]
  readonly ownKeys: OwnKeys
}

const keyBytesMax = 64 * KIB

/** Returns the file key. */
export async function openHeader(run: Run, header: Uint8Array, keys: KeyFiles): Promise<Uint8Array> {
  const { Decrypter } = await import('age-encryption')
  const decrypter = new Decrypter()
  const tags = tagsIn(header)
  const named = keys.identity === undefined ? null : readKeyText(keys.identity)
  const ageLines = (named ?? '').split('\n').filter(line => line.startsWith('AGE-SECRET-KEY-'))
  try {
    for (const line of ageLines) decrypter.addIdentity(line.trim())
  } catch (error) {
    throw new InputFault(`${keys.identity}: ${messageOf(error)}`, {
      param: 'identity',
      remedy: 'name a file of age-keygen, or an SSH private key',
    })
  }
  if (ageLines.length === 0) {
    const files = keys.identity === undefined ? keys.files.filter(existsSync) : [keys.identity]
    for (const file of files) {
      const key = await matchingKey(run, file, tags)
      if (key !== null) decrypter.addIdentity(sshIdentity(key))
    }
  }
  try {
    return await decrypter.decryptHeader(header)
  } catch {
    throw noKey(keys, tags)
  }
}

/** The keys that a header is for, as `sshTag` names them. */
function tagsIn(header: Uint8Array): ReadonlySet<string> {
  const text = Buffer.from(header).toString('latin1')
  return new Set([...text.matchAll(/^-> ssh-(?:ed25519|rsa) ([A-Za-z0-9+/]{6})(?: |$)/gm)].map(([, tag = '']) => tag))
}

/** Null if the header is not for the key of the file. A passphrase is needed only if it is. */
async function matchingKey(run: Run, file: string, tags: ReadonlySet<string>): Promise<SshPrivateKey | null> {
  const read = readSshPrivateKey(readKeyText(file))
  if (read.kind === 'key') return tags.has(sshTag(read.key.blob)) ? read.key : null
  const blob = read.kind === 'encrypted' ? read.blob : publicBlob(`${file}.pub`)
  if (read.kind === 'unsupported' || blob === null || !tags.has(sshTag(blob))) return null
  const plain = await withoutPassphrase(run, file)
  return plain.kind === 'key' ? plain.key : null
}

function publicBlob(path: string): Uint8Array | null {
  try {
    return readSshKey(readFileSync(path, 'utf8')).blob
  } catch {
    return null
  }
}

/**
 * Has ssh-keygen ask for the passphrase of a copy in a directory of the user's own. The copy is overwritten and removed
 * afterwards, also after Ctrl-C or a closed terminal.
 */
async function withoutPassphrase({ io }: Run, file: string): Promise<ReadKey> {
  if (io.ask === undefined) {
    throw new InputFault(`${file} has a passphrase, and there is no terminal to ask for it`, {
      param: 'identity',
      remedy: 'run the command in a terminal, or name a key without a passphrase by --identity',
    })
  }
  using stopping = stopSignal(io)
  const directory = mkdtempSync(join(memoryDirectory(io.env.XDG_RUNTIME_DIR), 'strongroom-key-'))
  const copy = join(directory, 'key')
  try {
    // ssh-keygen has to write it, whatever the mode of the key.
    writeFileSync(copy, readFileSync(file), { mode: 0o600 })
    await io.stderr(`${file}: its passphrase opens the snapshot\n`)
    const argv = ['ssh-keygen', '-q', '-p', '-N', '', '-f', copy]
    const child = Bun.spawn(argv, { stdin: 'inherit', stdout: 'ignore', stderr: 'inherit', env: io.env })
    const cancel = onAbort(stopping.signal, () => child.kill())
    const code = await child.exited
    cancel()
    if (stopping.signal.aborted) throw new AdvisedFault('conflict', 'stopped', { remedy: 'run the command again' })
    if (code !== 0) throw wrongPassphrase(file)
    return readSshPrivateKey(readFileSync(copy, 'utf8'))
  } finally {
    overwrite(copy)
    rmSync(directory, { recursive: true, force: true })
  }
}

/** Returns a directory in memory, because a decrypted key must not reach a disk; otherwise that of temporary files. */
function memoryDirectory(runtime: string | undefined): string {
  return [runtime, '/dev/shm'].find(path => path !== undefined && path !== '' && existsSync(path)) ?? tmpdir()
}

/** Overwrites the bytes of a file in place. The removal of the file does not depend on it. */
function overwrite(path: string): void {
  try {
    const bytes = statSync(path).size
    const file = openSync(path, 'r+')
    try {
      writeSync(file, Buffer.alloc(bytes), 0, bytes, 0)
      fsyncSync(file)
    } finally {
      closeSync(file)
    }
  } catch {
    // There is no copy, or its disk fails.
  }
}

function wrongPassphrase(file: string): InputFault {
  return new InputFault(`${file} was not opened`, {
    param: 'identity',
    remedy: 'give its passphrase, or another key by --identity',
  })
}

function readKeyText(path: string): string {
  return readTextInput({ path, param: 'identity', bytesMax: keyBytesMax })
}

function noKey({ identity, ownKeys }: KeyFiles, tags: ReadonlySet<string>): InputFault {
  const known = ownKeys.lines.find(line => tags.has(sshTag(readSshKey(line).blob)))
  const source = known === undefined ? undefined : ownKeys.sources.get(known)
  if (identity === undefined && known !== undefined) {
    return new InputFault(
      `the snapshot is for the SSH key ${readSshKey(known).fingerprint}, whose private key was not found`,
      {
        param: 'identity',
        remedy:
          source === 'ssh-agent'
            ? 'ssh-agent signs and cannot decrypt: name the file of that private key by --identity'
            : 'name its file by --identity',
      },
    )
  }
  return new InputFault(
    `${identity ?? 'no private key below ~/.ssh'} opens the snapshot${identity === undefined ? '' : ' not'}`,
    {
      param: 'identity',
      remedy:
        'name the file of the private key that the instance was created with, or of a recipient of the snapshot, by --identity',
    },
  )
}
