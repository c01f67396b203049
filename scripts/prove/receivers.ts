// The receivers of a host's problems, scripted: a webhook that verifies signatures, a mail server, Prometheus with
// the rules of the package. Effects: ports of 127.0.0.1, a process, files of the caller's.

import { createHmac, timingSafeEqual } from 'node:crypto'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { AlertMessage } from '../../src/contract/admin/alerts.ts'
import { lastingPort } from '../rigs/free-port.ts'
import type { MailServer } from '../rigs/monitoring/mail-server.ts'
import { until } from '../rigs/until.ts'

export type Pair = { readonly key: string; readonly cert: string }

export type Hook = {
  readonly url: string
  /** Messages with a valid signature, in order. */
  readonly messages: readonly AlertMessage[]
  /** Requests that were refused on purpose, and those whose signature was wrong. */
  readonly refusedCount: () => number
  readonly forgedCount: () => number
  readonly stop: () => Promise<void>
}

/** The first request is refused, so that it is retried. `secret`: reads the host's secret, which its start makes. */
export function startHook(pair: Pair, secret: () => string): Hook {
  const messages: AlertMessage[] = []
  let [refused, forged] = [0, 0]
  const server = Bun.serve({
    ...{ hostname: '127.0.0.1', port: 0, tls: pair },
    fetch: async request => {
      const body = await request.text()
      const [id, at] = ['webhook-id', 'webhook-timestamp'].map(name => request.headers.get(name))
      const key = Buffer.from(secret().trim().replace('whsec_', ''), 'base64')
      const expected = `v1,${createHmac('sha256', key).update(`${id}.${at}.${body}`).digest('base64')}`
      const given = request.headers.get('webhook-signature') ?? ''
      if (given.length !== expected.length || !timingSafeEqual(Buffer.from(given), Buffer.from(expected))) {
        forged += 1
        return new Response(null, { status: 401 })
      }
      if (refused === 0) {
        refused = 1
        return new Response(null, { status: 503 })
      }
      messages.push(JSON.parse(body) as AlertMessage)
      return new Response(null, { status: 204 })
    },
  })
  return {
    ...{ messages, refusedCount: () => refused, forgedCount: () => forged },
    url: `https://127.0.0.1:${server.port}/alerts`,
    stop: () => server.stop(true),
  }
}

/** The texts of e-mails, without the line breaks of their encoding. */
export function mailTexts({ mails }: Pick<MailServer, 'mails'>): string[] {
  return mails.map(mail => {
    const [head = '', ...rest] = mail.split('\n\n')
    const body = rest.join('\n\n')
    if (/^content-transfer-encoding: base64/im.test(head)) return Buffer.from(body, 'base64').toString()
    const joined = body.replaceAll('=\n', '')
    return /^content-transfer-encoding: quoted-printable/im.test(head)
      ? Buffer.from(
          joined.replaceAll(/=([0-9A-F]{2})/g, (_whole, hex) => String.fromCharCode(Number.parseInt(hex, 16))),
          'latin1',
        ).toString()
      : joined
  })
}

export type Prometheus = {
  /** Values of an expression, by PromQL. */
  readonly query: (expression: string) => Promise<{ readonly metric: Record<string, string>; readonly value: string }[]>
  readonly stop: () => Promise<void>
}

type Scrape = {
  /** Prometheus itself. */
  readonly program: string
  readonly directory: string
  readonly target: string
  readonly caPem: string
  readonly token: string
  /** Files of rules. */
  readonly rules: readonly string[]
}

/** Scrapes each second, over TLS and with the token, as the example of the package does. */
export async function startPrometheus({
  program,
  directory,
  target,
  caPem,
  token,
  rules,
}: Scrape): Promise<Prometheus> {
  mkdirSync(directory, { recursive: true })
  const [ca, tokenFile, config] = ['ca.pem', 'token', 'prometheus.yml'].map(name => join(directory, name))
  writeFileSync(ca ?? '', caPem)
  writeFileSync(tokenFile ?? '', token)
  const lines = [
    ...['global: { scrape_interval: 1s, evaluation_interval: 1s }', `rule_files: ${JSON.stringify(rules)}`],
    ...['scrape_configs:', '  - job_name: strongroom', '    scheme: https'],
    ...[`    tls_config: { ca_file: ${ca} }`, `    authorization: { credentials_file: ${tokenFile} }`],
    `    static_configs: [{ targets: ["${target}"] }]`,
  ]
  writeFileSync(config ?? '', `${lines.join('\n')}\n`)
  const address = `127.0.0.1:${lastingPort()}`
  const words = [`--config.file=${config}`, `--storage.tsdb.path=${join(directory, 'data')}`]
  const argv = [program, ...words, `--web.listen-address=${address}`, '--log.level=warn']
  const child = Bun.spawn(argv, { stdin: 'ignore', stdout: 'ignore', stderr: 'pipe' })
  const said = child.stderr.text()
  const stop = async () => {
    child.kill('SIGKILL')
    await child.exited
  }
  const isReady = () =>
    fetch(`http://${address}/-/ready`).then(
      ({ ok }) => ok,
      () => false,
    )
  await until('Prometheus is ready', startTimeoutMs, async () => {
    if (child.exitCode !== null) throw new Error(`Prometheus ended: ${await said}`)
    return await isReady()
  }).catch(async error => {
    await stop()
    throw error
  })
  return {
    query: async expression => {
      const response = await fetch(`http://${address}/api/v1/query?query=${encodeURIComponent(expression)}`)
      const { data } = (await response.json()) as {
        data: { result: { metric: Record<string, string>; value: [number, string] }[] }
      }
      return data.result.map(({ metric, value: [, value] }) => ({ metric, value }))
    },
    stop,
  }
}
const startTimeoutMs = 60_000
