// Shows the appliance at work, step by step, each with its time: an instance, the gateway in its measured VM, a build.
// Everything runs in a network namespace of its own with the appliance's DNS as resolver, and is removed at the end,
// also after Ctrl-C. Usage: scripts/demo [--fleet] [--relock]: --fleet shows two hosts over one PostgreSQL instead, and
// the death of one; with --relock packages that are gone from the mirror are locked anew.

import { resolve } from 'node:path'
import { parseArgs } from 'node:util'
import type { UsageSummary } from '../src/contract/http/instance.ts'
import { relockVariable } from './image/relock-when.ts'
import { runCommand } from './lib/command.ts'
import { buildSteps } from './lib/demo-builds.ts'
import { showFleet } from './lib/demo-fleet.ts'
import { gatewayServes, gatewaySteps } from './lib/demo-gateway.ts'
import { below, createHost, domain, executable, firstLine, type Images, run } from './lib/demo-host.ts'
import { apiOf, askFromInside, endInstance, instanceSteps, startAgent } from './lib/demo-instance.ts'
import { runSteps, type Steps } from './lib/steps.ts'

const { values: flags } = parseArgs({
  options: { fleet: { type: 'boolean', default: false }, relock: { type: 'boolean', default: false } },
})
const root = resolve(import.meta.dir, '..')
const buildTimeoutMs = 7_200_000

async function demo(steps: Steps): Promise<void> {
  const { step, note, defer } = steps
  const images = await build(steps)
  const host = await createHost(steps, images)
  const { strongroom, directory, stateDir } = host
  const startedMs = performance.now()
  await step('strongroom serve', () => host.serve(defer))
  note((await strongroom('status')).trim().replaceAll('\n', below))
  await step('strongroom org create acme', () => strongroom('org', 'create', 'acme').then(() => ''))
  const { key } = await step('strongroom key create acme', async () =>
    JSON.parse(await strongroom('key', 'create', 'acme', '--json')),
  )
  note(`the key begins ${key.slice(0, 12)}; it is shown once`)

  // The VM of the gateway boots beside the instance's, and the agent starts for the first time beside both.
  const api = apiOf(host, key)
  const instance = await instanceSteps(steps, host, { api, key, image: images.instance, gateway: images.inference })
  const agent = startAgent(steps, instance)
  await gatewayServes(steps, host, startedMs)
  await askFromInside(steps, instance)
  await gatewaySteps(steps, host)
  await agent.ended()
  const { usage } = await step('GET /v1/usage', async () => (await api('GET', '/v1/usage')) as UsageSummary)
  note(
    `${usage.instance_hours_used.toFixed(3)} instance-hours, ${usage.inference_cost_usd} USD of inference, ${usage.egress_bytes} of ${usage.egress_limit_bytes} bytes of egress`,
  )
  await endInstance(steps, api, instance)
  const url = `https://builds.${domain}:8443`
  const inside = (argv: readonly string[], env: Record<string, string> = {}) => host.insideWith(argv, env)
  await buildSteps(steps, { executable, directory, key, stateDir, url, builder: images.builder, run: inside })
  await step('strongroom doctor --leaks', () => strongroom('doctor', '--leaks').then(firstLine))
}

async function demoFleet(steps: Steps): Promise<void> {
  const { step, note } = steps
  await step('guest executable', () => bun('scripts/build-guest.ts').then(() => ''))
  const image = await step('guest image', () => buildImage('instance', note))
  await step('appliance executable', () => bun('scripts/build-appliance.ts').then(() => ''))
  await showFleet(steps, image)
}

async function build({ step, note }: Pick<Steps, 'step' | 'note'>): Promise<Images> {
  const program = (name: string) => bun(`scripts/build-${name}.ts`).then(() => '')
  await step('guest executable', () => program('guest'))
  await step('builder executable', () => program('builder'))
  await step("executable of the gateway's VM", () => program('enclave'))
  const instance = await step('guest image', () => buildImage('instance', note))
  const builder = await step('builder image', () => buildImage('builder', note))
  const inference = await step('inference image', () => buildImage('inference', note))
  await step('appliance executable', () => program('appliance'))
  return { instance, builder, inference }
}

/** The image of the committed lock. Locks anew only when asked, as that changes measurements. */
async function buildImage(recipe: string, note: Steps['note']): Promise<string> {
  const built = await runCommand([process.execPath, 'scripts/build-image.ts', recipe], {
    cwd: root,
    timeoutMs: buildTimeoutMs,
    ...(flags.relock ? { env: { [relockVariable]: '1' } } : {}),
  })
  if (built.exitCode !== 0) throw new Error(built.output)
  const lines = built.output.trim().split('\n')
  if (lines.some(line => line.includes(relockVariable))) for (const line of lines.slice(0, -1)) note(line)
  return lines.at(-1) ?? ''
}

function bun(...argv: string[]): Promise<string> {
  return run([process.execPath, ...argv], {}, buildTimeoutMs)
}

process.exit(await runSteps(flags.fleet ? demoFleet : demo))
