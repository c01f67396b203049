// Goal: an operator reads which table and chain of which firewall drops, and the commands of that firewall. The rules
// are those that Docker 20.10, ufw 0.36.2 and firewalld 1.3.3 make, as nft 1.0.6 lists them (test/vectors/firewalls).

import { expect, test } from 'bun:test'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { defaultConfig } from '../../../src/config/load.ts'
import {
  type DroppingChain,
  droppedRemedy,
  droppedText,
  droppingChains,
  itemsOf,
  tablesToRead,
} from '../../../src/vm/firewall-probe/dropping-chain.plan.ts'
import type { Need } from '../../../src/vm/firewall-probe/probe.plan.ts'

const config = defaultConfig()
const recorded = (name: string) => readFileSync(join(import.meta.dir, `../../vectors/firewalls/${name}.json`), 'utf8')
const found = (name: string) => droppingChains(itemsOf(JSON.parse(recorded(name))), ['strongroom'])
const ssh: Need = {
  kind: 'instances',
  family: 'ipv4',
  protocol: 'tcp',
  name: 'SSH',
  from: 'world',
  to: 'instance',
  port: 22,
  mappedPort: null,
}
const gateway: Need = { ...ssh, name: 'the gateway', from: 'instance', to: 'nextHop', port: 8442 }
const service: Need = { ...ssh, kind: 'services', name: 'service A', to: 'host', port: 8441 }
const commands = (chains: readonly DroppingChain[], ...dropped: Need[]) =>
  [...droppedRemedy(dropped, config, chains).matchAll(/`([^`]+)`/g)].map(([, command = '']) => command)

test('goal: the chain that drops the rest is named, and none that drops by a condition', () => {
  const text = (name: string) => droppedText([ssh], found(name))
  expect(text('docker')).toBe('a firewall of this host drops SSH (Docker, chain FORWARD of table ip filter)')
  expect(text('ufw')).toBe('a firewall of this host drops SSH (ufw, chain FORWARD of table ip filter)')
  // Its policy is to accept; the last rule of the chain rejects.
  expect(text('firewalld')).toBe(
    'a firewall of this host drops SSH (firewalld, chain filter_FORWARD of table inet firewalld)',
  )
  // Docker limits nothing that is for this host.
  expect(droppedText([service], found('docker'))).toBe('a firewall of this host drops service A')
  expect(droppedText([], found('docker'))).toBeNull()
})

test('goal: the commands are those of the firewall that drops', () => {
  expect(commands(found('docker'), ssh)).toEqual([
    'iptables -I DOCKER-USER -i sr-vms -j ACCEPT',
    'iptables -I DOCKER-USER -o sr-vms -j ACCEPT',
  ])
  expect(commands(found('ufw'), ssh, gateway, service)).toEqual([
    'ufw allow in on sr-vms',
    'ufw allow 8441/tcp',
    'ufw route allow in on sr-vms',
    'ufw route allow out on sr-vms',
  ])
  expect(commands(found('firewalld'), ssh, gateway, service)).toEqual([
    'firewall-cmd --permanent --zone=trusted --add-interface=sr-vms',
    'firewall-cmd --permanent --add-port=8441/tcp',
    'firewall-cmd --permanent --new-policy=strongroom',
    'firewall-cmd --permanent --policy=strongroom --add-ingress-zone=ANY',
    'firewall-cmd --permanent --policy=strongroom --add-egress-zone=trusted',
    'firewall-cmd --permanent --policy=strongroom --set-target=ACCEPT',
    'firewall-cmd --reload',
  ])
})

const base = { family: 'inet', table: 'fw', name: 'fwd', hook: 'forward', policy: 'accept' }
const rule = (chain: string, ...expr: unknown[]) => ({ rule: { family: 'inet', table: 'fw', chain, expr } })
const match = { match: { op: '==', left: { meta: { key: 'iifname' } }, right: 'eth0' } }
const names = (...items: unknown[]) => droppingChains(items, ['strongroom']).map(({ chain }) => chain)

test('goal: a chain is named for a drop without a condition alone, also behind jumps, and never one of ours', () => {
  const chain = { chain: base }
  expect(names(chain, rule('fwd', match, { drop: null }))).toEqual([])
  expect(names(chain, rule('fwd', { xt: { type: 'match', name: 'addrtype' } }, { drop: null }))).toEqual([])
  expect(names(chain, rule('fwd', { counter: {} }, { reject: {} }))).toEqual(['fwd'])
  const behind = rule('rest', { drop: null })
  expect(names(chain, rule('fwd', { jump: { target: 'rest' } }), behind)).toEqual(['fwd'])
  expect(names(chain, rule('fwd', match, { jump: { target: 'rest' } }), behind)).toEqual([])
  // Chains that lead to each other end.
  expect(names(chain, rule('fwd', { jump: { target: 'a' } }), rule('a', { goto: { target: 'fwd' } }))).toEqual([])
  for (const change of [{ table: 'strongroom' }, { hook: 'output' }, { family: 'bridge' }])
    expect(names({ chain: { ...base, policy: 'drop', ...change } })).toEqual([])
  for (const document of [{ nftables: 7 }, {}, null, 'text']) expect(() => itemsOf(document)).toThrow('nft list')
  // Other items count as none.
  expect(names(null, 7, { chain: null }, { chain: { ...base, name: 7 } }, { rule: [] }, chain)).toEqual([])
})

test('goal: what no known chain explains keeps the rules that let it pass', () => {
  const six: Need = { ...ssh, family: 'ipv6' }
  // Tables of IPv4 do not drop IPv6.
  for (const dropped of [[six], [ssh, six], [ssh, service]])
    expect(droppedRemedy(dropped, config, found('docker'))).toStartWith('let it pass, as "iifname sr* accept"')
  const chains = droppingChains([{ chain: { ...base, policy: 'drop' } }], [])
  expect(commands(chains, ssh, six)).toEqual([
    'nft insert rule inet fw fwd iifname sr-vms accept',
    'nft insert rule inet fw fwd oifname sr-vms accept',
  ])
  expect(droppedRemedy([ssh], config, chains)).toEndWith('name one of those in network.probe_peers instead.')
})

test('goal: commands can be copied, what follows them is a sentence, and only rules that open no port are called safe', () => {
  const [docker, ufw, firewalld] = ['docker', 'ufw', 'firewalld'].map(name => droppedRemedy([ssh], config, found(name)))
  const safe = " (safe: Strongroom's own rules still filter these packets)"
  const peers =
    'The test packets come from 192.175.48.0/24 and 2620:4f:8000::/48; if your firewall is meant to admit other networks alone, name one of those in network.probe_peers instead.'
  expect(docker).toBe(
    `run \`iptables -I DOCKER-USER -i sr-vms -j ACCEPT\`; \`iptables -I DOCKER-USER -o sr-vms -j ACCEPT\`${safe}. Store them where they are loaded at boot: strongroom help egress. ${peers}`,
  )
  // These two store what they are given.
  expect(ufw).toBe(`run \`ufw route allow in on sr-vms\`; \`ufw route allow out on sr-vms\`${safe}. ${peers}`)
  expect(firewalld).toEndWith(`\`firewall-cmd --reload\`. ${peers}`)
  // A port of this host is open to everyone then.
  expect(droppedRemedy([ssh, service], config, found('ufw'))).not.toContain('safe')
})

