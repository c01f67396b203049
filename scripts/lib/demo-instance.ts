// The part of the demonstration that is about an agent instance: it is created, verified, used and deleted.
// Effects: files below the demonstration's directory, processes in its namespace.

import { join } from 'node:path'
import { question } from './demo-gateway.ts'
import { below, domain, executable, firstLine, type Host, run } from './demo-host.ts'
import type { Steps } from './steps.ts'
import { seconds } from './terminal.ts'

const readyTimeoutMs = 3_000_000

type InstanceRecord = {
  readonly name: string
  readonly status: string
  readonly hostname: string
  readonly failure_code: string | null
}

/** Service A as its client uses it: `data` of the answer. */
export type Api = (method: string, path: string, ...rest: string[]) => Promise<unknown>

export type Instance = {
  readonly name: string
  readonly hostname: string
  readonly ssh: (command: string) => Promise<string>
}

export function apiOf({ inside, ca }: Host, key: string): Api {
  const head = ['curl', '--silent', '--show-error', '--cacert', ca, '--header', `Authorization: Bearer ${key}`]
  return async (method, path, ...rest) => {
    const address = `https://instances.${domain}:8441${path}`
    return JSON.parse(await inside(...head, '--request', method, ...rest, address)).data
  }
}

/** `image` and `gateway`: the images that the operator publishes. */
type Customer = { readonly api: Api; readonly key: string; readonly image: string; readonly gateway: string }

/** From the POST to the first command over SSH; only a good verdict lets the client know the host key. */
export async function instanceSteps(
  { step, note }: Pick<Steps, 'step' | 'note'>,
  host: Host,
  { api, key, image, gateway }: Customer,
): Promise<Instance> {
  const client = join(host.directory, 'client')
  await run(['ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-C', 'demo', '-f', client])
  const startedMs = performance.now()
  const created = await step('POST /v1/instances', async () => create(api, await Bun.file(`${client}.pub`).text()))
  const { name, hostname } = created
  note(`${name}, to be reached at ${hostname}`)
  await step('provisioning → ready', () => reached(api, name, 'ready'))
  const knownHosts = join(host.directory, 'known_hosts')
  await step('strongroom verify instance', () =>
    verifyInstance(host, { hostname, key, image, gateway, knownHosts, client }),
  )
  // The verdict has written the host key; no other is taken.
  const options = ['BatchMode=yes', 'StrictHostKeyChecking=yes', `UserKnownHostsFile=${knownHosts}`]
  const login = ['ssh', '-i', client, ...options.flatMap(option => ['-o', option]), `agent@${hostname}`]
  const ssh = (command: string) => host.inside(...login, command)
  await step(`ssh agent@${hostname} uname -r`, () => ssh('uname -r').then(firstLine))
  note(`${seconds(performance.now() - startedMs).trim()} from the POST to the first output over SSH`)
  return { name, hostname, ssh }
}

const insideQuestion = `curl --silent --fail \
  --header "Authorization: Bearer $(cat ~/.config/opencode/inference.key)" --header 'Content-Type: application/json' \
  --data '${question}' "$OPENAI_BASE_URL/chat/completions" >/dev/null`

export async function askFromInside({ step }: Pick<Steps, 'step'>, { ssh }: Instance): Promise<void> {
  await step('inside it, curl the inference gateway with the key of the instance', () => ssh(insideQuestion))
}

/** Its first start takes long under software emulation: it begins now, and `ended` waits for it. */
export function startAgent({ step, note }: Pick<Steps, 'step' | 'note'>, { hostname, ssh }: Instance) {
  const startedMs = performance.now()
  const version = ssh('opencode --version').then(said => ({ said, tookMs: performance.now() - startedMs }))
  // Told by the step below.
  version.catch(() => {})
  return {
    ended: async () => {
      await step(`ssh agent@${hostname} opencode --version`, async () => firstLine((await version).said))
      note(`${seconds((await version).tookMs).trim()} in all, beside the steps above`)
    },
  }
}

export async function endInstance({ step }: Pick<Steps, 'step'>, api: Api, { name }: Instance): Promise<void> {
  await step(`DELETE /v1/instances/${name}`, async () => {
    const { status } = (await api('DELETE', `/v1/instances/${name}`)) as InstanceRecord
    return status
  })
  await step('terminating → terminated', () => reached(api, name, 'terminated'))
}

async function create(api: Api, publicKey: string): Promise<InstanceRecord> {
  const headers = ['--header', 'Content-Type: application/json', '--header', 'Idempotency-Key: demo']
  const body = JSON.stringify({ public_key: publicKey.trim() })
  return (await api('POST', '/v1/instances', ...headers, '--data', body)) as InstanceRecord
}

async function reached(api: Api, name: string, status: string): Promise<string> {
  const deadlineMs = performance.now() + readyTimeoutMs
  while (performance.now() < deadlineMs) {
    const record = (await api('GET', `/v1/instances/${name}`)) as InstanceRecord
    if (record.status === status) return ''
    if (record.status === 'failed') throw new Error(`the instance failed: ${record.failure_code}`)
    await Bun.sleep(200)
  }
  throw new Error(`instance ${name} is not ${status} after its limit of ${readyTimeoutMs / 1000} s`)
}

type Verified = Omit<Customer, 'api'> & {
  readonly hostname: string
  readonly knownHosts: string
  /** Private key file of the client. */
  readonly client: string
}

/** With what the operator publishes: the manifests of both images, and the operator key. */
async function verifyInstance(host: Host, verified: Verified): Promise<string> {
  const { hostname, key, image, gateway, knownHosts, client } = verified
  const { inside, strongroom, file, ca, simulatedRoot } = host
  const operatorKey = file('operator-key.pub.pem', await strongroom('operator-key'))
  const policyOf = (text: string) =>
    strongroom('verify', 'policy-example', '--image', text, '--operator-key', operatorKey)
  const summary = await inside(
    ...[executable, 'verify', 'instance', hostname, '--key-file', file('key.txt', key), '--ca', ca],
    ...['--known-hosts', knownHosts, '--policy', file('instance-policy.json', await policyOf(image)), '--image', image],
    ...['--gateway-policy', file('gateway-policy.json', await policyOf(gateway))],
    ...['--public-key', `${client}.pub`, '--trust-simulated-root', simulatedRoot],
  )
  return summary.trim().replaceAll('\n', below)
}
