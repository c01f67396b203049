// The policy file of an instance: the policy of its report, and what the statement of its VM must have. Effects: reads
// the file. Fault invalid_request.

import { parsed, wellFormed } from '../../attest/malformed.ts'
import type { Policy } from '../../attest/policy/policy.ts'
import { type EgressPolicy, egressPolicyProblem } from '../../contract/http/egress-policy.ts'
import type { SecretFacts } from '../../contract/vm/orders/secret-facts.ts'
import { InputFault } from '../../terminal/exit.ts'
import { readingInput } from '../../terminal/input-file.ts'
import { ofForm } from '../../verifier/form.ts'
import type { ExpectedPort } from '../../verifier/ordered/published.ts'
import type { Pins } from '../../verifier/pins.ts'
import { readSshKey } from '../../verifier/ssh-key.ts'
import { policyFileSchema } from './chip-list.ts'
import { StatedFields } from './stated-fields.ts'
import { completePolicy, type FlagsAsOf, readPolicy, readPolicyDocument, readPolicyJson } from './trust-options.ts'

/** Expected fields of the statement; 'any' is not compared. */
export type ExpectedStatement = {
  readonly egressPolicy: EgressPolicy | 'any'
  readonly secrets: readonly SecretFacts[] | 'any'
  /** Undefined if the file does not name any; no option does. */
  readonly published?: readonly ExpectedPort[]
  /** Public keys as OpenSSH writes them. */
  readonly loginKeys: readonly string[] | 'any'
}

/** JSON schema of the file. Its last four fields are refused by commands for other evidence. */
export const instancePolicySchema = {
  ...policyFileSchema,
  properties: { ...policyFileSchema.properties, ...StatedFields.properties },
}

/** Reads the policy of the report like `readPolicy`, and adds the other fields to what options name. */
export async function readInstancePolicy(
  path: string | undefined,
  pins: Pick<Pins, 'vmpl'>,
  flags: FlagsAsOf,
  options: ExpectedStatement,
  operatorKey?: string,
): Promise<ExpectedStatement & { readonly policy: Policy }> {
  if (path === undefined) return { policy: await readPolicy(path, pins, flags), ...options }
  const document = readPolicyJson(path, 'policy')
  const { report, stated } = await readingInput(`--policy ${path}`, () => parsedFields(document))
  const { egress, secrets, published, loginKeys } = stated
  return {
    ...(published === undefined ? {} : { published }),
    policy: await completePolicy(path, report, flags, operatorKey),
    egressPolicy: either({ path, option: 'egress-policy', field: 'egress' }, options.egressPolicy, egress),
    secrets: either({ path, option: 'secrets', field: 'secrets' }, options.secrets, secrets),
    loginKeys: either({ path, option: 'login-keys', field: 'loginKeys' }, options.loginKeys, loginKeys),
  }
}

/** Throws Malformed. */
function parsedFields(document: unknown) {
  const isObject = typeof document === 'object' && document !== null && !Array.isArray(document)
  const entries = isObject ? Object.entries(document) : []
  const isStated = ([name]: readonly [string, unknown]) => Object.hasOwn(StatedFields.properties, name)
  const stated = ofForm('policy', StatedFields, Object.fromEntries(entries.filter(isStated)))
  const { egress, loginKeys = [] } = stated
  const problem = egress === undefined ? null : egressPolicyProblem(egress)
  wellFormed(problem === null, `policy.${problem}`)
  for (const [at, line] of loginKeys.entries()) {
    const key = parsed(() => readSshKey(line))
    wellFormed(key.ok, `policy.loginKeys[${at}]: ${key.ok ? '' : key.reason}`)
  }
  const report = isObject ? Object.fromEntries(entries.filter(entry => !isStated(entry))) : document
  return { report: readPolicyDocument(report, instancePolicySchema), stated }
}

type Names = { readonly path: string; readonly option: string; readonly field: string }

/** Refuses both: readers could not see which holds. */
function either<T>({ path, option, field }: Names, ofOption: T | 'any', ofFile: T | undefined): T | 'any' {
  if (ofFile === undefined || ofOption === 'any') return ofFile ?? ofOption
  throw new InputFault(`--${option}: ${path} names ${field}, too`, {
    param: option,
    remedy: `leave out --${option}, or ${field} in the file`,
  })
}
