// Proves the work of an operator after the first hour: an own model server, names of keys, quotas, billing,
// maintenance, backups to a command. Effects: those of `ProvedHost`.

import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { editToml } from '../../src/config/edit.ts'
import { until } from '../rigs/until.ts'
import { contextTokens } from './engine.ts'
import { authoritiesOf, type ProvedHost } from './host.ts'
import {
  awaited,
  commandTimeoutMs,
  configFile,
  documentOf,
  expectEqual,
  expectText,
  type Part,
  type Proof,
  pidOf,
  problemNames,
  qemuPids,
  refused,
  service,
  setting,
  stateDir,
  stateOf,
  succeed,
} from './proof.ts'

export const OWN_SERVER: readonly Part[] = [
  { row: '6a', name: 'upstream rm and add', run: upstream },
  { row: '6a', name: 'init --for-fleet', run: forFleet },
]

export const DAY_TWO: readonly Part[] = [
  { row: '7', name: 'names of keys and billing', run: namesAndBilling },
  { row: '7', name: 'quotas', run: quotas },
  { row: '7', name: 'maintenance', run: maintenance },
  { row: '7', name: 'backup to a command, and a unit that fails before it starts', run: backups },
  { row: '7', name: 'OpenID Connect and outgoing proxy', run: elsewhere },
]

type Upstreams = { upstreams: { name: string; url: string; context_tokens: number | null }[] }

/** A server without a price first: a budget in dollars is refused. Then with one. */
async function upstream({ host, step, ...proof }: Proof): Promise<undefined> {
  const engine = stateOf({ host, step, ...proof }, 'engine')
  const listed = async () => (await documentOf<Upstreams>(host, 'upstream', 'ls')).upstreams
  const before = await pidOf(host)
  const [{ name } = { name: '' }] = await listed()
  await step('strongroom upstream rm: the service restarts without it', async () => {
    await succeed(host, ['upstream', 'rm', name], commandTimeoutMs)
    expectEqual('upstreams', `${(await listed()).length}`, '0')
    if ((await pidOf(host)) === before) throw new Error('the daemon has the former configuration')
  })
  await step('a server that does not answer, and a model without a price, are refused', async () => {
    expectText('no server', await refused(host, ['upstream', 'add', 'http://127.0.0.1:9/v1']), '127.0.0.1:9')
    const file = `${host.debian.root}${configFile}`
    const text = readFileSync(file, 'utf8')
    writeFileSync(file, editToml(text, [setting('inference.prices', [])]))
    expectText('no price', await refused(host, ['upstream', 'add', engine.url]), '--price-in')
    writeFileSync(file, text)
  })
  await step('strongroom upstream add: tried, with the context size of the server', async () => {
    const told = await succeed(host, ['upstream', 'add', engine.url, '--engine', 'vllm'], commandTimeoutMs)
    const [added] = await listed()
    expectEqual('upstream', `${added?.url} ${added?.context_tokens}`, `${engine.url} ${contextTokens}`)
    await host.answers()
    return told.split('\n').slice(1).join(' ')
  })
  await step('a budget in dollars is accepted, because the model has a price', () =>
    succeed(host, ['org', 'budget', 'acme', '--usd', '250']).then(() =>
      succeed(host, ['org', 'budget', 'acme', '--usd', 'none']).then(() => ''),
    ),
  )
}

async function forFleet({ host, step }: Proof): Promise<undefined> {
  await step('strongroom init --for-fleet asks for no organization and tries no instance', async () => {
    const words = ['init', '--for-fleet', '--preseed', configFile]
    const { exitCode, stdout, stderr } = await host.strongroom(words, commandTimeoutMs)
    expectEqual(`exit code (${stdout}${stderr})`, `${exitCode}`, '0')
    if (/PASS {2}create/.test(stderr)) throw new Error(`it made an instance: ${stderr}`)
    const { organizations } = await documentOf<{ organizations: { slug: string }[] }>(host, 'org', 'list')
    expectEqual('organizations', organizations.map(({ slug }) => slug).join(), 'acme')
  })
}

async function namesAndBilling(proof: Proof): Promise<undefined> {
  const { host, step } = proof
  await step('key create --name, key list', async () => {
    await succeed(host, ['key', 'create', 'acme', '--name', 'nightly-build'])
    const { keys } = await documentOf<{ keys: { name: string | null }[] }>(host, 'key', 'list', 'acme')
    expectText('names', keys.map(({ name }) => name).join(), 'ci', 'nightly-build')
  })
  await step('billing as CSV and JSON has the hours of the instance that runs', async () => {
    const day = new Date().toISOString().slice(0, 10)
    const before = new Date(Date.now() - 86_400_000).toISOString().slice(0, 10)
    const words = ['billing', 'acme', '--from', before, '--to', day]
    const csv = await succeed(host, [...words, '--format', 'csv'])
    const { rows } = JSON.parse(await succeed(host, [...words, '--format', 'json'])) as {
      rows: { instance: string | null; instance_hours: string }[]
    }
    const own = rows.find(row => `${row.instance}`.includes(stateOf(proof, 'name')))
    if (own === undefined || Number(own.instance_hours) <= 0) throw new Error(`billing: ${JSON.stringify(rows)}`)
    // It runs on between the two.
    expectText('the CSV', csv, new RegExp(`^acme,${stateOf(proof, 'name')},.*,[0-9]+,[0-9.]*[1-9]`, 'm'))
    return `${own.instance_hours} hours`
  })
}

