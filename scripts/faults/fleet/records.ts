// Records and things of the hosts of a fleet and of its directory, read beside them for a checker. Effects: reads
// databases and files.

import { Database } from 'bun:sqlite'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { databaseFile } from '../../../src/host/state-files.ts'
import { FOLDERS } from '../../rigs/fleet/ledger-vms.ts'
import type { UsageRow } from './expected.ts'
import type { FaultedFleet, FaultedHost } from './faulted-fleet.ts'

/** Columns of a copied table that all hosts and the directory have the same. */
const COPIED = {
  organizations: ['id', 'status', 'budget_nano_usd'],
  keys: ['prefix', 'revoked_at_ms'],
  instances: [
    ...['id', 'name', 'host_id', 'attempt', 'desired', 'status', 'egress_bytes'],
    ...['failure_code', 'terminated_reason', 'created_at_ms', 'ready_at_ms', 'terminated_at_ms'],
  ],
  instance_changes: ['instance_id', 'status', 'at_ms'],
  instance_attestations: ['instance_id', 'nonce'],
  instance_addresses: ['instance_id', 'address'],
  idempotency: ['organization_id', 'key', 'response_status', 'response_data'],
  gateway_keys: ['prefix', 'budget_nano_usd', 'revoked_at_ms'],
  usage_months: ['month', 'key_prefix', 'host_id', 'requests', 'prompt_tokens', 'cost_nano_usd'],
  usage_days: ['day', 'key_prefix', 'host_id', 'requests', 'prompt_tokens', 'cost_nano_usd'],
} as const satisfies Readonly<Record<string, readonly string[]>>

type CopiedTable = keyof typeof COPIED
const TABLES = Object.keys(COPIED) as CopiedTable[]

/** Lines of each table, in order. */
export type Copied = ReadonlyMap<string, readonly string[]>

/** Sums of one host by month and key; the key `''` is the organization's. */
export type Sums = ReadonlyMap<string, { readonly requests: number; readonly cost: number }>

export type HostRecords = {
  readonly copied: Copied
  /** Rows of its own ledger. */
  readonly usage: readonly UsageRow[]
  /** All hosts' as this one has them, by `month key host`. */
  readonly sums: Sums
  /** By the instance: its address in the copy. */
  readonly addresses: ReadonlyMap<string, string>
  /** Its own instances that have a VM. A failed one keeps the id of a VM that has ended. */
  readonly vms: readonly { readonly instanceId: string; readonly name: string; readonly vmId: string }[]
  /** VMs of earlier attempts that it has to end. */
  readonly leftVms: number
  /** By the VM: what its ledger says was made for it. */
  readonly things: ReadonlyMap<string, Readonly<Record<string, string>>>
}

const USAGE = `SELECT id, strftime('%Y-%m', at_ms / 1000, 'unixepoch') AS month, key_prefix AS key, cost_nano_usd AS cost
  FROM usage ORDER BY rowid`

/** Rows of a ledger, in the order in which they were booked. */
export function usageIn(path: string): UsageRow[] {
  using sqlite = new Database(path, { readonly: true })
  sqlite.run('PRAGMA busy_timeout = 10000')
  return sqlite.query<UsageRow, []>(USAGE).all()
}

/** Sums of all that a host has reported, by `month key`. */
export async function reportedUsage(fleet: FaultedFleet, { id }: FaultedHost): Promise<Sums> {
  const text = await fleet.sql(`SELECT month || ' ' || key_prefix, sum(requests), sum(cost_nano_usd)
    FROM strongroom.usage_months WHERE key_prefix <> '' AND split_part(host_id, '/', 1) = '${id}' GROUP BY 1`)
  const lines = text.split('\n').filter(Boolean)
  return new Map(
    lines.map(line => {
      const [name = '', requests, cost] = line.split('|')
      return [name, { requests: Number(requests), cost: Number(cost) }]
    }),
  )
}

/** A copy of a running host's database. */
export function copyRecords({ directory }: FaultedHost, path: string): void {
  using sqlite = new Database(join(directory, databaseFile))
  sqlite.run('PRAGMA busy_timeout = 10000')
  sqlite.query('VACUUM INTO ?1').run(path)
}

