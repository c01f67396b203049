// Goal: firewalls as Docker, ufw, firewalld and people write them are read from the real nft and iptables. Their drops
// of instances' packets are reported with commands that help, and the model agrees with the kernel. Needs root; runs in
// a namespace of its own.

import { afterEach, expect, test } from 'bun:test'
import { plan } from '../../../scripts/rigs/guest/two-guests.ts'
import { createNetns, inOwnNetns } from '../../../scripts/rigs/netns.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { inTurns, runToEnd } from '../../../src/base/work/turns.ts'
import { createNft } from '../../../src/host/network/nft.ts'
import { lookAtFirewalls } from '../../../src/vm/foreign-firewalls/foreign.driver.ts'
import { type FirewallSite, foreignDrops } from '../../../src/vm/foreign-firewalls/foreign.plan.ts'
import { rulesetText } from '../../../src/vm/network/nft.plan.ts'

const timeoutMs = 30_000

const site: FirewallSite = {
  tapPrefix: 'sr',
  pool: '10.88.0.0/24',
  gateway: '169.254.88.1',
  uplink: 'up0',
  services: [{ name: 'service A', protocol: 'tcp', port: 8441 }],
  guestPorts: [8442],
  v6: null,
  guestDnsPort: null,
  gatewayVmPort: null,
}
const own = new Set(['strongroom', 'strongroom_guard'])

function sh(text: string): void {
  const { exitCode, stdout, stderr } = Bun.spawnSync(['sh', '-ec', text])
  if (exitCode !== 0) throw new Error(`${text}: ${stdout}${stderr}`)
}
const nft = (text: string) => sh(`nft --file - <<'END'\n${text}\nEND`)

async function drops(change: Partial<FirewallSite> = {}) {
  const { chains, unread } = await lookAtFirewalls({ timeoutMs, outputBytesMax: 1_048_576 })
  expect(unread).toEqual([])
  return runToEnd(foreignDrops(chains, { ...site, ...change }, own))
}
const summary = async () =>
  (await drops()).map(({ chain, kind, drops, unsure }) => [chain, kind, drops.length, unsure.length])
const causes = async () => (await drops()).map(({ cause }) => cause)

