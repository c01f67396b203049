// Signs an order with the owner's SSH key, by ssh-keygen: with a file, or with ssh-agent. Effects: a process, temporary
// files.

import { createHash } from 'node:crypto'
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { orderNamespace, signedText } from '../../contract/vm/orders/order.ts'
import type { Run } from '../../terminal/command.ts'
import { AdvisedFault } from '../../terminal/exit.ts'
import { start } from '../instances/openssh.ts'
import type { VerifiedInstance } from '../instances/verified.ts'

/** Returns the armored signature. It may ask for a passphrase or a touch. Fault host.command_failed. */
export async function signOrder(run: Run, order: Uint8Array, instance: VerifiedInstance): Promise<string> {
  const directory = mkdtempSync(join(tmpdir(), 'strongroom-order-'))
  try {
    const file = join(directory, 'order')
    writeFileSync(file, signedText(createHash('sha256').update(order).digest('hex')), { mode: 0o600 })
    const key = keyFile(instance, directory)
    const argv = ['ssh-keygen', '-q', '-Y', 'sign', '-f', key, '-n', orderNamespace, file]
    // From the file: with a standard input it could ask for no passphrase.
    const child = start(argv, run.io.env, { stdin: 'inherit', stdout: 'pipe' })
    const remove = run.io.onSignal('SIGINT', () => {})
    const code = await child.exited.finally(remove)
    if (code === 0) return readFileSync(`${file}.sig`, 'utf8')
    throw new AdvisedFault('host.command_failed', `ssh-keygen: the order was not signed with ${key}`, {
      remedy: 'add the key to ssh-agent, or name its file by --public-key; needs OpenSSH 8.5',
    })
  } finally {
    rmSync(directory, { recursive: true, force: true })
  }
}

/** The private key beside the public one if it is there; otherwise the public one, for ssh-agent. */
function keyFile({ judged: { ownKey }, identity }: VerifiedInstance, directory: string): string {
  if (identity !== null) return identity
  if (ownKey === null) {
    throw new AdvisedFault('invalid_request', 'no SSH key of yours is known that the instance lets in', {
      remedy: 'name it by --public-key',
    })
  }
  const file = ownKey.source.replace(/\.pub$/, '')
  if (file !== ownKey.source && existsSync(file)) return file
  const ofAgent = join(directory, 'key.pub')
  writeFileSync(ofAgent, `${ownKey.line}\n`, { mode: 0o600 })
  return ofAgent
}
