// An ssh-agent with keys, to forward into an instance or to log in with. Effects: a process, a socket below the given
// directory.

import { join } from 'node:path'
import { until } from '../../../scripts/rigs/until.ts'

export type SshAgent = Disposable & {
  /** Options of ssh that offer the agent's key inside. */
  readonly options: readonly string[]
}

export async function startSshAgent(directory: string, ...keyFiles: readonly string[]): Promise<SshAgent> {
  const socket = join(directory, 'agent.sock')
  const agent = Bun.spawn(['ssh-agent', '-D', '-a', socket], { stdout: 'ignore' })
  try {
    const add = () => Bun.spawnSync(['ssh-add', '-q', ...keyFiles], { env: { ...process.env, SSH_AUTH_SOCK: socket } })
    await until('ssh-agent has the keys', 60_000, () => add().exitCode === 0)
  } catch (error) {
    agent.kill()
    throw error
  }
  return {
    options: ['-o', `IdentityAgent=${socket}`, '-o', 'ForwardAgent=yes'],
    [Symbol.dispose]: () => agent.kill(),
  }
}
