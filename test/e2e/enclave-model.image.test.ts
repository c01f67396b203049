// A model on its verity disk in a real gateway VM: promises of disk and golden answer, evidence that a tenant's page
// saves, and the effect of one changed byte.

import { expect, test } from 'bun:test'
import { chmodSync, closeSync, openSync, readSync, writeFileSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { type Appliance, builtImage, createAppliance } from '../../scripts/rigs/appliance.ts'
import {
  createGatewayClient,
  createModelFile,
  gatewayTables,
  workerModel as model,
} from '../../scripts/rigs/gateway/appliance-gateway.ts'
import { qemuProcesses } from '../../scripts/rigs/leftovers.ts'
import { inOwnNetns } from '../../scripts/rigs/netns.ts'
import { until } from '../../scripts/rigs/until.ts'
import type { AdminGateways } from '../../src/contract/admin/gateways.ts'
import { loadModel } from '../../src/host/models/models.ts'
import { openPage } from '../rigs/console/browser.ts'
import { checksOf } from '../rigs/program.ts'

const testMs = 1_200_000
const startMs = 300_000
const question = { model, messages: [{ role: 'user', content: 'hello' }], max_tokens: 4, temperature: 0 }
/** Recorded without a VM, by `strongroom model add`, on a processor with AVX2. */
const golden = ['--golden-prompt', 'a a a a a a a a', '--golden-answer', ' and and and and']

type Gateway = AdminGateways['gateways'][number]
const gatewaysOf = async (appliance: Appliance) => (await appliance.admin<AdminGateways>('inference', 'show')).gateways

async function gatewayThat(appliance: Appliance, what: string, is: (item: Gateway) => boolean): Promise<Gateway> {
  let found: Gateway | undefined
  const isThere = async () => {
    found = (await gatewaysOf(appliance)).find(is)
    return found !== undefined
  }
  await until(what, startMs, isThere).catch(async error => {
    const shown = [await appliance.cli('inference', 'show'), await appliance.cli('inference', 'logs')]
    const log = appliance.log().split('\n').slice(-40)
    throw new Error([error.message, ...shown.map(result => result.stdout), ...log].join('\n'))
  })
  if (found === undefined) throw new Error('invariant broken: it was found')
  return found
}

/** One bit of a byte of the model's weights. */
function changeByte(disk: string): void {
  chmodSync(disk, 0o600)
  const fd = openSync(disk, 'r+')
  const at = 1_000_000
  const byte = Buffer.alloc(1)
  readSync(fd, byte, 0, 1, at)
  writeSync(fd, Uint8Array.of((byte[0] ?? 0) ^ 1), 0, 1, at)
  closeSync(fd)
}

/** Saved through the console's relay, in Chromium, then judged on the command line with what the operator hands out. */
async function verdictOfTenant(appliance: Appliance, key: string) {
  const [policy, workload] = ['gateway-policy.json', 'workload.json'].map(name => join(appliance.directory, name))
  const operator = ['--operator-key', join(appliance.stateDir, 'operator-key.pub.pem')]
  const image = ['--image', await builtImage('inference')]
  writeFileSync(policy ?? '', (await appliance.cli('verify', 'policy-example', ...image, ...operator)).stdout)
  const origin = 'https://127.0.0.1:8445'
  await using opened = await openPage(origin)
  const { page } = opened
  await page.goto(`${origin}/tenant`)
  await page.getByRole('textbox', { name: 'Key' }).fill(key)
  await page.getByRole('checkbox', { name: /Keep it/ }).check()
  await page.getByRole('button', { name: 'Go on' }).click()
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
  const { exitCode, stdout } = await appliance.cli(...here, ...root, '--json')
  const document = JSON.parse(stdout)
  const faults = [...checksOf(document, 'FAIL'), ...opened.faults, ...opened.strangers]
  return { exitCode, simulated: document.simulated, faults }
}

inOwnNetns(
  import.meta.path,
  () => {
    test(
      'the disk is served, cannot be removed meanwhile, and one changed byte stops the worker alone',
      async () => {
        // Goal: the served model is the one in workload.json; a host that changes the disk gains nothing and costs no
        // other model.
        using file = createModelFile()
        await using appliance = await createAppliance('', 'vm', undefined, await gatewayTables('', 'vm', 'tiny'), {
          listen: 'console = "127.0.0.1:8445"',
        })
        const added = await appliance.cli('model', 'add', file.path, '--name', 'tiny', ...golden)
        expect(added).toMatchObject({ exitCode: 0 })
        const { disk } = loadModel(appliance.stateDir, 'tiny')
        await appliance.start()
        await appliance.admin('org', 'create', 'acme')
        const client = await createGatewayClient(appliance, 'acme')
        const whole = (gateway: Gateway) => gateway.state === 'serving' && gateway.problem === null
        const first = await gatewayThat(appliance, 'a gateway VM serves', whole)
        // The golden answer was the right one, on the processor that software emulates.
        expect((await client.post('/v1/chat/completions', question)).status).toBe(200)

        expect(await verdictOfTenant(appliance, client.key)).toEqual({
          exitCode: 0,
          simulated: true,
          faults: [],
        })

        const pids = qemuProcesses(appliance.stateDir)
        const { models } = await appliance.admin<{ models: unknown[] }>('model', 'list')
        expect(models).toEqual([expect.objectContaining({ name: 'tiny', configured: true, open_by: pids })])
        expect((await appliance.cli('model', 'remove', 'tiny')).exitCode).toBe(5)

        // The VM caches what it has read: the running VM serves on, and no VM that reads the changed disk replaces
        // it.
        changeByte(disk)
        expect((await appliance.cli('inference', 'update')).exitCode).toBe(0)
        const second = await gatewayThat(
          appliance,
          'the replacement says what is wrong',
          item => item.vm !== first.vm && /the worker: /.test(item.problem ?? ''),
        )
        expect(second.state).toBe('starting')
        expect((await client.post('/v1/chat/completions', question)).status).toBe(200)

        // Alone, it is the gateway: without the model, with all else.
        const [pid] = pids
        process.kill(pid ?? 0, 'SIGKILL')
        const third = await gatewayThat(
          appliance,
          'a gateway VM serves without its worker',
          item => item.vm !== first.vm && item.state === 'serving',
        )
        expect(third.problem).toMatch(/the worker: .*(EIO|i\/o error)/i)
        expect((await client.get('/health')).status).toBe(200)
        expect((await client.get('/v1/models')).status).toBe(200)
        const refused = await client.post('/v1/chat/completions', question)
        expect([refused.status, (await client.get('/health')).status]).toEqual([502, 200])
        await appliance.stop()
      },
      testMs,
    )
  },
  { timeoutMs: testMs + 60_000 },
)
