// The keys of this boot. Effects: reads (or creates) the SSH host key below /run. The X25519 key exists only in the
// memory of this process: a restarted agent has a new one.

import * as fs from 'node:fs'
import type { Clock } from '../base/clock.ts'
import { Fault, systemErrorCode } from '../base/fault.ts'
import { run } from '../linux/command.ts'
import { readTextOrNull } from '../linux/files.ts'
import { bootIdIn } from './boot-id.ts'
import { type BoxKey, createBoxKey } from './keys/box-key.ts'
import { sshPublicKeyOf } from './keys/ssh-host-key.codec.ts'
import type { GuestPaths } from './paths.ts'

export type Identity = BoxKey & {
  readonly bootId: string
  /** `ssh-ed25519 AAAA…`. */
  readonly sshHostKey: string
}

type IdentityDeps = {
  readonly paths: Pick<GuestPaths, 'sshHostKey' | 'bootId'>
  readonly clock: Clock
  /** Wait for init's SSH host key before the agent makes it. */
  readonly hostKeyWaitMs: number
}

/**
 * Creates the guest's identity. Faults: internal (no boot id, unreadable key), host.command_failed,
 * host.command_timeout (ssh-keygen).
 */
export async function createIdentity({ paths, clock, hostKeyWaitMs }: IdentityDeps): Promise<Identity> {
  const box = createBoxKey()
  return { bootId: bootIdIn(paths), ...box, sshHostKey: await hostKey({ paths, clock, hostKeyWaitMs }) }
}

const pollMs = 20
const keygenBounds = { timeoutMs: 30_000, outputBytesMax: 65_536 } as const

async function hostKey({ paths, clock, hostKeyWaitMs }: IdentityDeps): Promise<string> {
  const untilMs = clock.monotonicMs() + hostKeyWaitMs
  while (readTextOrNull(paths.sshHostKey) === null && clock.monotonicMs() < untilMs) await clock.sleep(pollMs)
  if (readTextOrNull(paths.sshHostKey) === null) await makeHostKey(paths.sshHostKey)
  const publicKey = sshPublicKeyOf(readTextOrNull(paths.sshHostKey) ?? '')
  if (publicKey === null) throw new Fault('internal', `read ${paths.sshHostKey}: not an ed25519 private key`)
  return publicKey
}

async function makeHostKey(path: string): Promise<void> {
  const beside = `${path}.agent`
  for (const leftover of [beside, `${beside}.pub`]) fs.rmSync(leftover, { force: true })
  const argv = ['ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-C', '', '-f', beside]
  await run(argv, keygenBounds)
  fs.chmodSync(beside, 0o600)
  fs.rmSync(`${beside}.pub`)
  try {
    // link(2) does not replace: a late init's key stays the only one.
    fs.linkSync(beside, path)
  } catch (error) {
    if (systemErrorCode(error) !== 'EEXIST') throw error
  } finally {
    fs.rmSync(beside)
  }
}
