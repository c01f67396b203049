// Goal: a host without IPv4 is set up by IPv6 alone: `init` asks for it, `doctor` finds no name without an address, and
// the appliance's DNS answers with AAAA records.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { inOwnNetns } from '../../../scripts/rigs/netns.ts'
import { atTerminal } from '../../../scripts/rigs/terminal.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { askDns } from '../../../src/linux/net/dns-ask.ts'

const timeoutMs = 240_000
const main = resolve(import.meta.dir, '../../../src/main.ts')
const own = '2001:db8::10'

inOwnNetns(
  import.meta.path,
  () => {
    let directory: string
    let config: string
    beforeAll(() => {
      for (const words of [
        'link add up0 type veth peer name up1',
        `-6 address add ${own}/64 dev up0 nodad`,
        'link set up0 up',
        'link set up1 up',
        '-6 route add default via 2001:db8::1 dev up0',
        '-4 address flush dev lo',
      ]) {
        const { exitCode, stderr } = Bun.spawnSync(['ip', ...words.split(' ')], { stderr: 'pipe' })
        if (exitCode !== 0) throw new Error(`ip ${words}: ${stderr}`)
      }
      directory = mkdtempSync(join(tmpdir(), 'strongroom-ipv6-'))
      mkdirSync(join(directory, 'state'), { mode: 0o711 })
      config = join(directory, 'strongroom.toml')
    })
    afterAll(() => rmSync(directory, { recursive: true, force: true }))

    const argv = (...words: string[]) => [
      ...[process.execPath, main, '--config', config, '--state-dir', join(directory, 'state')],
      ...words,
    ]

    test(
      'goal: init offers the IPv6 address, and finds no fault with it',
      async () => {
        writeFileSync(config, `platform = "tcg"\n[vm]\nimage_dir = "${directory}/none"\n`)
        const init = atTerminal(argv('init'))
        try {
          for (const [question, answer] of [
            ['Domain', 'agents.test'],
            [`[${own}]: `, ''],
            ['IPv6 network', '2001:db8::/48'],
            [`contains ${own}`, '2001:db8:1::/48'],
            ['[[::]:8442]: ', '""'],
            ['attested builds', ''],
            ['first organization', 'acme'],
          ] as const) {
            await init.printed(question, timeoutMs)
            init.type(`${answer}\r`)
          }
          expect(await init.exited).toBe(1)
          // The image is missing, and nothing else of the network.
          expect(init.screen()).toContain('image: ')
          expect(init.screen()).not.toMatch(/^(host names|delegation|ports): /m)
        } finally {
          init.kill()
        }
      },
      timeoutMs,
    )

    test(
      'goal: the daemon serves by IPv6, and its names have that address alone',
      async () => {
        const listen = '[listen]\ninstances = "[::]:8441"\ndns = "[::]:53"\ninference = ""\n'
        const network = `[network]\npublic_v6 = "${own}"\npool_v6 = "2001:db8:1::/48"\nresolvers = ["2620:fe::9"]\n`
        writeFileSync(config, `domain = "agents.test"\nplatform = "tcg"\n${listen}${network}`)
        const daemon = Bun.spawn(argv('serve'), { stdout: 'ignore', stderr: 'pipe' })
        try {
          const ask = (name: string, type: 'A' | 'AAAA') =>
            askDns({ server: own, port: 53, name, type, recursion: false, timeoutMs: 2_000 })
          await until('the DNS server answers', timeoutMs, async () => {
            if (daemon.exitCode !== null) throw new Error(await daemon.stderr.text())
            return await ask('ns.agents.test', 'AAAA').catch(() => null)
          })
          for (const name of ['ns.agents.test', 'instances.agents.test']) {
            expect((await ask(name, 'AAAA')).answers).toMatchObject([{ type: 'AAAA', data: own }])
            expect(await ask(name, 'A')).toMatchObject({ code: 'NOERROR', answers: [] })
          }
          const response = await fetch(`https://[${own}]:8441/v1/instances`, { tls: { rejectUnauthorized: false } })
          expect(response.status).toBe(401)
          const doctor = Bun.spawn(argv('doctor', '--no-canary', '--json'), { stdout: 'pipe', stderr: 'ignore' })
          const { checks } = (await doctor.stdout.json()) as {
            checks: { name: string; result: string; detail: string }[]
          }
          const names = checks.find(({ name }) => name === 'host names')
          expect([names?.result, names?.detail]).toEqual([
            'PASS',
            `ns.agents.test is ${own}, instances.agents.test is ${own}`,
          ])
        } finally {
          daemon.kill()
          await daemon.exited
        }
      },
      timeoutMs,
    )
  },
  { timeoutMs: 2 * timeoutMs },
)