export function recordsOf({ id: hostId, directory }: FaultedHost): HostRecords {
  using sqlite = new Database(join(directory, databaseFile), { readonly: true })
  sqlite.run('PRAGMA busy_timeout = 10000')
  const rows = <Row>(text: string, ...values: string[]) => sqlite.query<Row, string[]>(text).all(...values)
  const things = new Map<string, Record<string, string>>()
  for (const { vm_id: vmId, kind, name } of rows<{ vm_id: string; kind: string; name: string }>(
    'SELECT vm_id, kind, name FROM resources',
  )) {
    things.set(vmId, { ...things.get(vmId), [kind]: name })
  }
  const lines = (text: string) => rows<{ line: string }>(text).map(({ line }) => line)
  return {
    copied: new Map(TABLES.map(table => [table, lines(`${lineOf(table)} FROM ${table}`).sort()])),
    usage: rows<UsageRow>(USAGE),
    sums: new Map(
      rows<{ month: string; key: string; host: string; requests: number; cost: number }>(
        'SELECT month, key_prefix AS key, host_id AS host, requests, cost_nano_usd AS cost FROM usage_months',
      ).map(({ month, key, host, requests, cost }) => [`${month} ${key} ${host}`, { requests, cost }]),
    ),
    addresses: new Map(
      rows<{ id: string; address: string }>('SELECT instance_id AS id, address FROM instance_addresses').map(
        ({ id, address }) => [id, address],
      ),
    ),
    vms: rows<{ instanceId: string; name: string; vmId: string }>(
      `SELECT id AS instanceId, name, vm_id AS vmId FROM instances
       WHERE host_id = ? AND vm_id IS NOT NULL AND status <> 'failed' ORDER BY vm_id`,
      hostId,
    ),
    leftVms: rows('SELECT vm_id FROM left_vms').length,
    things,
  }
}

/** The same of the directory. */
export async function directoryOf(fleet: FaultedFleet): Promise<Copied> {
  const found = new Map<string, string[]>()
  for (const table of TABLES) {
    const text = await fleet.sql(`${lineOf(table, table === 'instances' ? SAMPLED : {})} FROM strongroom.${table}`)
    found.set(table, text.split('\n').filter(Boolean).sort())
  }
  return found
}

/** Columns that the directory has in a table of its own, which hosts read into their copies. */
const SAMPLED: Readonly<Record<string, string>> = {
  egress_bytes: `greatest(egress_bytes,
    (SELECT max(bytes) FROM strongroom.instance_egress AS sample WHERE sample.instance_id = instances.id))`,
}

/** `instead`: an expression for a column of that name. */
function lineOf(table: CopiedTable, instead: Readonly<Record<string, string>> = {}): string {
  const columns = COPIED[table].map(column => `coalesce(CAST(${instead[column] ?? column} AS text), '-')`)
  return `SELECT ${columns.join(" || ' ' || ")} AS line`
}

/** Lines that only one of them has, for a failing test. */
export function differences(a: Copied, b: Copied): string[] {
  return TABLES.flatMap(table => {
    const [inA, inB] = [a.get(table) ?? [], b.get(table) ?? []]
    const [setA, setB] = [new Set(inA), new Set(inB)]
    const only = [
      ...inA.filter(line => !setB.has(line)).map(line => `lacks ${line}`),
      ...inB.filter(line => !setA.has(line)).map(line => `has ${line}`),
    ]
    return only.slice(0, 10).map(line => `${table}: ${line}`)
  })
}

/** Things of VMs that a host has, by kind: names, with the VM where the thing says whose it is. */
export function thingsOn({ directory }: FaultedHost): Readonly<Record<string, readonly string[]>> {
  const names = (kind: keyof typeof FOLDERS) => readdirSync(join(directory, FOLDERS[kind])).sort()
  const owned = (kind: keyof typeof FOLDERS) =>
    names(kind).map(name => `${name} ${readFileSync(join(directory, FOLDERS[kind], name), 'utf8')}`)
  return { qemu: names('qemu'), tap: owned('tap'), nft: names('nft'), address: owned('address') }
}

/** The same, as its ledger and its instances say. */
export function thingsDue({ things, vms }: HostRecords): Readonly<Record<string, readonly string[]>> {
  const of = (kind: string) => vms.map(({ vmId }) => [things.get(vmId)?.[kind] ?? 'none', vmId] as const)
  const owned = (kind: string) =>
    of(kind)
      .map(([name, vmId]) => `${name} ${vmId}`)
      .sort()
  const names = (kind: string) =>
    of(kind)
      .map(([name]) => name)
      .sort()
  return { qemu: names('qemu'), tap: owned('tap'), nft: names('nft'), address: owned('address') }
}

/** Sums that follow from one host's rows. */
export function sumsOf(hostId: string, usage: readonly UsageRow[]): Sums {
  const sums = new Map<string, { requests: number; cost: number }>()
  for (const { month, key, cost } of usage) {
    for (const name of [`${month} ${key} ${hostId}`, `${month}  ${hostId}`]) {
      const sum = sums.get(name) ?? { requests: 0, cost: 0 }
      sums.set(name, { requests: sum.requests + 1, cost: sum.cost + cost })
    }
  }
  return sums
}
