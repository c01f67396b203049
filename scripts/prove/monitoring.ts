// Problems raised for real in a booted Debian, and looked for in every place that shows them: status, doctor, console,
// metrics, alerts. Effects: those of `ProvedHost`; a full disk, a firewall, a killed QEMU, all put right again.

import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { systemRandom } from '../../src/base/ids.ts'
import type { AdminStatus } from '../../src/contract/admin/admin.ts'
import { type ProblemName, problemKey } from '../../src/contract/admin/problems.ts'
import { openAuthority } from '../../src/http/authority.ts'
import { type MailServer, startMailServer } from '../rigs/monitoring/mail-server.ts'
import { unpackPromtool } from '../rigs/monitoring/promtool.ts'
import { fillDisk } from './full-disk.ts'
import { authoritiesOf, otherAuthority, type ProvedHost } from './host.ts'
import {
  awaited,
  commandsOf,
  commandTimeoutMs,
  configure,
  documentOf,
  expectEqual,
  expectText,
  type Part,
  type Proof,
  problemNames,
  qemuPids,
  refused,
  service,
  setting,
  stateDir,
  stateOf,
  statusOf,
  succeed,
} from './proof.ts'
import { type Hook, mailTexts, type Pair, type Prometheus, startHook, startPrometheus } from './receivers.ts'

export type Monitoring = {
  readonly hook: Hook
  readonly mail: MailServer
  /** Null if this machine cannot download it. */
  readonly prometheus: Prometheus | null
  /** The list of problems as the console shows it; a session ends with the daemon. */
  console: () => Promise<AdminStatus>
  /** A pair by the operator's own authority; it ends in five days. */
  readonly ending: Pair
  /** Puts the disk right. */
  undoDisk: (() => void) | null
}

export const PROBLEMS_RAISED: readonly Part[] = [
  { row: '2', name: 'scraped over TLS with the token', run: scrape },
  { row: '3', name: 'a test of both receivers', run: testAlerts },
  { row: '1', name: 'problems raised, in all places', run: raise },
  { row: '3', name: 'the alerts of these problems', run: alerted },
  { row: '2', name: 'the rules of the package', run: rules },
]

/** While problems end, which takes a minute, other things are tried. */
export const PROBLEMS_ENDED: readonly Part[] = [
  { row: '1', name: 'problems put right leave all places', run: ended },
  { row: '3', name: 'alerts say that they have ended', run: resolved },
]

const metricsPort = 8445
const consolePort = 8444
const seenTimeoutMs = 300_000
/** Each is there once; `firewall_table` stays for a day. */
const RAISED = ['disk', 'firewall', 'models', 'upstream', 'instances', 'backup', 'certificate'] as const
const STAYS: readonly ProblemName[] = ['firewall_table']
const tableOfForeign = 'foreign'

async function scrape(proof: Proof): Promise<undefined | string> {
  const { host, step, state, defer } = proof
  const monitoring = await step('metrics, console, webhook and mail are configured; the service restarts', () =>
    watched(proof),
  )
  state.monitoring = monitoring
  const metrics = (token: string) =>
    fetch(`https://127.0.0.1:${metricsPort}/metrics`, {
      headers: { authorization: `Bearer ${token}` },
      tls: { ca: authoritiesOf(host.debian) },
    })
  const token = fileOf(host, 'metrics-token').trim()
  await step('the token opens the metrics, another does not', async () => {
    const response = await metrics(token)
    expectEqual('status', `${response.status} ${(await metrics(`${token}x`)).status}`, '200 401')
    const text = await response.text()
    for (const name of METRICS) expectText('the metrics', text, new RegExp(`^${name}[{ ]`, 'm'))
  })
  const { prometheus } = monitoring
  if (prometheus === null) return 'Prometheus cannot be got here; the token was tried'
  defer('Prometheus', prometheus.stop)
  await step('Prometheus scrapes it', () =>
    awaited('it is up and ready', seenTimeoutMs, async () => {
      const found = await prometheus.query('up{job="strongroom"} == 1 and on(instance) strongroom_ready == 1')
      return found.length === 1 ? null : JSON.stringify(await prometheus.query('{__name__=~"up|strongroom_ready"}'))
    }),
  )
}

