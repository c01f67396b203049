// Options that a command line lacks if a verdict has no expected image, operator or authority. Pure.

import type { Check } from '../../attest/verdict.ts'
import { pinCheckName } from '../../verifier/pins.ts'
import { type Added, commandText, commandWords, hasOption, type NextCommands } from '../verdict/next-commands.ts'
import { groupName } from '../verdict/summary.ts'

/** The operator's key file in these commands. */
const operatorKeyFile = 'operator-key.pub.pem'

export type Lacking = Required<NextCommands>

export function isFailed(checks: readonly Check[], name: string): boolean {
  return checks.some(check => check.name === name && check.outcome === 'fail')
}

/** Checks that compare what was launched. */
const LAUNCHED: readonly string[] = [
  ...['measurement', 'operator-key', 'image', 'allowlist', 'admission', 'workload-pinned', 'launch-host-data'],
]

/**
 * Reports whether something other than the expected image of the expected operator runs, so that nothing can be
 * accepted.
 */
export function isAnotherLaunch(checks: readonly Check[]): boolean {
  return checks.some(check => check.outcome === 'fail' && LAUNCHED.includes(groupName(check)))
}

/** Returns the missing options: a policy of the operator's files, and the authority of a certificate. */
export function lackingOptions(argv: readonly string[], checks: readonly Check[]): Lacking {
  const lacksImage = isFailed(checks, pinCheckName('measurement'))
  const lacksOperator = isFailed(checks, pinCheckName('operator-key')) || isFailed(checks, pinCheckName('allowlist'))
  const lacksPolicy = (lacksImage || lacksOperator) && !hasOption(argv, '--policy')
  const lacksCa = isFailed(checks, 'tls-certificate') && !hasOption(argv, '--ca')
  return {
    argv,
    missing: lacksCa ? ['--ca', 'ca.pem'] : [],
    prepared: lacksPolicy ? [policyCommand('policy.json', lacksImage ? 'manifest.json' : null, lacksOperator)] : [],
    expected: lacksPolicy ? ['--policy', 'policy.json'] : [],
  }
}

/** Returns `strongroom verify policy-example`, which makes a policy of the files that the operator publishes. */
export function policyCommand(file: string, image: string | null, hasOperator: boolean): string | null {
  const options: Added = [
    ...(image === null ? [] : ['--image', image]),
    ...(hasOperator ? ['--operator-key', operatorKeyFile] : []),
  ]
  return commandText(commandWords(['verify', 'policy-example', ...options]), file)
}