/** Status and text of a create; the instance that an accepted one made is not waited for. */
async function create(proof: Proof, method = 'POST'): Promise<{ status: number; text: string; notice: string | null }> {
  const { host } = proof
  const response = await fetch('https://127.0.0.1:8441/v1/instances', {
    method,
    tls: { ca: authoritiesOf(host.debian) },
    headers: { Authorization: `Bearer ${stateOf(proof, 'key')}`, 'Content-Type': 'application/json' },
    ...(method === 'POST' ? { body: JSON.stringify({ public_key: host.publicKey }) } : {}),
  })
  const notice = response.headers.get('x-strongroom-maintenance')
  return { status: response.status, text: await response.text(), notice }
}

async function quotas(proof: Proof): Promise<undefined> {
  const { host, step } = proof
  await step('beyond a quota of instances and of memory a create is 409, of creates a day 429', async () => {
    for (const [words, status] of [
      [['--instances', '1'], 409],
      [['--instances', 'default', '--memory-mib', '64'], 409],
      [['--memory-mib', 'default', '--creates-per-day', '1'], 429],
    ] as const) {
      await succeed(host, ['org', 'quota', 'acme', ...words])
      const answer = await create(proof)
      expectEqual(`a create with ${words.join(' ')} (${answer.text})`, `${answer.status}`, `${status}`)
    }
    await succeed(host, ['org', 'quota', 'acme', '--creates-per-day', 'default'])
  })
}

async function maintenance(proof: Proof): Promise<undefined> {
  const { host, step } = proof
  await step('maintenance begin: creates are 503, a header says so, it survives a restart', async () => {
    await succeed(host, ['maintenance', 'begin', '--message', 'a disk is replaced'])
    await host.systemctl('restart', service)
    await host.answers()
    const answer = await create(proof)
    expectEqual(`a create (${answer.text})`, `${answer.status}`, '503')
    expectText('the refusal', answer.text, 'a disk is replaced')
    expectText('the header of a read', `${(await create(proof, 'GET')).notice}`, 'a disk is replaced')
    await succeed(host, ['maintenance', 'end'])
    expectEqual('the header afterwards', `${(await create(proof, 'GET')).notice}`, 'null')
  })
  await step('maintenance end: a create is accepted, and its instance deleted', async () => {
    const before = (await qemuPids(host)).length
    const { name } = await host.acceptInstance(stateOf(proof, 'key'))
    await succeed(host, ['instance', 'delete', `acme/${name}`])
    await until('its VM is gone', commandTimeoutMs, async () => (await qemuPids(host)).length <= before)
  })
}

async function backups({ host, step }: Proof): Promise<undefined> {
  const { root } = host.debian
  const recipients = `${root}/etc/strongroom/backup-recipients.txt`
  await step('backup --to-command: the command has the whole file and its name', async () => {
    const recipient = (await succeed(host, ['backup-key', '/root/command.txt'])).trim()
    writeFileSync(recipients, `${recipient}\n`)
    const command = 'cat > "/root/$STRONGROOM_BACKUP_NAME"; echo "$STRONGROOM_BACKUP_NAME" > /root/name'
    const words = ['backup', '--recipients-file', '/etc/strongroom/backup-recipients.txt', '--to-command', command]
    await succeed(host, words, commandTimeoutMs)
    const name = readFileSync(`${root}/root/name`, 'utf8').trim()
    const opened = ['restore', `/root/${name}`, '--identity-file', '/root/command.txt', '--dry-run']
    const { digest } = await documentOf<{ digest: string }>(host, 'operator-key')
    expectText(
      'what it holds',
      await succeed(host, [...opened, '--operator-key', digest, '--keys', 'keep'], commandTimeoutMs),
      'strongroom.db',
    )
  })
  await step('a backup unit that fails before it starts is a problem, and the next one ends it', async () => {
    // A file where the directory of backups must be.
    rmSync(`${root}/var/backups/strongroom`, { recursive: true, force: true })
    writeFileSync(`${root}/var/backups/strongroom`, '')
    await host.systemctl('start', 'strongroom-backup.service')
    const mark = `${root}${stateDir}/backup-unit-failed`
    await until('the unit has left its mark', commandTimeoutMs, () => existsSync(mark))
    await isProblem(host, true)
    rmSync(`${root}/var/backups/strongroom`)
    await host.systemctl('start', 'strongroom-backup.service')
    await isProblem(host, false)
    await host.debian.exec(['rm', '--recursive', '/var/backups/strongroom'])
    rmSync(recipients)
    await host.systemctl('reset-failed')
  })
}

async function isProblem(host: ProvedHost, expected: boolean): Promise<void> {
  await awaited(`backup is ${expected ? 'a' : 'no'} problem`, commandTimeoutMs, async () => {
    const names = await problemNames(host)
    return names.includes('backup') === expected ? null : names.join()
  })
}

async function elsewhere(): Promise<string> {
  return 'sign-in by a provider needs a browser (test/e2e/console), and the proxy a second machine (test/appliance/proxy.slow.test.ts)'
}
