// Rules for any appliance after any crash, seen from outside. Effects: reads, requests to the operator's socket.

import { Database } from 'bun:sqlite'
import { join } from 'node:path'
import type { AdminLeaks } from '../../src/contract/admin/admin.ts'
import type { Appliance } from '../rigs/appliance.ts'
import { type Holdings, holdings } from '../rigs/leftovers.ts'
import type { Findings } from './scenario.ts'

/** The daemon's own comparison of its ledger with the host. */
export async function leaksOf({ stateDir }: Appliance): Promise<Findings> {
  const response = await fetch('http://operator/leaks', { unix: join(stateDir, 'admin.sock') })
  if (!response.ok) return [`the leaks cannot be asked for: ${response.status}`]
  const { leaks } = (await response.json()) as AdminLeaks
  return leaks.map(({ kind, name, detail }) => `${detail} ${kind} ${name}`)
}

/** Faults of the database file itself, and rows that it has twice. */
export function databaseFindings({ stateDir }: Pick<Appliance, 'stateDir'>): Findings {
  using db = new Database(join(stateDir, 'strongroom.db'), { readonly: true })
  const rows = db.query<{ integrity_check: string }, []>('PRAGMA integrity_check').all()
  const broken = db.query<{ table: string }, []>('PRAGMA foreign_key_check').all()
  return [
    ...rows.map(row => row.integrity_check).filter(text => text !== 'ok'),
    ...broken.map(row => `a row of ${row.table} refers to none`),
    ...DOUBLES.flatMap(({ what, sql }) =>
      db
        .query<{ name: string }, []>(sql)
        .all()
        .map(({ name }) => `${what}: ${name}`),
    ),
  ]
}

/** Queries for what must not be there, each with one column `name`. */
const DOUBLES: readonly { readonly what: string; readonly sql: string }[] = [
  {
    what: 'an instance has come to a status twice, and its hours may be billed twice',
    sql: "SELECT instance_id || ' ' || status AS name FROM instance_changes GROUP BY 1 HAVING count(*) > 1",
  },
  {
    what: 'two instances have one VM',
    sql: 'SELECT vm_id AS name FROM instances WHERE vm_id IS NOT NULL GROUP BY 1 HAVING count(*) > 1',
  },
  {
    what: 'an event is on record twice',
    sql: `SELECT kind || ' ' || subject AS name FROM events WHERE subject <> '' AND kind IN ('instance.accepted', 'instance.ready',
      'instance.terminated', 'vm.launching', 'vm.booting', 'vm.running', 'vm.stopping', 'vm.gone') GROUP BY 1 HAVING count(*) > 1`,
  },
  {
    what: 'a VM that is gone has a resource',
    sql: "SELECT resources.kind || ' ' || resources.name AS name FROM resources JOIN vms ON vms.id = resources.vm_id WHERE vms.state = 'gone'",
  },
]

/** Paths below the state directory, those of VMs and builds with their ids left out. */
export function filesOf({ stateDir }: Pick<Appliance, 'stateDir'>): Set<string> {
  const found = [...new Bun.Glob('**/*').scanSync({ cwd: stateDir, dot: true, onlyFiles: true })]
  return new Set(found.map(path => path.replace(/[0-9a-f]{8}-[0-9a-f-]{27}/g, 'ID')))
}

/** Files of a kind that no run without a crash has left. */
export function strayFiles(appliance: Pick<Appliance, 'stateDir'>, usual: ReadonlySet<string>): Findings {
  return [...filesOf(appliance)].filter(path => !usual.has(path)).map(path => `the file ${path} was left`)
}

/** Whether the host has what so many VMs have, each with a QEMU, and nothing else. */
export function holdingFindings({ stateDir }: Appliance, vmCount: number): Findings {
  const held = holdings(stateDir)
  const expected: Record<keyof Holdings, number> = {
    taps: vmCount,
    directories: vmCount,
    routes: vmCount * routesPerVm,
    processes: vmCount * processesPerVm,
    nftObjects: vmCount,
  }
  // Quotas and counters are called after the VM's tap.
  const found: Holdings = { ...held, nftObjects: [...new Set(held.nftObjects.map(name => name.split('_')[0] ?? ''))] }
  return KINDS.flatMap(kind => {
    const [has, count] = [found[kind], expected[kind]]
    return has.length === count ? [] : [`${has.length} ${kind} where ${count} belong: ${has.join(' ')}`]
  })
}

/** QEMU and swtpm. */
const processesPerVm = 2
/** On the host by the link, in the namespace of VMs by the tap. */
const routesPerVm = 2
const KINDS = ['taps', 'directories', 'routes', 'processes', 'nftObjects'] as const
