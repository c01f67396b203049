// The egress cap as the owner of an instance meets it inside. Effects: ssh processes.

import { expect } from 'bun:test'
import type { Appliance } from '../../../scripts/rigs/appliance.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { loginOf } from './login.ts'

/** Not under test: an emulated guest of a busy machine is slow. */
const stepMs = 600_000

type Terminal = ReturnType<Appliance['sshSession']>

/** A terminal of the owner that stays open until `theSpentLimit`. */
export async function openTerminal(appliance: Appliance, hostname: string): Promise<Terminal> {
  const terminal = appliance.sshSession(hostname, 'echo there; read line', '-tt')
  await terminal.printed('there', stepMs)
  return terminal
}

/** The terminal shows a message, and a prompt ends at once with the reason. */
export async function theSpentLimit(appliance: Appliance, hostname: string, terminal: Terminal): Promise<void> {
  await terminal.printed("is spent by the host's count", stepMs)
  terminal.type('bye\n')
  expect(await terminal.exited).toBe(0)
  const prompt = "curl --silent --max-time 60 --data '{}' $OPENAI_BASE_URL/chat/completions"
  expect(JSON.parse(await loginOf(appliance, hostname).prints(prompt)).error).toMatchObject({
    code: 'egress_spent',
    message: expect.stringMatching(/^Your prompt was not sent: the egress limit of this instance, .* is spent/),
  })
}

/** The VM has the new limit. */
export async function theRaisedLimit(appliance: Appliance, hostname: string, limitBytes: number): Promise<void> {
  const { prints } = loginOf(appliance, hostname)
  const count = async () => JSON.parse(await prints('cat /run/strongroom/egress.json'))
  await until('the VM has the new limit', stepMs, async () => (await count()).limitBytes === limitBytes)
}
