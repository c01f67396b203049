// Private inference of an instance, as its owner uses and verifies it over SSH: its own key and the endpoint in it.
// Effects: ssh processes, requests, files beside the appliance and in the instance.

import { expect } from 'bun:test'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { pinGateway } from '../../../scripts/lib/gateway-pins.ts'
import { type Appliance, executable, imageDir } from '../../../scripts/rigs/appliance.ts'
import { workerModel } from '../../../scripts/rigs/gateway/appliance-gateway.ts'
import type { Customer } from '../../../scripts/rigs/instances/instances-client.ts'
import { until } from '../../../scripts/rigs/until.ts'

const stepMs = 120_000
const chat = {
  model: workerModel,
  messages: [{ role: 'user', content: 'hello the world' }],
  max_tokens: 8,
  temperature: 0,
}

/** Its own key and the endpoint are all that inference needs. Gives the key. */
export async function thePrivateInference(appliance: Appliance, acme: Customer, hostname: string): Promise<string> {
  const request = JSON.stringify(chat)
  const curl = (path: string, more: string) =>
    appliance.ssh(hostname, [
      'curl --silent --show-error --max-time 60',
      '--write-out "\\n%{http_code}" -H "Authorization: Bearer $(cat ~/.config/opencode/inference.key)"',
      `${more} \${OPENAI_BASE_URL%/v1}${path}`,
    ])
  // No program of the instance but the endpoint trusts an authority of the host.
  const session = await appliance.ssh(hostname, [
    'env; curl --silent --retry 30 --retry-connrefused $ANTHROPIC_BASE_URL/health; echo $?; curl --silent https://inference.strongroom.internal:8442/health; echo $?',
  ])
  expect(session.stdout).toContain('HOME=/home/agent\n')
  expect(session.stdout).not.toMatch(/^(SSL_CERT_FILE|REQUESTS_CA_BUNDLE|NODE_EXTRA_CA_CERTS)=/m)
  expect(session.stdout).toEndWith('{"status":"ok"}0\n60\n')
  expect((await curl('/v1/models', '')).stdout).toEndWith('\n200')
  await until('the worker responds to the instance', stepMs, async () => {
    const response = await curl('/v1/chat/completions', `-H 'Content-Type: application/json' -d '${request}'`)
    return response.stdout.endsWith('\n200') && response.stdout.includes('"chat.completion"')
  })
  await verifiedInside(appliance, hostname)
  await until('it is in the books', stepMs, async () => (await acme.usage()).usage.inference_cost_usd !== '0.00')
  const key = (await appliance.ssh(hostname, ['cat ~/.config/opencode/inference.key'])).stdout.trim()
  expect(key).toMatch(/^gw_/)
  return key
}

/**
 * The five subcommands of strongroom-verify in an instance whose owner trusts this host's simulated root and pins VM
 * and gateway.
 */
async function verifiedInside(appliance: Appliance, hostname: string): Promise<void> {
  const configFile = join(appliance.directory, 'strongroom.toml')
  await pinGateway({ daemon: [executable, 'serve'], configFile, directory: appliance.directory })
  const read = (path: string) => readFileSync(join(appliance.directory, path), 'utf8')
  const { launchDigests }: { launchDigests: Record<string, string> } = await Bun.file(
    join(await imageDir(), 'manifest.json'),
  ).json()
  // The VM is launched from an IGVM file that the host has made of the image.
  const ofVm = Object.entries(launchDigests).flatMap(([shape, digest]) =>
    shape.startsWith('qemu-kvm/igvm/EPYC-v4/') ? [digest] : [],
  )
  expect(ofVm.length).toBeGreaterThan(0)
  const policy = JSON.parse(read('policy.json')) as { measurements: string[] }
  const withVm = { ...policy, measurements: [...policy.measurements, ...ofVm] }
  const files = {
    'root.pem': readFileSync(join(appliance.stateDir, 'simulator/root.pem'), 'utf8'),
    'policy.json': JSON.stringify(withVm),
    'allowlist.json': read('allowlist.json'),
  }
  for (const [name, text] of Object.entries(files)) {
    const encoded = Buffer.from(text).toString('base64')
    expect((await appliance.ssh(hostname, [`echo ${encoded} | base64 --decode >${name}`])).exitCode).toBe(0)
  }
  const lines = async (options: string) => {
    const verify = `strongroom-verify --verbose --trust-simulated-root root.pem ${options}`
    const { stdout } = await appliance.ssh(hostname, [verify])
    const words = stdout
      .split('\n')
      .flatMap(line => /^(PASS|FAIL|NOT CHECKED) +([a-zA-Z -]+):/.exec(line)?.slice(1, 3) ?? [])
    return { stdout, outcomes: words.filter((_, at) => at % 2 === 0) }
  }
  const good = await lines('--policy policy.json --allowlist allowlist.json')
  expect({ ...good }).toEqual({ ...good, outcomes: ['FAIL', 'FAIL', 'PASS', 'NOT CHECKED', 'PASS'] })
  // Sound but for whose it is: the host runs it.
  expect(good.stdout).toMatch(
    /^FAIL +TPM measurements: vtpm:host-untrusted: the host runs this TPM .*; quote signature, its key, nonce, PCR values, log and measured command line are good/m,
  )
  // A gateway without its own VM runs beside the host's processes, whatever its evidence.
  expect(good.stdout).toMatch(
    /^NOT CHECKED +inference provider attestation: gateway: .* is not attested: it runs in the host's own process; /m,
  )
}
