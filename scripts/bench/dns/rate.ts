// DNS queries a second over UDP: ours beside Debian's NSD, each with one thread and no rate limits, asked by dnsperf
// over loopback in turns. Effects: spawns both; a folder below /tmp. Everything is ended and removed.

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { assert } from '../../../src/base/assert.ts'
import { freeRates, withDns } from '../../rigs/dns/server.ts'
import { until } from '../../rigs/until.ts'
import type { Figures } from '../bench-report.ts'
import type { BenchContext } from '../main.ts'

const domain = 'agents.example'
const nameCount = 256
const turns = 3
const turnSeconds = 3
/** dnsperf keeps so many queries under way. */
const outstanding = 100

type Names = readonly { readonly name: string; readonly address: string }[]

/** `dnsRatio` and what it is made of. Throws where nsd or dnsperf is missing. */
export async function measureDnsRatio({ note, signal }: Pick<BenchContext, 'note' | 'signal'>): Promise<Figures> {
  for (const program of ['nsd', 'dnsperf'])
    assert(Bun.which(program) !== null, `${program} is there; scripts/setup installs it`)
  const folder = mkdtempSync(join(tmpdir(), 'strongroom-bench-dns-'))
  const names: Names = Array.from({ length: nameCount }, (_, i) => ({ name: `n${i}.acme`, address: `10.88.0.${i}` }))
  const queries = join(folder, 'queries')
  writeFileSync(queries, queryLines(names))
  try {
    return await withDns({ rates: freeRates, namesMax: 2 * nameCount }, async ({ port, names: table }) => {
      for (const { name, address } of names) table.set(name, { v4: address, v6: null })
      await using nsd = await startNsd(folder, names)
      const seen: Record<'ours' | 'nsd', number[]> = { ours: [], nsd: [] }
      for (let turn = 0; turn < turns; turn += 1) {
        for (const [who, at] of [
          ['ours', port],
          ['nsd', nsd.port],
        ] as const) {
          signal.throwIfAborted()
          const perSecond = await queriesPerSecond(at, queries)
          note(`dns ${who}: ${perSecond} queries/s`)
          seen[who].push(perSecond)
        }
      }
      const [ours, theirs] = [median(seen.ours), median(seen.nsd)]
      return {
        dnsQueriesPerS: { value: ours, unit: '/s', aim: null, baseline: 'dnsNsdQueriesPerS' },
        dnsNsdQueriesPerS: { value: theirs, unit: '/s', aim: null },
        dnsRatio: { value: ours / theirs, unit: 'of NSD', aim: null },
      }
    })
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

/** Ten lines: seven existing addresses, two unknown names, one address of the other family. */
function queryLines(names: Names): string {
  const kind = (i: number, name: string) => {
    if (i % 10 < 7) return `${name}.${domain} A`
    return i % 10 === 9 ? `${name}.${domain} AAAA` : `x${i}.acme.${domain} A`
  }
  return `${names.map(({ name }, i) => kind(i, name)).join('\n')}\n`
}

async function startNsd(folder: string, names: Names): Promise<AsyncDisposable & { readonly port: number }> {
  const port = await freeUdpPort()
  const config = `server:
  ip-address: 127.0.0.1@${port}
  server-count: 1
  username: ""
  chroot: ""
  zonesdir: "${folder}"
  pidfile: "${folder}/nsd.pid"
  xfrdfile: "${folder}/xfrd.state"
  zonelistfile: "${folder}/zone.list"
  database: ""
  logfile: "${folder}/nsd.log"
  rrl-ratelimit: 0
remote-control:
  control-enable: no
zone:
  name: ${domain}
  zonefile: zone
`
  const zone = `$ORIGIN ${domain}.
$TTL 5
@ IN SOA ns hostmaster 1 3600 600 86400 5
@ IN NS ns
ns IN A 192.0.2.1
${names.map(({ name, address }) => `${name} IN A ${address}`).join('\n')}
`
  writeFileSync(join(folder, 'nsd.conf'), config)
  writeFileSync(join(folder, 'zone'), zone)
  const child = Bun.spawn(['nsd', '-d', '-c', join(folder, 'nsd.conf')], {
    stdin: 'ignore',
    stdout: 'ignore',
    stderr: 'inherit',
  })
  const end = async () => {
    child.kill('SIGTERM')
    const isOver = await Promise.race([child.exited.then(() => true), Bun.sleep(5_000).then(() => false)])
    if (!isOver) child.kill('SIGKILL')
    await child.exited
  }
  try {
    await until('NSD answers', 10_000, async () => {
      assert(child.exitCode === null, 'NSD runs')
      return await answers(port)
    })
  } catch (error) {
    await end()
    throw error
  }
  return { port, [Symbol.asyncDispose]: end }
}

async function freeUdpPort(): Promise<number> {
  const socket = await Bun.udpSocket({ hostname: '127.0.0.1', port: 0 })
  const { port } = socket
  socket.close()
  return port
}

async function answers(port: number): Promise<boolean> {
  const child = Bun.spawn(
    ['dig', '@127.0.0.1', '-p', String(port), '+time=1', '+tries=1', '+short', `n1.acme.${domain}`],
    {
      stdout: 'pipe',
      stderr: 'ignore',
    },
  )
  return (await child.stdout.text()).trim() === '10.88.0.1'
}

async function queriesPerSecond(port: number, queries: string): Promise<number> {
  const limits = ['-l', String(turnSeconds), '-q', String(outstanding), '-c', '4', '-T', '1']
  const child = Bun.spawn(['dnsperf', '-s', '127.0.0.1', '-p', String(port), '-d', queries, ...limits], {
    stdin: 'ignore',
    stdout: 'pipe',
    stderr: 'pipe',
    timeout: (turnSeconds + 20) * 1000,
  })
  const [text, exitCode] = await Promise.all([child.stdout.text(), child.exited])
  const perSecond = Number(/Queries per second:\s+([\d.]+)/.exec(text)?.[1])
  const answered = Number(/Queries completed:\s+\d+ \(([\d.]+)%\)/.exec(text)?.[1])
  assert(exitCode === 0 && perSecond > 0 && answered > 99, `dnsperf has its answers: ${text.slice(-600)}`)
  return Math.round(perSecond)
}

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[values.length >> 1] ?? 0
}
