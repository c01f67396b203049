// The firmware's checks of an ID block at the end of a launch (AMD 56860 rev 1.58, 8.18, SNP_LAUNCH_FINISH). Pure.
//
// The checks are named after the firmware's BAD_SIGNATURE, BAD_MEASUREMENT and POLICY_FAILURE. HOST_DATA is not
// checked: firmware only copies it into reports.

import { equalConstantTime } from '../../base/bytes.ts'
import { check, verdict } from '../verdict.ts'
import { readIdBlock } from './id-block.ts'
import { type IdBlockVerdict, verifyIdBlock } from './id-block-verify.ts'

type LaunchFinish = {
  /** The launch digest of the loaded pages. */
  readonly digest: Uint8Array
  /** Guest policy with which the launch started. */
  readonly policy: bigint
  readonly idBlock: Uint8Array
  readonly idAuth: Uint8Array
}

/**
 * Checks an ID block as the firmware would. Never throws for bad bytes. The key digests are those of this VM's reports.
 */
export async function finishLaunch({ digest, policy, idBlock, idAuth }: LaunchFinish): Promise<IdBlockVerdict> {
  const signed = await verifyIdBlock({ idBlock, idAuth, author: 'any' })
  if (signed.idKeyDigest === null) return signed
  const wanted = readIdBlock(idBlock)
  const checks = [
    ...signed.checks,
    check('launch-digest', equalConstantTime(wanted.measurement, digest), 'the ID block is for another launch digest'),
    check('launch-policy', wanted.policy === policy, 'the ID block is for another guest policy'),
  ]
  return { ...signed, ...verdict(checks) }
}