/** A scrape has these in any configuration. */
const METRICS = [
  ...['strongroom_ready', 'strongroom_problem', 'strongroom_backup_last_success_timestamp_seconds'],
  ...['strongroom_backup_good', 'strongroom_disk_free_bytes', 'strongroom_clock_held', 'strongroom_instances'],
  ...['strongroom_certificate_expiry_timestamp_seconds', 'strongroom_instances_failed', 'strongroom_requests_total'],
  'strongroom_vm_memory_limit_bytes',
]

async function watched({ host, directory, release, defer }: Proof): Promise<Monitoring> {
  const own = join(directory, `receivers-${release}`)
  mkdirSync(own, { recursive: true })
  const names = ['localhost', '127.0.0.1', 'instances.agents.test']
  const runtime = { nowMs: Date.now, random: systemRandom }
  const authority = await openAuthority({ kind: 'clients', stateDir: own, names, ...runtime })
  const pair = await authority.issue(names, 30)
  const hook = startHook(pair, () => fileOf(host, 'alerts-secret'))
  defer('the webhook', hook.stop)
  const mail = await startMailServer({ kind: 'starttls', pair })
  defer('the mail server', () => mail[Symbol.asyncDispose]())
  const { root } = host.debian
  const [ca, password] = [otherAuthority, '/etc/strongroom/smtp-password']
  writeFileSync(`${root}${ca}`, authority.caPem)
  writeFileSync(`${root}${password}`, 'secret\n', { mode: 0o600 })
  await configure(host, [
    setting('listen.metrics', `127.0.0.1:${metricsPort}`),
    setting('listen.console', `127.0.0.1:${consolePort}`),
    setting('alerts.after_s', 0),
    setting('alerts.group_s', 10),
    ...[setting('alerts.webhook_url', hook.url), setting('alerts.webhook_ca_file', ca)],
    ...[setting('alerts.smtp_server', `127.0.0.1:${mail.port}`), setting('alerts.smtp_ca_file', ca)],
    ...[setting('alerts.smtp_user', 'strongroom'), setting('alerts.smtp_password_file', password)],
    ...[setting('alerts.email_from', 'host@agents.test'), setting('alerts.email_to', ['ops@agents.test'])],
  ])
  const tool = await unpackPromtool(own)
  const prometheus =
    'reason' in tool
      ? null
      : await startPrometheus({
          program: join(own, 'usr/bin/prometheus'),
          directory: join(own, 'prometheus'),
          target: `127.0.0.1:${metricsPort}`,
          caPem: authoritiesOf(host.debian),
          token: fileOf(host, 'metrics-token'),
          rules: [`${root}/usr/share/strongroom/monitoring/strongroom.rules.yml`],
        })
  return {
    hook,
    mail,
    prometheus,
    console: await signIn(host),
    ending: await authority.issue(names, 5),
    undoDisk: null,
  }
}

/** Logs in once: a full disk refuses it, because it cannot be recorded. */
async function signIn(host: ProvedHost): Promise<() => Promise<AdminStatus>> {
  const origin = `https://127.0.0.1:${consolePort}`
  const tls = { ca: authoritiesOf(host.debian) }
  const { url } = await documentOf<{ url: string }>(host, 'console', 'open')
  const own = { origin: new URL(url).origin, 'sec-fetch-site': 'same-origin', 'content-type': 'application/json' }
  const at = (path: string) => `${new URL(url).origin === origin ? origin : new URL(url).origin}${path}`
  const body = JSON.stringify({ token: new URL(url).hash.slice('#token='.length) })
  const session = await fetch(at('/api/session'), { method: 'POST', headers: own, body, tls })
  const cookie = session.headers.get('set-cookie')?.split(';')[0] ?? ''
  if (cookie === '') throw new Error(`the console does not log in: ${session.status} ${await session.text()}`)
  return async () => {
    const response = await fetch(at('/api/operator/status'), { headers: { ...own, cookie }, tls })
    return (await response.json()) as AdminStatus
  }
}

async function testAlerts(proof: Proof): Promise<undefined> {
  const { hook, mail } = stateOf(proof, 'monitoring')
  await proof.step('strongroom alerts test: a refused one is a FAIL, the next arrives at both', async () => {
    expectText('the first', await refused(proof.host, ['alerts', 'test']), /^webhook +FAIL/m, /^email +PASS/m)
    expectText('the second', await succeed(proof.host, ['alerts', 'test']), /^webhook +PASS/m, /^email +PASS/m)
    expectEqual('the webhook got', hook.messages.map(({ kind }) => kind).join(), 'test')
    expectEqual('forged', `${hook.forgedCount()}`, '0')
    expectText('the e-mail', mailTexts(mail).join('\n'), 'This is a test of the alerts')
    expectText('the mail server', mail.commands.join('\n'), 'STARTTLS', /^AUTH /m)
  })
}

