// An ssh-agent with one key, to forward into an instance. Effects: a process, a socket below the given directory.

import { join } from 'node:path'
import { until } from '../../../scripts/rigs/until.ts'

export type SshAgent = Disposable & {
  /** Options of ssh that offer the agent's key inside. */
  readonly options: readonly string[]
}

export async function startSshAgent(directory: string, keyFile: string): Promise<SshAgent> {
  const socket = join(directory, 'agent.sock')
  const agent = Bun.spawn(['ssh-agent', '-D', '-a', socket], { stdout: 'ignore' })
  try {
    const add = () => Bun.spawnSync(['ssh-add', '-q', keyFile], { env: { ...process.env, SSH_AUTH_SOCK: socket } })
    await until('ssh-agent has the key', 60_000, () => add().exitCode === 0)
  } catch (error) {
    agent.kill()
    throw error
  }
  return {
    options: ['-o', `IdentityAgent=${socket}`, '-o', 'ForwardAgent=yes'],
    [Symbol.dispose]: () => agent.kill(),
  }
}
