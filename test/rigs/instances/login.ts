// Commands that the owner of an instance runs in it. Effects: ssh processes.

import type { Appliance } from '../../../scripts/rigs/appliance.ts'
import { until } from '../../../scripts/rigs/until.ts'

/** The first start of the agent takes minutes on an emulated processor, and more on a busy machine. */
const lateMs = 1_200_000

/** A login of the instance's owner. */
export type Login = {
  /** Output of a command that must succeed, without blanks around it. */
  readonly prints: (command: string, ...options: string[]) => Promise<string>
  readonly fails: (command: string, ...options: string[]) => Promise<string>
  /** Begins a command that takes longer than a connection may. The function that it gives waits for its output. */
  readonly begins: (command: string) => Promise<() => Promise<string>>
}

/** `own`: further options of ssh for each command. */
export function loginOf(appliance: Appliance, hostname: string, ...own: string[]): Login {
  const run = async (command: string, options: readonly string[]) => {
    const { exitCode, stdout, stderr } = await appliance.sshWith([...options, ...own], hostname, [command])
    return { isGood: exitCode === 0, said: `${command}: ${exitCode}\n${stdout}${stderr}`, output: stdout.trim() }
  }
  const prints: Login['prints'] = async (command, ...options) => {
    const { isGood, said, output } = await run(command, options)
    if (!isGood) throw new Error(said)
    return output
  }
  return {
    prints,
    fails: async (command, ...options) => {
      const { isGood, said } = await run(command, options)
      if (isGood) throw new Error(`must fail, but did not: ${said}`)
      return said
    },
    begins: async command => {
      const file = `late-${crypto.randomUUID().slice(0, 8)}`
      await prints(`setsid sh -c '(${command}) >${file}.new 2>&1; mv ${file}.new ${file}' </dev/null >/dev/null 2>&1 &`)
      // It waits inside: a login costs the emulated processor as much as seconds of the command.
      const wait = `timeout 60 sh -c "until test -e ${file}; do sleep 1; done"; test -e ${file} && echo there || true`
      return async () => {
        await until(command, lateMs, async () => (await prints(wait)) === 'there')
        return prints(`cat ${file}`)
      }
    },
  }
}