test('goal: no chain is blamed behind a rule without a condition that accepts or returns', () => {
  const dropping = { chain: { ...base, policy: 'drop' } }
  const [to, drop] = [{ jump: { target: 'rest' } }, rule('rest', { drop: null })]
  expect(names({ chain: base }, rule('fwd', { counter: {} }, { accept: null }), rule('fwd', { drop: null }))).toEqual(
    [],
  )
  expect(names(dropping, rule('fwd', { accept: null }))).toEqual([])
  expect(names(dropping, rule('fwd', match, { accept: null }))).toEqual(['fwd'])
  expect(names({ chain: base }, rule('fwd', to), rule('rest', { return: null }), drop)).toEqual([])
  expect(names({ chain: base }, rule('fwd', to), rule('rest', { return: null }), rule('fwd', { drop: null }))).toEqual([
    'fwd',
  ])
  expect(names({ chain: base }, rule('fwd', { goto: { target: 'rest' } }), rule('fwd', { drop: null }))).toEqual([])
  expect(names(dropping, rule('fwd', { return: null }), rule('fwd', { accept: null }))).toEqual(['fwd'])
})

test('goal: several chains that match are named as what they are, four at most', () => {
  const chains = (count: number) =>
    Array.from({ length: count }, (_, n) => ({ chain: { ...base, name: `f${n}`, policy: 'drop' } }))
  const two = droppingChains(chains(2), [])
  expect(droppedText([ssh], two)).toBe(
    'a firewall of this host drops SSH (each can be the cause: nftables, chain f0 of table inet fw; nftables, chain f1 of table inet fw)',
  )
  const many = droppingChains(chains(900), [])
  expect(droppedText([ssh], many)).toEndWith('chain f3 of table inet fw; and 896 more)')
  expect(droppedRemedy([ssh], config, many)).toStartWith('let it pass, as')
})

test('goal: a name that a shell would read otherwise is in no command, and harmless in the text', () => {
  for (const name of ['$(reboot)', 'f;reboot', '-f', 'f\nreboot', 'f reboot', ''])
    for (const change of [{ name }, { table: name }]) {
      const chains = droppingChains([{ chain: { ...base, policy: 'drop', ...change } }], [])
      expect(chains).toHaveLength(1)
      expect(droppedRemedy([ssh], config, chains)).toStartWith('let it pass, as')
      expect(droppedText([ssh], chains)).not.toContain('\n')
      expect(tablesToRead([{ chain: { ...base, ...change } }], [])).toHaveLength('table' in change ? 0 : 1)
    }
})

test('goal: rules are read of tables with a chain that forwards or takes packets, not of ours and not of all', () => {
  const at = (table: string, hook?: string) => ({ chain: { ...base, table, hook } })
  const items = [at('a', 'forward'), at('a', 'input'), at('b', 'output'), at('c'), at('ours', 'input')]
  expect(tablesToRead(items, ['ours'])).toEqual([{ family: 'inet', table: 'a' }])
  expect(
    tablesToRead(
      Array.from({ length: 900 }, (_, n) => at(`t${n}`, 'input')),
      [],
    ),
  ).toHaveLength(16)
})