async function raise(proof: Proof): Promise<undefined | string> {
  const { host, step, state } = proof
  const monitoring = stateOf(proof, 'monitoring')
  await step(
    'a certificate that ends in five days, a killed QEMU, an upstream that is gone, a backup that fails',
    async () => {
      await endingCertificate(host, monitoring.ending)
      monitoring.console = await signIn(host)
      const before = await qemuPids(host)
      await host.acceptInstance(stateOf(proof, 'key'))
      let fresh: string[] = []
      await awaited('its QEMU runs', seenTimeoutMs, async () => {
        fresh = (await qemuPids(host)).filter(pid => !before.includes(pid))
        return fresh.length > 0 ? null : 'none'
      })
      await host.debian.exec(['kill', '-KILL', ...fresh], { check: false })
      await stateOf(proof, 'engine').stop()
      const recipient = (await succeed(host, ['backup-key', '/root/unused.txt'])).trim()
      await refused(host, [
        'backup',
        '--recipient',
        recipient,
        '--to-command',
        'cat > /dev/null; echo no such store >&2; exit 3',
      ])
    },
  )
  await step('a firewall of others, a table of ours that is deleted, a full disk', async () => {
    const chain = '{ type filter hook forward priority 0; policy drop; }'
    await host.debian.exec(['nft', `add table ip ${tableOfForeign}; add chain ip ${tableOfForeign} forward ${chain}`])
    await host.debian.exec(['ip', 'netns', 'exec', 'strongroom', 'nft', 'flush', 'ruleset'])
    monitoring.undoDisk = fillDisk(host.debian)
  })
  const expected: readonly ProblemName[] = [...RAISED, ...STAYS]
  await step(`status has ${expected.join(', ')}`, () =>
    awaited('all are there', seenTimeoutMs, async () => {
      const names = await problemNames(host)
      const missing = expected.filter(name => !names.includes(name))
      return missing.length === 0 ? null : `${missing} are not in ${names}`
    }),
  )
  await step('so have doctor, the console and the metrics, and the journal has one line for each', async () => {
    const { problems } = await statusOf(host)
    const { checks } = await documentOf<{ checks: { detail: string }[] }>(host, 'doctor', '--no-canary')
    const details = checks.map(({ detail }) => detail).join('\n')
    const page = await monitoring.console()
    const metrics = await succeed(host, ['metrics'])
    expectEqual('ready by the console', `${page.ready}`, 'false')
    expectText('the metrics', metrics, /^strongroom_ready 0$/m)
    for (const name of expected) {
      const problem = problems.find(found => found.name === name)
      // Figures in a text change from one look to the next.
      expectText(`doctor (${name})`, details, problem?.detail.slice(0, sameChars) ?? name)
      if (!page.problems.some(found => found.name === name)) throw new Error(`the console has no ${name}`)
      expectText(`the metrics (${name})`, metrics, new RegExp(`^strongroom_problem\\{name="${name}"\\} [1-9]`, 'm'))
    }
    await awaited('each has its line', seenTimeoutMs, async () => {
      const lines = host.debian.journal(service)
      const found = expected.map(name => [name, lines.match(new RegExp(`problem ${name}[ a-z_0-9.-]*: `, 'g'))?.length])
      return found.every(([, count]) => Number(count ?? 0) >= 1) ? null : JSON.stringify(found)
    })
  })
  if (state.monitoring === undefined) return 'no receivers'
}
const sameChars = 20

/** The operator's own certificate, which ends soon. */
async function endingCertificate(host: ProvedHost, { cert, key }: Pair): Promise<void> {
  const { root } = host.debian
  writeFileSync(`${root}/etc/strongroom/own.pem`, cert)
  writeFileSync(`${root}/etc/strongroom/own.key`, key, { mode: 0o600 })
  await configure(host, [
    setting('tls.certificate_file', '/etc/strongroom/own.pem'),
    setting('tls.key_file', '/etc/strongroom/own.key'),
  ])
}

