// strongroom console: opens the console for a browser, shows and ends its sessions, shows and removes passkeys.
// Effects: requests to the daemon.

import { Option } from 'commander'
import {
  AdminConsoleClosed,
  AdminConsoleLink,
  type AdminConsoleSession,
  AdminConsoleSessionList,
  type AdminPasskey,
  AdminPasskeyList,
} from '../../contract/admin/console.ts'
import { ADMIN_ROLES, type AdminRole } from '../../contract/admin/roles.ts'
import { dash, oneLine, type Paint, table, timeText } from '../../terminal/render.ts'
import { type Command, path, type Run } from '../operator-run.ts'

export function addConsole(program: Command): void {
  const console = program
    .command('console')
    .description('the console for browsers: open it, sessions, close, passkeys')
    .examples('strongroom console open', 'strongroom console sessions')
  console
    .command('open')
    .description('print a link that logs one browser in, once, within a minute')
    .option('--as <name>', 'log in another administrator of the configuration; requires the role admin')
    .addOption(new Option('--role <role>', 'fewer rights than yours').choices(ADMIN_ROLES))
    .examples('strongroom console open', 'strongroom console open --as alice --role auditor')
    .runs(open)
  console
    .command('sessions')
    .description('list the sessions of the console, with start and end')
    .examples('strongroom console sessions')
    .runs(async run => {
      await run.show({ path: '/console/sessions', response: AdminConsoleSessionList }, ({ sessions }, paint) =>
        sessionsText(sessions, paint),
      )
    })
  console
    .command('close')
    .description('end your sessions of the console, and links that have not been opened; passkeys stay')
    .option('--as <name>', 'sessions of another administrator; requires the role admin')
    .option('--all', 'sessions of all administrators; requires the role admin')
    .examples('strongroom console close', 'strongroom console close --all')
    .runs(async (run, { as, all }: { as?: string; all?: boolean }) => {
      const body = { ...(as === undefined ? {} : { as }), ...(all === undefined ? {} : { all }) }
      await run.show(
        { method: 'POST', path: '/console/close', body, response: AdminConsoleClosed },
        ({ sessions }) => `${sessions} ended\n`,
      )
    })
  addPasskeys(console)
}

function addPasskeys(console: Command): void {
  const passkey = console
    .command('passkey')
    .description('passkeys of the console: list, remove; a browser adds them')
    .examples('strongroom console passkey list')
  passkey
    .command('list')
    .description('list passkeys')
    .examples('strongroom console passkey list')
    .runs(async run => {
      await run.show({ path: '/console/passkeys', response: AdminPasskeyList }, passkeysText)
    })
  passkey
    .command('remove')
    .description('remove a passkey and end its sessions')
    .argument('<id>', 'as `console passkey list` shows it')
    .examples('strongroom console passkey remove MFkwEwYHKoZIzj0CAQ')
    .runs(async (run, id: string) => {
      await run.show(
        { method: 'DELETE', path: path`/console/passkeys/${id}`, response: AdminPasskeyList },
        passkeysText,
      )
    })
}

async function open(run: Run, { as, role }: { as?: string; role?: AdminRole }): Promise<void> {
  const body = { ...(as === undefined ? {} : { as }), ...(role === undefined ? {} : { role }) }
  const { url } = await run.show(
    { method: 'POST', path: '/console/links', body, response: AdminConsoleLink },
    ({ url, others, actor, role: given }, paint) => {
      const more = others.map(other => `\n${other}`).join('')
      return `${paint.strong(url)}${more}\n\n${actor} (${given}); one browser, once, within a minute\n`
    },
  )
  const { hostname, port } = new URL(url)
  if (hostname === 'localhost') {
    await run.hint(`From another machine, first: ssh -L ${port}:127.0.0.1:${port} THIS-HOST`)
  }
}

function sessionsText(sessions: readonly AdminConsoleSession[], paint: Paint): string {
  return table(
    paint,
    ['SESSION', 'ACTOR', 'ROLE', 'BY', 'SINCE', 'UNTIL'],
    sessions.map(({ id, actor, role, by, began_at, ends_at }) => [
      ...[id, actor, role, by],
      ...[timeText(began_at), timeText(ends_at)],
    ]),
  )
}

function passkeysText({ passkeys }: { readonly passkeys: readonly AdminPasskey[] }, paint: Paint): string {
  return table(
    paint,
    ['PASSKEY', 'ACTOR', 'ROLE', 'NAME', 'AT', 'MADE', 'LAST USED'],
    passkeys.map(({ id, actor, role, name, rp_id, created_at, last_used_at }) => [
      ...[id, actor, role, oneLine(name), rp_id],
      ...[timeText(created_at), dash(last_used_at === null ? null : timeText(last_used_at))],
    ]),
  )
}
