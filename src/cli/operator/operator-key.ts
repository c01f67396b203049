// strongroom operator-key: the public key of launches, for the operator to publish. Effects: a request to the daemon.

import { AdminStatus } from '../../contract/admin/admin.ts'
import type { Command } from '../operator-run.ts'

export function addOperatorKey(program: Command): void {
  program
    .command('operator-key')
    .description('print the public operator key, which signs the launch of every VM; clients pin its digest')
    .examples('strongroom operator-key > operator-key.pub.pem', 'strongroom operator-key --json')
    .runs(async run => {
      const { operator_key: key } = await run.client().request({ path: '/status', response: AdminStatus })
      await run.result(key, key.public_key)
      await run.hint(`SHA-384 of the ID key, as ID_KEY_DIGEST in reports: ${key.digest}`)
    })
}