async function alerted(proof: Proof): Promise<undefined> {
  const { hook, mail } = stateOf(proof, 'monitoring')
  await proof.step('webhook and e-mail name each of them, in few messages', async () => {
    const began = () => hook.messages.flatMap(message => message.began.map(({ name }) => name))
    await awaited('the webhook has all', seenTimeoutMs, async () => {
      const missing = RAISED.filter(name => !began().includes(name))
      return missing.length === 0 ? null : `${missing} are not in ${began()}`
    })
    await awaited('the e-mails have all', seenTimeoutMs, async () => {
      const text = mailTexts(mail).join('\n')
      const missing = RAISED.filter(name => !new RegExp(`^(critical|warning) ${name}\\b`, 'm').test(text))
      return missing.length === 0 ? null : `${missing} are not in ${text}`
    })
    const keys = hook.messages.flatMap(({ began: all }) => all.map(found => `${found.severity} ${problemKey(found)}`))
    const twice = keys.filter((key, at) => keys.indexOf(key) !== at)
    expectEqual('named twice', twice.join(), '')
    const count = hook.messages.filter(({ kind }) => kind === 'problems').length
    if (count >= RAISED.length) throw new Error(`${count} messages: nothing was grouped`)
    expectEqual('forged', `${hook.forgedCount()}`, '0')
    return `${count} messages by the webhook, ${mail.mails.length - 2} e-mails`
  })
}

async function rules(proof: Proof): Promise<undefined | string> {
  const { prometheus, undoDisk } = stateOf(proof, 'monitoring')
  if (prometheus !== null) {
    await proof.step('StrongroomNotReady and StrongroomProblem are pending or firing', () =>
      awaited('both are', seenTimeoutMs, async () => {
        const names = (await prometheus.query('ALERTS')).map(({ metric }) => metric.alertname)
        return ['StrongroomNotReady', 'StrongroomProblem'].every(name => names.includes(name)) ? null : names.join()
      }),
    )
  }
  await proof.step('put right: by the commands that the problems name', () => putRight(proof))
  if (prometheus === null) return 'Prometheus cannot be got here'
  if (undoDisk === null) return 'the disk was not full'
}

async function putRight(proof: Proof): Promise<string> {
  const { host } = proof
  const monitoring = stateOf(proof, 'monitoring')
  monitoring.undoDisk?.()
  stateOf(proof, 'engine').start()
  const { problems } = await statusOf(host)
  const remedy = problems.find(({ name }) => name === 'firewall')?.remedy ?? ''
  const commands = commandsOf(remedy)
  expectText('the remedy of the firewall', commands, `nft insert rule ip ${tableOfForeign} forward`)
  await host.debian.exec(['sh', '-euc', commands])
  const recipient = (await succeed(host, ['backup-key', '/root/again.txt'])).trim()
  await succeed(host, ['backup', '--recipient', recipient, '/root/again.age'], commandTimeoutMs)
  const failed = await documentOf<{ instances: { name: string }[] }>(host, 'instance', 'list', '--status', 'failed')
  for (const { name } of failed.instances) await succeed(host, ['instance', 'delete', name])
  await configure(host, [setting('tls.certificate_file', ''), setting('tls.key_file', '')])
  return commands
}

async function ended(proof: Proof): Promise<undefined> {
  const { host, step } = proof
  await step('status, console and metrics', async () => {
    await awaited('nothing is left but what stays for a day', seenTimeoutMs, async () => {
      const names = (await problemNames(host)).filter(name => !STAYS.includes(name as ProblemName))
      return names.length === 0 ? null : names.join()
    })
    const page = await (await signIn(host))()
    expectEqual('ready by the console', `${page.ready}`, 'true')
    expectText('the metrics', await succeed(host, ['metrics']), /^strongroom_ready 1$/m)
    await host.debian.exec(['nft', 'delete', 'table', 'ip', tableOfForeign])
  })
}

async function resolved(proof: Proof): Promise<undefined> {
  const { hook, mail } = stateOf(proof, 'monitoring')
  await proof.step('webhook and e-mail say so', async () => {
    const names = () => hook.messages.flatMap(message => message.resolved.map(({ name }) => name))
    await awaited('the webhook has all', seenTimeoutMs, async () => {
      const missing = RAISED.filter(name => !names().includes(name))
      return missing.length === 0 ? null : `${missing} are not in ${names()}`
    })
    await awaited('the e-mails do', seenTimeoutMs, async () => {
      const text = mailTexts(mail).join('\n')
      return text.includes('Resolved:') ? null : text
    })
  })
}

function fileOf({ debian }: ProvedHost, name: string): string {
  return readFileSync(`${debian.root}${stateDir}/${name}`, 'utf8')
}
