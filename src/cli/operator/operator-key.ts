// strongroom operator-key: the public key of launches, for the operator to publish. Effects: a request to the daemon.

import type { Command } from 'commander'
import { AdminStatus } from '../../contract/admin/admin.ts'
import { type Cli, helpText, runOf } from '../cli.ts'

export function addOperatorKey(program: Command, cli: Cli): void {
  program
    .command('operator-key')
    .description(
      'print the public half of the operator key, which signs the launch of every VM; relying parties pin its digest',
    )
    .addHelpText('after', helpText('strongroom operator-key > operator-key.pub.pem', 'strongroom operator-key --json'))
    .action(async (_options: unknown, command: Command) => {
      const run = runOf(cli, command)
      const { operator_key: key } = await run.client().request({ path: '/status', response: AdminStatus })
      await run.result(key, key.public_key)
      await run.hint(`SHA-384 of the ID key, as ID_KEY_DIGEST in reports: ${key.digest}`)
    })
}
