// strongroom fleet share open. Effects: the state directory, with the service stopped.

import { join } from 'node:path'
import { fromUtf8, toHex } from '../../../base/bytes.ts'
import { systemClock } from '../../../base/clock.ts'
import { Fault } from '../../../base/fault.ts'
import { operatorKeyDigest } from '../../../client/trust/operator-key-digest.ts'
import { asideDir, dropPending, readPending } from '../../../fleet/shared-identity/pending.ts'
import { nonceOf } from '../../../fleet/shared-identity/request.codec.ts'
import {
  checkSecrets,
  openSecrets,
  placeSecrets,
  requireOperatorKey,
  sealedBytesMax,
} from '../../../fleet/shared-identity/secrets.ts'
import { lockFile } from '../../../linux/lock.ts'
import { readInput } from '../../../terminal/input-file.ts'
import { fields } from '../../../terminal/render.ts'
import type { Run } from '../../operator-run.ts'

/**
 * Opens a sealed file and places its secrets. Faults: not_found (no request is open), invalid_request (the file, the
 * key), conflict (the service runs).
 */
export async function open(run: Run, path: string, operatorKey: string): Promise<void> {
  const { stateDir } = run
  const expected = await operatorKeyDigest(operatorKey)
  const text = fromUtf8(readInput({ path, param: 'file', bytesMax: sealedBytesMax }))
  using _ = lockFile(join(stateDir, 'lock'))
  const { asked, identity } = readPending(stateDir)
  const secrets = await openSecrets(text, identity)
  const requestSha256 = toHex(nonceOf(asked))
  if (secrets.request_sha256 !== requestSha256) {
    throw new Fault('invalid_request', 'the sealed file answers another request: seal to the newest one of this host')
  }
  requireOperatorKey(await checkSecrets(secrets, systemClock.nowMs()), expected)
  const aside = asideDir(stateDir, requestSha256)
  placeSecrets(stateDir, secrets, aside)
  dropPending(stateDir)
  const result = { from: secrets.from, operator_key: toHex(expected), set_aside: aside }
  const shown = [
    ['from', secrets.from],
    ['operator key', toHex(expected)],
    ['set aside', aside],
  ] as const
  await run.result(result, fields(run.paint, shown))
  await run.hint(
    `start the service: new VMs are launched with this operator key, running ones keep theirs, and a new gateway VM takes over. ${path} and ${aside} hold keys: remove both once clients pin the new ones`,
  )
}
