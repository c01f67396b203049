// Goal: an appliance beside a firewall that drops forwarded packets reports it in status, metrics and journal, from
// its start on. A whole appliance in its own namespace, without VMs. Needs root.

import { afterAll, expect, test } from 'bun:test'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { inOwnNetns } from '../../scripts/rigs/netns.ts'
import { until } from '../../scripts/rigs/until.ts'
import { serve } from '../../src/appliance/appliance.ts'
import { silentLogger } from '../../src/base/log.ts'
import { defaultConfig } from '../../src/config/load.ts'
import type { AdminStatus } from '../../src/contract/admin/admin.ts'
import { openStore } from '../../src/store/db.ts'
import { listEvents } from '../../src/store/ledger/event.query.ts'

const timeoutMs = 60_000
const stateDir = mkdtempSync(join(tmpdir(), 'srt-cut-off-'))
afterAll(() => rmSync(stateDir, { recursive: true }))

inOwnNetns(
  import.meta.path,
  () => {
    test('goal: status is not ready, metrics count it, and the journal has it', async () => {
      const uplink =
        'ip link add up0 type veth peer name up1; ip link set up0 up; ip link set up1 up; ip address add 192.0.2.1/24 dev up0'
      Bun.spawnSync(['sh', '-c', `${uplink}; ip route add default via 192.0.2.9`])
      Bun.spawnSync([
        'nft',
        'add table ip f; add chain ip f forward { type filter hook forward priority 0; policy drop; }',
      ])
      const listen = { instances: '127.0.0.1:0', inference: '', builds: '', dns: '', console: '', metrics: '' }
      const serving = await serve(
        { ...defaultConfig(), platform: 'tcg', listen },
        { stateDir, log: silentLogger, onTrial: false },
      )
      try {
        const ask = (path: string) => fetch(`http://operator${path}`, { unix: serving.adminSocket })
        const problems = async () => {
          const { problems } = (await (await ask('/status')).json()) as AdminStatus
          return problems.filter(({ name }) => name === 'firewall')
        }
        await until('it has looked', timeoutMs, async () => (await problems()).length > 0)
        expect(await problems()).toMatchObject([
          {
            severity: 'critical',
            detail:
              'a firewall of this host drops SSH to instances and what instances send (nftables, chain forward of table ip f)',
            remedy: expect.stringContaining('nft insert rule ip f forward iifname sr-vms accept`;'),
          },
        ])
        expect(await (await ask('/metrics')).text()).toContain('\nstrongroom_foreign_firewall_drops 2\n')
      } finally {
        await serving.stop()
      }
      const store = openStore(join(stateDir, 'strongroom.db'))
      expect(listEvents(store.ledger.db, { limit: 10 }).map(event => event.kind)).toContain('host.cut_off')
      store.close()
    })
  },
  { timeoutMs },
)
