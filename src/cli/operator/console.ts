// strongroom console: a link that opens the console in a browser. Effects: requests to the daemon.

import { Option } from 'commander'
import { AdminConsoleLink } from '../../contract/admin/console.ts'
import { ADMIN_ROLES, type AdminRole } from '../../contract/admin/roles.ts'
import type { Command } from '../cli.ts'
import type { Paint } from '../render.ts'

export function addConsole(program: Command): void {
  const console = program
    .command('console')
    .description('the console for browsers: open it')
    .examples('strongroom console open')
  console
    .command('open')
    .description('print a link that logs one browser in, once, within a minute')
    .option('--as <name>', 'an administrator of the configuration instead of you; you must be admin')
    .addOption(new Option('--role <role>', 'a role with fewer rights').choices(ADMIN_ROLES))
    .examples('strongroom console open', 'strongroom console open --as alice --role auditor')
    .runs(async (run, { as, role }: { as?: string; role?: AdminRole }) => {
      const body = { ...(as === undefined ? {} : { as }), ...(role === undefined ? {} : { role }) }
      await run.show({ method: 'POST', path: '/console/links', body, response: AdminConsoleLink }, linkText)
      await run.hint(
        'From another machine: ssh -L PORT:127.0.0.1:PORT HOST first, with the port of the link, which begins with https://localhost.',
      )
    })
}

function linkText({ url, others, actor, role }: AdminConsoleLink, paint: Paint): string {
  const more = others.map(other => `\n${other}`).join('')
  return `${paint.strong(url)}${more}\n\n${actor} (${role}); it opens once, within a minute.\n`
}
