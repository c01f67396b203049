// strongroom fleet init, join and migrate: a directory for a fleet, this host in it, its schema. Effects: statements to
// the database.

import { systemClock } from '../../base/clock.ts'
import { databaseText, parseDatabaseUrl } from '../../config/fleet/database-url.ts'
import type { PostgresTarget } from '../../fleet/driver.ts'
import { InputFault } from '../../terminal/exit.ts'
import { readTextInput } from '../../terminal/input-file.ts'
import type { Command, Run } from '../operator-run.ts'
import type { Entered, MemberParts } from './members.ts'

export type OwnerOptions = { readonly as?: string; readonly asPasswordFile?: string }

const passwordBytesMax = 4_096

export function addMembership(fleet: Command): void {
  owned(fleet.command('init'))
    .description(
      'create the directory of a new fleet in the configured database from the records of this host, its first. The service may run; if interrupted, run it again',
    )
    .examples('strongroom fleet init', 'strongroom fleet init --as postgres://owner@db.example/fleet')
    .runs(async (run, options: OwnerOptions) => {
      const parts = await partsOf(run, options)
      const { initFleet } = await import('./members.ts')
      await report(run, parts.target, await initFleet(parts))
    })
  owned(fleet.command('join'))
    .description('add this host to the fleet in the configured database')
    .examples('strongroom fleet join', 'strongroom fleet join --as postgres://owner@db.example/fleet')
    .runs(async (run, options: OwnerOptions) => {
      const parts = await partsOf(run, options)
      const { joinFleet } = await import('./members.ts')
      await report(run, parts.target, await joinFleet(parts))
    })
  owned(fleet.command('rebind'))
    .description(
      'bind a host to another database role, or to the next key that it publishes; for a host that was restored from its backup',
    )
    .argument('<host>', 'its name in the fleet')
    .option('--role <role>', 'the new database role of the host')
    .examples('strongroom fleet rebind rack-1 --as postgres://owner@db.example/fleet')
    .runs(async (run, name: string, options: OwnerOptions & { readonly role?: string }) => {
      const { target, owner } = await partsOf(run, options)
      const { rebindAs } = await import('./members.ts')
      const bound = await rebindAs(owner ?? target, { name, role: options.role ?? null })
      const text = `${bound.name} signs in as ${bound.role}; it is bound to the next key that it publishes.\n`
      await run.result(bound, text)
    })
  fleet
    .command('leave')
    .description('turn the last host of a fleet into a standalone host; the service must be stopped')
    .examples('strongroom fleet leave')
    .runs(async run => {
      const parts = await partsOf(run, {})
      const { leaveFleet } = await import('./members.ts')
      const rows = await leaveFleet(parts)
      const text = `${rows} rows are the same here and in the directory; they are this host's own now.\nSet fleet.database to "" and start the service.\n`
      await run.result({ rows }, text)
    })
  owned(fleet.command('migrate'))
    .description(
      'upgrade the directory to the schema of this executable; every host must run the release before it or newer',
    )
    .examples('strongroom fleet migrate --as postgres://owner@db.example/fleet')
    .runs(async (run, options: OwnerOptions) => {
      const { target, owner } = await partsOf(run, options)
      const { migrateAs } = await import('./members.ts')
      const steps = await migrateAs(owner ?? target)
      const text = steps.length === 0 ? 'the directory has the newest schema' : `applied: ${steps.join(', ')}`
      await run.result({ applied: steps }, `${text}\n`)
    })
}

/** With the options that name the role that owns the database. */
export function owned(command: Command): Command {
  command
    .option('--as <url>', 'database address with the role that owns it, if the configured role does not')
    .option('--as-password-file <file>', 'file with the password of that role; - for standard input')
  return command
}

/** Returns the role that `--as` names; null if it is absent. */
export async function ownerIn(run: Run, options: OwnerOptions): Promise<PostgresTarget | null> {
  if (options.as === undefined) return null
  const { requiredTarget } = await import('./direct.ts')
  return await ownerOf(options, await requiredTarget(run))
}

async function partsOf(run: Run, options: OwnerOptions): Promise<MemberParts> {
  const [{ requiredTarget }, { fleetName }] = await Promise.all([
    import('./direct.ts'),
    import('../../fleet/target.ts'),
  ])
  const target = await requiredTarget(run)
  const name = fleetName((await run.config()).config)
  return { target, owner: await ownerOf(options, target), name, stateDir: run.stateDir, clock: systemClock }
}

/** By the same TLS as the host's own role. */
async function ownerOf({ as, asPasswordFile }: OwnerOptions, target: PostgresTarget): Promise<PostgresTarget | null> {
  if (as === undefined) return null
  const parsed = parseDatabaseUrl(as)
  const remedy = 'see `strongroom help fleet`'
  if (!parsed.ok) throw new InputFault(`--as ${parsed.problem}`, { remedy })
  const { address } = parsed
  if (address.host !== target.host || address.port !== target.port || address.database !== target.database) {
    const message = `--as names ${databaseText(address)}, another database than fleet.database (${databaseText(target)})`
    throw new InputFault(message, { remedy: 'give the same host, port and database, with another user' })
  }
  const password =
    asPasswordFile === undefined
      ? null
      : readTextInput({ path: asPasswordFile, param: 'as-password-file', bytesMax: passwordBytesMax })
  return { ...target, user: address.user, password: password?.replace(/\r?\n$/, '') ?? address.password }
}

async function report(run: Run, target: PostgresTarget, { name, hostId, applied }: Entered): Promise<void> {
  const database = databaseText(target)
  const steps = applied.length === 0 ? '' : ` Schema: ${applied.join(', ')}.`
  const text = `${name} is a host of the fleet in ${database}.${steps}\nStart or restart the service for it to take part.\n`
  await run.result({ name, host_id: hostId, database, applied }, text)
}
