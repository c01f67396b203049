// A host without IPv4, freshly installed and set up by typing: its questions, doctor, its names, an instance. Effects:
// those of `ProvedHost`; addresses of the namespace.

import { Resolver } from 'node:dns/promises'
import { writeFileSync } from 'node:fs'
import { atTerminal } from '../rigs/terminal.ts'
import { scriptedEngine } from './engine.ts'
import { configFile, documentOf, expectEqual, expectText, initTimeoutMs, type Part, type Proof } from './proof.ts'
import { modelAnswers, typeAnswers } from './typed-init.ts'

export const IPV6_ONLY: readonly Part[] = [{ row: '6', name: 'a host without IPv4', run: ipv6Only }]

const own = '2001:db8::10'

async function ipv6Only({ host, packages, step }: Proof): Promise<undefined> {
  for (const words of [
    ...['-4 address flush dev up0', '-4 address flush dev up1'],
    `-6 address add ${own}/64 dev up0 nodad`,
    '-6 route add default via 2001:db8::1 dev up0',
  ])
    await host.debian.exec(['ip', ...words.split(' ')])
  await step('purge, and install on a host with IPv6 alone', async () => {
    await host.apt('purge', 'strongroom', 'strongroom-images')
    await host.install(packages.second, packages.images)
    await host.answers()
    writeFileSync(`${host.debian.root}${configFile}`, '[inference]\nplacement = "host"\n[vm]\nscratch_gib = 2\n')
  })
  await using engine = scriptedEngine('::1')
  await step('strongroom init, typed: it asks for IPv6, and tries an instance', async () => {
    const init = atTerminal(host.debian.argv(['strongroom', 'init']))
    const timer = setTimeout(init.kill, initTimeoutMs)
    try {
      await typeAnswers(init, [
        ['Domain', 'agents.test'],
        [`[${own}]: `, ''],
        ['IPv6 network', '2001:db8:1::/48'],
        ['[[::]:8442]: ', ''],
        ['attested builds', ''],
        ['first organization', 'acme'],
        ...modelAnswers(engine.url),
      ])
      const exitCode = await init.exited
      expectEqual(`exit code of init (${init.screen()})`, `${exitCode}`, '0')
      expectText('the screen', init.screen(), /PASS {2}log in /, /PASS {2}prompt /)
      return [...init.screen().matchAll(/PASS {2}(\S.*?) +([0-9.]+ s) /g)]
        .map(([, name, took]) => `${name} ${took}`)
        .join(', ')
    } finally {
      clearTimeout(timer)
      init.kill()
    }
  })
  await step('doctor and DNS name that address', async () => {
    const { checks } = await documentOf<{ checks: { name: string; result: string; detail: string }[] }>(
      host,
      'doctor',
      '--no-canary',
    )
    const names = checks.find(({ name }) => name === 'host names')
    expectEqual('host names', names?.result ?? '', 'PASS')
    expectText('host names', names?.detail ?? '', `instances.agents.test is ${own}`)
    const resolver = new Resolver({ timeout: 10_000, tries: 2 })
    resolver.setServers([`[${own}]:53`])
    for (const name of ['ns', 'instances', 'inference'])
      expectEqual(`${name}.agents.test`, (await resolver.resolve6(`${name}.agents.test`)).join(), own)
  })
}