inOwnNetns(
  import.meta.path,
  () => {
    afterEach(() => sh('nft flush ruleset'))

    test('goal: without other firewalls nothing is dropped; our own table is no foreign one', async () => {
      expect(await drops()).toEqual([])
      await createNft({ table: 'strongroom', log: silentLogger }).applyRuleset(rulesetText(plan()), timeoutMs)
      expect(await drops()).toEqual([])
    })

    test('goal: Docker drops what is not its own; the chain that it keeps for others lets ours pass', async () => {
      sh(`iptables -P FORWARD DROP; iptables -N DOCKER-USER; iptables -A FORWARD -j DOCKER-USER; iptables -A DOCKER-USER -j RETURN
        iptables -N DOCKER-ISOLATION-STAGE-1; iptables -A FORWARD -j DOCKER-ISOLATION-STAGE-1
        iptables -A DOCKER-ISOLATION-STAGE-1 -i docker0 ! -o docker0 -j DROP
        iptables -A FORWARD -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
        iptables -A FORWARD -i docker0 ! -o docker0 -j ACCEPT; iptables -A FORWARD -i docker0 -o docker0 -j ACCEPT`)
      expect(await summary()).toEqual([['ip filter FORWARD', 'instances', 4, 0]])
      const [found] = await drops()
      expect(found?.cause).toBe('policy drop of ip filter FORWARD')
      expect(found?.remedy).toStartWith(
        'iptables --table filter --insert DOCKER-USER --in-interface sr+ --jump ACCEPT; iptables',
      )
      sh(found?.remedy.replace(/; keep .*/, '') ?? '')
      expect(await drops()).toEqual([])
    })

    test('goal: the same of IPv6 is found in ip6tables, in tables of both families and of its own, and only if there is a pool of it', async () => {
      const v6 = { pool: '2001:db8:88::/64', gateway: 'fd73::1', guestPorts: [8442] }
      const both = async () => (await drops({ v6 })).map(({ chain, drops, unsure }) => [chain, drops, unsure])
      sh(`ip6tables -P FORWARD DROP; ip6tables -A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
        ip6tables -A FORWARD -d 2001:db8:88::/48 -p tcp --dport 22 -j ACCEPT; ip6tables -A FORWARD -s fd00::/8 -j ACCEPT`)
      expect(await drops()).toEqual([])
      expect(await both()).toEqual([['ip6 filter FORWARD', ['what instances send by IPv6'], []]])
      const [found] = await drops({ v6 })
      expect(found?.remedy).toStartWith('ip6tables --table filter --insert FORWARD --in-interface sr+ --jump ACCEPT; ')
      sh(found?.remedy.replace(/; keep .*/, '') ?? '')
      expect(await both()).toEqual([])
      sh('nft flush ruleset')
      nft(`table ip6 own { chain i { type filter hook input priority 0; policy drop; ip6 saddr 2001:db8:88::/64 tcp dport 22 accept; }; }
        table inet fw { chain f { type filter hook forward priority 0; policy drop; ip daddr 10.88.0.0/16 accept; ip saddr 10.88.0.0/16 accept; ip6 daddr 2001:db8::/32 accept; }; }`)
      expect(await both()).toEqual([
        ['ip6 own i', ['instances to port 8442 of this host by IPv6'], []],
        // The peers of instances are unknown.
        ['inet fw f', [], ['answers of their SSH by IPv6', 'what instances send by IPv6']],
      ])
    })

    test('goal: ufw lets answers pass and drops the rest, the ports of our services too', async () => {
      sh(`iptables -P FORWARD DROP; iptables -P INPUT DROP
        for c in ufw-before-forward ufw-before-input ufw-user-input; do iptables -N $c; done
        iptables -A FORWARD -j ufw-before-forward; iptables -A INPUT -j ufw-before-input
        iptables -A ufw-before-forward -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
        iptables -A ufw-before-forward -p icmp --icmp-type echo-request -j ACCEPT
        iptables -A ufw-before-input -i lo -j ACCEPT; iptables -A ufw-before-input -j ufw-user-input
        iptables -A ufw-user-input -p tcp --dport 22 -j ACCEPT`)
      expect(await summary()).toEqual([
        ['ip filter INPUT', 'instances', 1, 0],
        ['ip filter INPUT', 'services', 1, 0],
        ['ip filter FORWARD', 'instances', 2, 0],
      ])
      const [input, services, forward] = await drops()
      expect(forward?.drops).toEqual(['SSH to instances', 'what instances send'])
      expect(forward?.remedy).toContain('"-A ufw-before-forward -i sr+ -j ACCEPT"')
      expect(services?.remedy).toBe('ufw allow 8441/tcp')
      // The very lines that it names, as ufw would load them.
      const lines = [input, forward].flatMap(drop => drop?.remedy.match(/-A [^"]+/g) ?? [])
      for (const line of [...lines, '-A ufw-user-input -p tcp --dport 8441 -j ACCEPT'])
        sh(`iptables ${line.replace('-A', '-I')}`)
      expect(await drops()).toEqual([])
    })

    test('goal: firewalld rejects what no zone lets pass', async () => {
      nft(`table inet firewalld {
        chain filter_FORWARD {
          type filter hook forward priority 10; policy accept;
          ct state { established, related } accept
          ct status dnat accept
          iifname "lo" accept
          ct state invalid drop
          jump filter_FORWARD_ZONES
          reject with icmpx admin-prohibited
        }
        chain filter_FORWARD_ZONES { goto filter_FWD_public
        }
        chain filter_FWD_public { iifname "docker0" accept
        }
      }`)
      expect(await summary()).toEqual([['inet firewalld filter_FORWARD', 'instances', 2, 0]])
      expect(await causes()).toEqual(['rule 6 of inet firewalld filter_FORWARD'])
      expect((await drops())[0]?.remedy).toStartWith('firewall-cmd --permanent --zone=trusted --add-interface=sr+; ')
    })

    test('goal: a hand-made ruleset is judged by all of its forms, and the commands that are named help', async () => {
      nft(`table inet fw {
        set blocked { type ipv4_addr; elements = { 192.0.2.1 }
        }
        chain forward {
          type filter hook forward priority 0; policy drop;
          ct state vmap { invalid : drop, established : accept, related : accept }
          icmp type echo-request limit rate 5/second accept
          meta nfproto ipv6 accept
          tcp dport { 80, 8000-9000 } accept
          iifname { "eth7", "wg*" } accept
          udp dport 53 accept
        }
        chain input {
          type filter hook input priority 0; policy drop;
          ct state established,related accept
          iif "lo" accept
          ip saddr 10.0.0.0/8 tcp dport 8441 accept
          ip saddr @blocked drop
        }
      }`)
      // Instances have addresses of 10.0.0.0/8; of clients nobody knows.
      expect(await summary()).toEqual([
        ['inet fw forward', 'instances', 2, 0],
        ['inet fw input', 'instances', 1, 0],
        ['inet fw input', 'services', 0, 1],
      ])
      for (const { remedy } of await drops()) sh(remedy.replace(/; keep .*/, ''))
      expect(await drops()).toEqual([])
    })

    test('goal: rules that ban addresses by their rate are no certain drop', async () => {
      nft(`table inet bans {
        set banned { type ipv4_addr; flags dynamic, timeout; timeout 1h;
        }
        chain forward {
          type filter hook forward priority 0; policy accept;
          ip saddr @banned drop
          tcp dport 22 ct state new add @banned { ip saddr limit rate over 4/minute } drop
          tcp dport 443 meter busy { ip saddr limit rate over 4/minute } drop
        }
      }`)
      expect(await summary()).toEqual([['inet bans forward', 'instances', 0, 4]])
    })

    test('goal: drops before forwarding count; other hooks, families and offered translation do not', async () => {
      nft(`table ip raw { chain pre { type filter hook prerouting priority raw; policy accept; iifname "sr*" drop
      }
      }
      table ip6 f { chain forward { type filter hook forward priority 0; policy drop; }
      }
      table ip n { chain pre { type nat hook prerouting priority dstnat; policy accept; tcp dport 80 redirect to :8080
      }
      }
      table inet o { chain out { type filter hook output priority 0; policy drop; }
      }`)
      expect(await summary()).toEqual([['ip raw pre', 'instances', 3, 0]])
    })

    test('goal: thousands of rules hold this thread for short turns only, and more of them are said to be unread', async () => {
      const rules = Array.from({ length: 3_000 }, (_, n) => `ip saddr 198.18.${n >> 8}.${n & 255} drop`)
      nft(
        `table inet bans { chain forward { type filter hook forward priority 0; policy accept;\n${rules.join('\n')}\n}\n}`,
      )
      let longestMs = 0
      let sinceMs = performance.now()
      let isOver = false
      const watching = (async () => {
        while (!isOver) {
          await new Promise<void>(resolve => setImmediate(resolve))
          longestMs = Math.max(longestMs, performance.now() - sinceMs)
          sinceMs = performance.now()
        }
      })()
      const { chains, unread } = await lookAtFirewalls({ timeoutMs, outputBytesMax: 1_048_576 })
      const found = await inTurns(foreignDrops(chains, site, own))
      isOver = true
      await watching
      expect([unread, found.map(found => [found.drops.length, found.unsure.length])]).toEqual([[], [[0, 2]]])
      // In one turn it takes ten times as long.
      expect(longestMs).toBeLessThan(150)
      const bounded = await lookAtFirewalls({ timeoutMs, outputBytesMax: 65_536 })
      expect([bounded.chains, bounded.unread]).toEqual([[], ['nft: wrote more than 65536 bytes']])
    })

    test('goal: the kernel does with packets what the model says', async () => {
      using world = createNetns()
      using guest = createNetns()
      const port = 22
      sh(`
        ip link add up0 type veth peer name eth0 netns ${world.name}; ip link add sr1 type veth peer name eth0 netns ${guest.name}
        ip link set up0 up; ip link set sr1 up; ip address add 192.0.2.1/24 dev up0; ip address add 169.254.88.1/32 dev sr1
        ip route add 10.88.0.2/32 dev sr1; echo 1 > /proc/sys/net/ipv4/ip_forward
        ip -netns ${world.name} address add 192.0.2.9/24 dev eth0; ip -netns ${world.name} link set eth0 up
        ip -netns ${world.name} route add default via 192.0.2.1
        ip -netns ${guest.name} address add 10.88.0.2/32 dev eth0; ip -netns ${guest.name} link set eth0 up
        ip -netns ${guest.name} route add 169.254.88.1 dev eth0 scope link; ip -netns ${guest.name} route add default via 169.254.88.1`)
      const server = Bun.spawn(
        guest.argv([
          process.execPath,
          '-e',
          `Bun.listen({ hostname: '10.88.0.2', port: ${port}, socket: { data() {} } }); console.log('up')`,
        ]),
        { stdout: 'pipe' },
      )
      try {
        await server.stdout.getReader().read()
        const connects = async () => {
          const code = `const { connect } = require('node:net'); const s = connect({ host: '10.88.0.2', port: ${port} })
            s.on('connect', () => process.exit(0)).on('error', () => process.exit(1)); setTimeout(() => process.exit(1), 400)`
          return (await Bun.spawn(world.argv([process.execPath, '-e', code])).exited) === 0
        }
        for (const rules of [
          '',
          'policy drop;',
          'ct state established accept; drop',
          'iifname "up0" tcp dport 22 accept; ct state established accept; drop',
          'jump sub; drop',
          'goto sub; drop',
          'tcp dport vmap { 22 : goto sub, 23 : drop }; drop',
          'ip daddr 10.88.0.0/25 accept; ip saddr 10.88.0.0/24 accept; drop',
          'oifname != "sr*" iifname != "sr*" accept; drop',
          'tcp dport 1-21 accept; tcp dport 23-65535 accept; reject',
          'ct state { new, established } accept; drop',
          'meta l4proto udp accept; ip protocol { icmp, tcp } accept; drop',
        ]) {
          const body = rules.startsWith('policy') ? rules : `policy accept; ${rules}`
          nft(
            `flush ruleset
            table inet fw { chain sub { ct state { new, established } return; }
            chain forward { type filter hook forward priority 0; ${body}\n }
            }`.replaceAll(';', '\n'),
          )
          const { chains } = await lookAtFirewalls({ timeoutMs, outputBytesMax: 1_048_576 })
          const told = runToEnd(foreignDrops(chains, { ...site, pool: '10.88.0.2/32', uplink: 'up0' }, own))
          const names = told.flatMap(drop => [...drop.drops, ...drop.unsure])
          const isReachable = !names.includes('SSH to instances') && !names.includes('answers of their SSH')
          expect([rules, isReachable]).toEqual([rules, await connects()])
        }
      } finally {
        server.kill('SIGKILL')
        await server.exited
      }
    })
  },
  { timeoutMs: 60_000 },
)
