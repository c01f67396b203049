// An appliance whose gateway runs in measured VMs, with the built-in model on a disk and an attested upstream outside.
// Effects: a whole appliance with VMs, files in temporary directories; use inside `inOwnNetns`.

import {
  chmodSync,
  closeSync,
  mkdtempSync,
  openSync,
  readFileSync,
  readSync,
  rmSync,
  writeFileSync,
  writeSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import OpenAI from 'openai'
import { type Appliance, builtImage, createAppliance } from '../../../scripts/rigs/appliance.ts'
import {
  caOf,
  createGatewayClient,
  createModelFile,
  type GatewayClient,
  gatewayTables,
  gatewayUrl,
  workerModel as model,
} from '../../../scripts/rigs/gateway/appliance-gateway.ts'
import { listGatewayVms } from '../../../scripts/rigs/gateway/serving-gateway-vm.ts'
import { qemuProcesses } from '../../../scripts/rigs/leftovers.ts'
import { until } from '../../../scripts/rigs/until.ts'
import type { AdminStatus } from '../../../src/contract/admin/admin.ts'
import type { AdminGatewayVms } from '../../../src/contract/admin/gateway-vms.ts'
import { loadModel } from '../../../src/host/models/models.ts'
import { openPage } from '../console/browser.ts'
import { readConsoles, type VmConsoles } from '../launch/vm-consoles.ts'
import { checksOf } from '../program.ts'
import { startTdxUpstream, type TdxUpstream } from './tdx-upstream.ts'

export const outside = { name: 'far', model: 'far-1' } as const
/** Name of the disk of the model. */
export const diskName = 'tiny'
const consoleAddress = '127.0.0.1:8445'
const startMs = 600_000
const logLinesShown = 40
/** Recorded without a VM, by `strongroom model add`, on a processor with AVX2. */
const golden = ['--golden-prompt', 'a a a a a a a a', '--golden-answer', ' and and and and']

export type EnclaveAppliance = AsyncDisposable & {
  readonly appliance: Appliance
  readonly upstream: TdxUpstream
  /** Path of the model's disk. */
  readonly disk: string
  readonly consoles: VmConsoles
  /** A client of the organization `acme`, and the same client through OpenAI's library. */
  readonly client: GatewayClient
  readonly openai: OpenAI
}

export async function startEnclaveAppliance(): Promise<EnclaveAppliance> {
  await using undo = new AsyncDisposableStack()
  const file = undo.use(createModelFile())
  const { upstream, table } = undo.use(await attestedUpstream())
  const tables = (await gatewayTables('', 'vm', diskName)) + table
  const lines = { listen: `console = "${consoleAddress}"` }
  const appliance = undo.use(await createAppliance('', 'vm', undefined, tables, lines))
  const added = await appliance.cli('model', 'add', file.path, '--name', diskName, ...golden)
  if (added.exitCode !== 0) throw new Error(`model add: ${added.stdout}${added.stderr}`)
  const { disk } = loadModel(appliance.stateDir, diskName)
  const consoles = undo.use(readConsoles(appliance.stateDir))
  await appliance.start()
  await appliance.admin('org', 'create', 'acme')
  const client = await createGatewayClient(appliance, 'acme')
  const openai = new OpenAI({
    apiKey: client.key,
    baseURL: `${gatewayUrl}/v1`,
    fetch: (url, init) => fetch(url, { ...init, tls: { ca: caOf(appliance) } } as RequestInit),
  })
  const kept = undo.move()
  return { appliance, upstream, disk, consoles, client, openai, [Symbol.asyncDispose]: () => kept.disposeAsync() }
}

/** At this host's address on the network of VMs: they reach no other of its own, and a test has no world. */
async function attestedUpstream() {
  const address = '169.254.88.1'
  const directory = mkdtempSync(join(tmpdir(), 'srt-attested-'))
  const file = (name: string, content: string) => {
    writeFileSync(join(directory, name), content)
    return JSON.stringify(join(directory, name))
  }
  const upstream = await startTdxUpstream(address)
  const { attestation, ca, url } = upstream
  const table = [
    ...['[[inference.upstreams]]', `name = "${outside.name}"`, `url = "${url}"`, `models = ["${outside.model}"]`],
    ...[`ca_file = ${file('ca.pem', ca)}`, 'attestation = "tdx"'],
    `attestation_policy = ${file('policy.json', attestation.policy)}`,
    `attestation_simulated_root = ${file('root.pem', attestation.simulatedRoot ?? '')}`,
    '',
  ].join('\n')
  const close = async () => {
    await upstream[Symbol.asyncDispose]()
    rmSync(directory, { recursive: true })
  }
  return { upstream, table, [Symbol.asyncDispose]: close }
}

/** The attested upstream as the operator sees it, in status and metrics. */
export async function attestedState(appliance: Appliance) {
  const { gateway } = await appliance.admin<AdminStatus>('status')
  const text = (await appliance.cli('metrics')).stdout
  const metric = new RegExp(`^strongroom_upstream_attested\\{.*upstream="${outside.name}".*\\} (\\d)$`, 'm')
  return {
    status: gateway.attested_upstreams.map(({ name, attested }) => ({ name, attested })),
    metric: metric.exec(text)?.[1],
  }
}

type GatewayVm = AdminGatewayVms['gateways'][number]

/** The first VM of which this is true. The error holds the last status. */
export async function gatewayThat(
  appliance: Appliance,
  what: string,
  is: (item: GatewayVm) => boolean,
): Promise<GatewayVm> {
  let found: GatewayVm | undefined
  const isThere = async () => {
    found = (await listGatewayVms(appliance)).find(is)
    return found !== undefined
  }
  await until(what, startMs, isThere).catch(async error => {
    const shown = [await appliance.cli('inference', 'show'), await appliance.cli('inference', 'logs')]
    const log = appliance.log().split('\n').slice(-logLinesShown)
    throw new Error([error.message, ...shown.map(result => result.stdout), ...log].join('\n'))
  })
  if (found === undefined) throw new Error('invariant broken: it was found')
  return found
}

/** Process of a VM. */
export function qemuOf({ stateDir }: Appliance, vmId: string): number {
  const isOfVm = (pid: number) => readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes(vmId)
  const [pid, ...others] = qemuProcesses(stateDir).filter(isOfVm)
  if (pid === undefined || others.length > 0)
    throw new Error(`${others.length + (pid === undefined ? 0 : 1)} of ${vmId}`)
  return pid
}

/** Flips one bit of the model's weights; a second call restores it. */
export function flipBit(disk: string): void {
  chmodSync(disk, 0o600)
  const fd = openSync(disk, 'r+')
  const at = 1_000_000
  const byte = Buffer.alloc(1)
  readSync(fd, byte, 0, 1, at)
  writeSync(fd, Uint8Array.of((byte[0] ?? 0) ^ 1), 0, 1, at)
  closeSync(fd)
}

/** Saved through the console's relay, in Chromium, then judged on the command line with what the operator hands out. */
export async function verdictOfTenant(appliance: Appliance, key: string) {
  const [policy, workload] = ['gateway-policy.json', 'workload.json'].map(name => join(appliance.directory, name))
  const operator = ['--operator-key', join(appliance.stateDir, 'operator-key.pub.pem')]
  const image = ['--image', await builtImage('inference')]
  writeFileSync(policy ?? '', (await appliance.cli('verify', 'policy-example', ...image, ...operator)).stdout)
  const origin = `https://${consoleAddress}`
  await using opened = await openPage(origin)
  const { page } = opened
  await page.goto(`${origin}/tenant`)
  await page.getByRole('textbox', { name: 'Key' }).fill(key)
  await page.getByRole('checkbox', { name: /Remember until/ }).check()
  await page.getByRole('button', { name: 'Continue' }).click()
  await page.goto(`${origin}/tenant/models`)
  await page.getByRole('heading', { level: 1, name: 'Models and usage' }).waitFor()
  await page.getByRole('cell', { name: model }).first().waitFor()
  const served = `fetch('/api/tenant/inference/workload.json', { headers: { authorization: 'Bearer ${key}' } })`
  writeFileSync(workload ?? '', await page.evaluate<string>(`${served}.then(response => response.text())`))
  const downloaded = page.waitForEvent('download', { timeout: 120_000 })
  await page.getByRole('button', { name: 'Download evidence' }).click()
  const file = await downloaded
  await file.saveAs(join(appliance.directory, file.suggestedFilename()))
  const command = await page.getByText(/^strongroom verify gateway --document /).textContent()
  const argv = (command ?? '').split(' ').slice(1)
  const here = argv.map(word => (/^[\w-]+\.json$/.test(word) ? join(appliance.directory, word) : word))
  const root = ['--trust-simulated-root', join(appliance.stateDir, 'simulator/root.pem')]
  const allowed = ['--allow-outside', outside.name]
  const { exitCode, stdout } = await appliance.cli(...here, ...root, ...allowed, '--json')
  const document = JSON.parse(stdout)
  const faults = [...checksOf(document, 'FAIL'), ...opened.faults, ...opened.strangers]
  return { exitCode, simulated: document.simulated, faults }
}
