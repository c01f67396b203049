// The part of the demonstration that is about the gateway in its VM: it serves, a client asks it, verifies it, and
// verifies its answer. Effects: files below the demonstration's directory, processes in its namespace.

import { join } from 'node:path'
import type { AdminGatewayVms } from '../../src/contract/admin/gateway-vms.ts'
import { below, domain, executable, type Host } from './demo-host.ts'
import { pinGatewayVm } from './gateway-pins.ts'
import type { Steps } from './steps.ts'
import { seconds } from './terminal.ts'

const url = `https://inference.${domain}:8442`
const servesTimeoutMs = 3_000_000

/** The tiny model writes noise: the demonstration shows that a response comes, and from where. */
export const question = JSON.stringify({
  model: 'strongroom-tiny',
  messages: [{ role: 'user', content: 'hello' }],
  max_tokens: 8,
})

/** Waits for the VM that was started with the daemon. */
export async function gatewayServes({ step, note }: Pick<Steps, 'step' | 'note'>, host: Host, startedMs: number) {
  await step('strongroom inference show → serving', async () => {
    const deadlineMs = performance.now() + servesTimeoutMs
    for (;;) {
      const { gateways, problem } = await show(host)
      const gateway = gateways.find(({ state }) => state === 'serving')
      if (gateway !== undefined && gateway.problem === null) return `VM ${gateway.vm} at ${gateway.address}`
      if (performance.now() > deadlineMs) {
        const reason = gateway?.problem ?? problem ?? 'it is still starting'
        throw new Error(`no gateway VM serves after the limit of ${servesTimeoutMs / 1000} s: ${reason}`)
      }
      // Each look is a process of its own, which takes from the VM that boots.
      await Bun.sleep(500)
    }
  })
  note(`${seconds(performance.now() - startedMs).trim()} after the start of the daemon, at the latest`)
}

async function show({ strongroom }: Host): Promise<AdminGatewayVms> {
  return JSON.parse(await strongroom('inference', 'show', '--json'))
}

export async function gatewaySteps({ step }: Pick<Steps, 'step'>, host: Host): Promise<void> {
  const { strongroom, inside, ca, simulatedRoot } = host
  const { key } = await step('strongroom gateway key create acme', async () =>
    JSON.parse(await strongroom('gateway', 'key', 'create', 'acme', '--json')),
  )
  const exchange = await ask(host, key, step)
  const policy = await pins(host)
  const trust = [...policy, '--trust-simulated-root', simulatedRoot]
  await step('strongroom verify gateway', async () =>
    indented(await inside(executable, 'verify', 'gateway', url, '--ca', ca, ...trust)),
  )
  await step('strongroom verify response', async () => {
    const saved = await saveAttestation(host)
    return indented(await inside(executable, 'verify', 'response', ...exchange, ...saved, ...trust))
  })
  await step('strongroom inference show', async () => {
    const gateway = (await show(host)).gateways.find(({ state }) => state === 'serving')
    return `${gateway?.usage_booked} requests are recorded, ${gateway?.usage_waiting} wait`
  })
}

/** The client has the image's manifest, and the operator key from the operator. */
async function pins({ strongroom, configFile, directory }: Host): Promise<string[]> {
  const { digest } = JSON.parse(await strongroom('operator-key', '--json'))
  return pinGatewayVm({ configFile, directory, operatorKey: digest })
}

/** A chat whose answer has a receipt. Returns the options that name what was sent and received. */
async function ask({ inside, file, ca, directory }: Host, key: string, step: Steps['step']): Promise<string[]> {
  const request = file('question.json', question)
  const [response, headers] = [join(directory, 'answer.json'), join(directory, 'answer-headers.txt')]
  const wants = [`Authorization: Bearer ${key}`, 'Content-Type: application/json', 'X-Strongroom-Receipt: 1']
  await step('POST /v1/chat/completions', async () => {
    await inside(
      ...['curl', '--silent', '--show-error', '--fail', '--cacert', ca, ...wants.flatMap(want => ['--header', want])],
      ...['--data-binary', `@${request}`, '--dump-header', headers, '--output', response],
      `${url}/v1/chat/completions`,
    )
    const { usage, choices } = await Bun.file(response).json()
    const said = JSON.stringify(choices[0].message.content)
    return `${usage.prompt_tokens} + ${usage.completion_tokens} tokens, ${said}`
  })
  const receipt = /^x-strongroom-receipt: (\S+)/im.exec(await Bun.file(headers).text())?.[1]
  if (receipt === undefined) throw new Error('the answer has no receipt')
  return ['--receipt', file('receipt.txt', receipt), '--request', request, '--response', response]
}

/** Files for `verify response`, which needs no network then: the evidence, and the workload.json behind HOST_DATA. */
async function saveAttestation({ inside, ca, directory }: Host): Promise<string[]> {
  const nonce = Buffer.from(crypto.getRandomValues(new Uint8Array(32))).toString('base64url')
  const save = async (path: string, name: string) => {
    const output = join(directory, name)
    await inside('curl', '--silent', '--show-error', '--fail', '--cacert', ca, '--output', output, `${url}${path}`)
    return output
  }
  return [
    ...['--attestation', await save(`/attestation?nonce=${nonce}`, 'attestation.json'), '--nonce', nonce],
    ...['--workload', await save('/workload.json', 'workload.json')],
  ]
}

function indented(text: string): string {
  return text.trim().replaceAll('\n', below)
}
