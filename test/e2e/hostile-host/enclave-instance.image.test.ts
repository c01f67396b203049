// An instance and the gateway's VM on one host: how the instance uses the gateway and verifies it from inside.

import { expect, test } from 'bun:test'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { pinGatewayVm } from '../../../scripts/lib/gateway-pins.ts'
import { type Appliance, createAppliance, imageDir } from '../../../scripts/rigs/appliance.ts'
import { buildCachedImage } from '../../../scripts/rigs/build/image-build.ts'
import {
  createModelFile,
  gatewayTables,
  workerModel as model,
  PRICE,
} from '../../../scripts/rigs/gateway/appliance-gateway.ts'
import { servingGateway } from '../../../scripts/rigs/gateway/serving-gateway.ts'
import { createCustomer } from '../../../scripts/rigs/instances/instances-client.ts'
import { inOwnNetns } from '../../../scripts/rigs/netns.ts'
import { until } from '../../../scripts/rigs/until.ts'
import type { ImageManifest } from '../../../src/contract/vm/image.ts'

const testMs = 600_000
const readyMs = 240_000
const question = JSON.stringify({
  model,
  messages: [{ role: 'user', content: 'hello' }],
  max_tokens: 4,
  temperature: 0,
})
const ask = `curl --silent --show-error --fail --retry 30 --retry-connrefused --max-time 120 --header "Authorization: Bearer $OPENAI_API_KEY" \
  --header 'Content-Type: application/json' --data '${question}' "$OPENAI_BASE_URL/chat/completions"`

type Usage = { readonly prompt_tokens: number; readonly completion_tokens: number }

/** The owner's policy: both images and the operator's key; `operatorKey` is hexadecimal. */
async function policyOf(appliance: Appliance, operatorKey: string): Promise<string> {
  const configFile = join(appliance.directory, 'strongroom.toml')
  const [, path = ''] = await pinGatewayVm({ configFile, directory: appliance.directory, operatorKey })
  const { launchDigests }: ImageManifest = JSON.parse(readFileSync(join(await imageDir(), 'manifest.json'), 'utf8'))
  const policy = JSON.parse(readFileSync(path, 'utf8')) as { measurements: string[] }
  return JSON.stringify({
    ...policy,
    measurements: [...policy.measurements, launchDigests['qemu-kvm/bios/EPYC-v4/2']],
  })
}

/** The owner names both images and the operator's key; another gateway image is another place for prompts. */
async function verifiedFromOutside(
  appliance: Appliance,
  { hostname, key }: { readonly hostname: string; readonly key: string },
): Promise<void> {
  const { directory, stateDir } = appliance
  const file = (path: string, text: string) => {
    writeFileSync(join(directory, path), text)
    return join(directory, path)
  }
  const operatorKey = file('operator-key.pub.pem', (await appliance.cli('operator-key')).stdout)
  const policyOf = async (image: string) =>
    (await appliance.cli('verify', 'policy-example', '--image', image, '--operator-key', operatorKey)).stdout
  const instance = await policyOf(await imageDir())
  const verify = async (gateway: string) => {
    const { exitCode, stdout } = await appliance.cli(
      ...['verify', 'instance', hostname, '--no-known-hosts', '--api', appliance.url, '--json'],
      ...['--ca', join(stateDir, 'ca/ca.pem'), '--key-file', file('key.txt', key)],
      ...['--trust-simulated-root', join(stateDir, 'simulator/root.pem'), '--public-key', appliance.publicKey],
      ...['--policy', file('instance.json', instance), '--gateway-policy', file('gateway.json', gateway)],
    )
    const { checks } = JSON.parse(stdout) as { checks: { name: string; reason: string }[] }
    return { exitCode, prompts: checks.find(check => check.name === 'prompts')?.reason }
  }
  const good = await verify(await policyOf(await buildCachedImage('inference')))
  expect([good.exitCode, good.prompts]).toEqual([0, expect.stringContaining(': inside the measured VM ')])
  const wrong = await verify(instance)
  expect([wrong.exitCode, wrong.prompts]).toEqual([6, expect.stringContaining('none of those that you expect')])
}

inOwnNetns(
  import.meta.path,
  () => {
    test(
      'goal: an instance is served by the VM with the key of its claim, its usage is booked, and its owner verifies the gateway from inside',
      async () => {
        using file = createModelFile()
        await using appliance = await createAppliance('', 'vm', undefined, await gatewayTables(file.path, 'vm'))
        await appliance.start()
        const acme = await createCustomer(appliance, 'acme')
        const { name, hostname } = (await acme.create()).body.data
        await acme.reached(name, 'ready', readyMs)
        await verifiedFromOutside(appliance, { hostname, key: acme.key })
        await servingGateway(appliance)
        const prints = async (command: string) => {
          const { exitCode, stdout, stderr } = await appliance.ssh(hostname, [command])
          if (exitCode !== 0) throw new Error(`${command}: ${exitCode}: ${stdout}${stderr}`)
          return stdout
        }
        const { usage } = JSON.parse(await prints(ask)) as { usage: Usage }
        const micros = usage.prompt_tokens * PRICE.prompt + usage.completion_tokens * PRICE.completion
        await until('it is booked for its organization', 60_000, async () => {
          const { inference_cost_usd: cost } = (await acme.usage()).usage
          return Math.round(Number(cost) * 1_000_000) === micros
        })

        const write = (path: string, text: string) =>
          prints(`echo ${Buffer.from(text).toString('base64')} | base64 --decode >${path}`)
        await write('root.pem', readFileSync(join(appliance.stateDir, 'simulator/root.pem'), 'utf8'))
        const { digest } = await appliance.admin<{ digest: string }>('operator-key')
        const gatewayLine = async (operatorKey: string) => {
          await write('policy.json', await policyOf(appliance, operatorKey))
          const verify = 'strongroom-verify --trust-simulated-root root.pem --policy policy.json'
          const { stdout } = await appliance.ssh(hostname, [verify])
          return stdout.split('\n').find(line => line.includes('inference provider attestation')) ?? stdout
        }
        expect(await gatewayLine(digest)).toMatch(
          /^PASS .*over its attested TLS key, with fresh evidence of a SIMULATED platform; .*no upstream outside of its VM; as the claim names it/,
        )
        // The same measured image is another gateway under another operator's key.
        expect(await gatewayLine('ab'.repeat(48))).toMatch(/^FAIL /)

        // The owner's policy replaces the claim's: a gateway with another measurement gets no prompt, and the refusal
        // names it.
        const own = 'strongroom-gateway show 2>/dev/null'
        await prints(`${own} | jq '.measurements = ["${'11'.repeat(48)}"]' | strongroom-gateway set`)
        expect(await prints(`${ask.replace('--fail', '')} | jq --raw-output .error.message`)).toStartWith(
          'Your prompt was not sent: the gateway at inference.strongroom.internal:',
        )
        expect(await gatewayLine(digest)).toMatch(/^FAIL /)
        await prints('strongroom-gateway reset')
        await prints(ask)

        await acme.end(name)
        await until('nothing leaked', 60_000, async () => {
          const { leaks } = await appliance.admin<{ leaks: unknown[] }>('doctor', '--leaks')
          return leaks.length === 0
        })
        await appliance.stop()
      },
      testMs,
    )
  },
  { timeoutMs: testMs + 60_000 },
)
